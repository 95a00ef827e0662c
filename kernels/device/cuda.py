"""An NVIDIA GPU through torch. The only module that touches `torch.cuda`; imported when asked for.

Compute runs on torch's current stream of the device, copies on side streams; events order them.
Source: semantics of CUDA streams and events as torch exposes them.
"""

import os
from collections.abc import Sequence
from contextlib import suppress

import torch
from torch import cuda  # noqa: TID251 - this file is the seam that the ban protects

from kernels.device import host
from kernels.device.base import DeviceFacts, DeviceLostError, DeviceMemoryError, Event, Region
from kernels.device.cards import (
    ORDER_VARIABLE,
    VISIBLE_VARIABLE,
    Identity,
    find_number,
    list_cards,
)
from kernels.device.cpu import plain_buffer
from kernels.device.cuda_calls import VirtualCalls, card_identity
from kernels.device.memory import CopiedRegion, PinnedBuffer, PlainBuffer
from kernels.device.virtual import Surroundings, VirtualRegion

# cudaHostRegisterPortable, pinned for every card, and Mapped, readable by kernels
_PORTABLE_MAPPED = 1 | 2


def open_cuda(number: int) -> "CudaDevice":
    """Open the card that `list_cards` lists under a number, whatever CUDA's own number of it is.

    Where nobody settled the order of numbers (`ORDER_VARIABLE`) they are CUDA's own.

    Raises: DeviceLostError if it cannot be opened, or is hidden from CUDA.
    """
    listed = list_cards() if ORDER_VARIABLE in os.environ else ()
    present = _present() if number < len(listed) else ()
    if not present:
        return CudaDevice(number)
    index = find_number(number, [card.identity for card in listed], present)
    if index is None:
        raise DeviceLostError(
            f"CUDA does not offer {listed[number].title}; {VISIBLE_VARIABLE} may hide it."
        )
    return CudaDevice(index, f"cuda:{number}")


def _present() -> tuple[Identity, ...]:
    """Return CUDA's cards by its own numbers; none where it does not answer."""
    try:
        return tuple(card_identity(index) for index in range(cuda.device_count()))
    except RuntimeError:  # opening will say why
        return ()


class CudaDevice:
    """One GPU, by CUDA's own number. Raises DeviceLostError if it cannot be opened."""

    def __init__(self, index: int = 0, name: str = "") -> None:
        self.name = name or f"cuda:{index}"
        self.torch_device = torch.device("cuda", index)
        self.emulated = False
        self.inline = False
        self.keeps_addresses = False
        try:
            found = cuda.device_count()
            if index >= found:
                raise DeviceLostError(f"There is no CUDA device {index}; {found} were found.")
            self.title = cuda.get_device_name(index)
            self._copies = _SideStream(self.torch_device)
            self._calls = self._virtual_calls()
            self.keeps_addresses = self._calls is not None
        except DeviceLostError:
            raise
        except (RuntimeError, cuda.DeferredCudaCallError) as problem:
            raise DeviceLostError(f"CUDA device {index} does not answer: {problem}") from problem
        # Reference kernels promise fp32 arithmetic; TF32 would drop 13 bits of it.
        torch.backends.cuda.matmul.fp32_precision = "ieee"

    def total_bytes(self) -> int:
        """Memory of the card."""
        return int(cuda.mem_get_info(self.torch_device)[1])

    def free_bytes(self) -> int:
        """What the driver can still give, other programs' use already taken off."""
        return int(cuda.mem_get_info(self.torch_device)[0])

    def region(self, reserve_bytes: int, initial_bytes: int) -> Region:
        """Reserve addresses and map the first bytes; raises DeviceMemoryError.

        Where the card has no virtual memory calls the region moves when it is resized.
        """
        if self._calls is None:
            return CopiedRegion(self._allocate, self._freed, reserve_bytes, initial_bytes)
        around = Surroundings(self.free_bytes, cuda.empty_cache, self._settle)
        return VirtualRegion(self._calls, reserve_bytes, initial_bytes, around)

    def host_buffer(self, num_bytes: int, piece_bytes: int = 0) -> PinnedBuffer:
        """Memory of which the driver pins what it will. Raises DeviceMemoryError."""
        plain = plain_buffer(num_bytes)
        host.prefer_huge_pages(plain.tensor.data_ptr(), num_bytes)
        # Pages come at the first touch, which all threads share; the driver would use one.
        plain.tensor.zero_()
        return self._pin(plain, piece_bytes)

    def copy(
        self, dst: torch.Tensor, src: torch.Tensor, after: Event | None = None
    ) -> "_CudaEvent":
        """Queue a copy on the side stream."""
        return self._copies.copy(dst, src, after)

    def stream(self) -> "_SideStream":
        """Open one more side stream."""
        return _SideStream(self.torch_device)

    def record(self) -> "_CudaEvent":
        """Mark the compute stream."""
        end = cuda.Event()  # type: ignore[no-untyped-call]
        end.record(cuda.current_stream(self.torch_device))
        return _CudaEvent(end)

    def wait(self, event: Event) -> None:
        """Let the compute stream wait; the host goes on."""
        if isinstance(event, _CudaEvent):
            cuda.current_stream(self.torch_device).wait_event(event.end)
        else:
            event.synchronize()

    def synchronize(self) -> None:
        """Wait for every stream of the card. Raises DeviceLostError."""
        try:
            cuda.synchronize(self.torch_device)
        except RuntimeError as problem:
            raise DeviceLostError(f"{self.title} does not answer: {problem}") from problem

    def close(self) -> None:
        """Wait for the copies and return cached memory to the driver."""
        self._copies.close()
        cuda.empty_cache()

    def _pin(self, plain: PlainBuffer, piece_bytes: int = 0) -> PinnedBuffer:
        buffer = PinnedBuffer(plain, _register, _unregister, piece_bytes)
        if buffer.reason:
            self._forget_error()
        return buffer

    def _settle(self) -> None:
        with suppress(RuntimeError):  # a lost card runs nothing any more
            cuda.synchronize(self.torch_device)

    def _virtual_calls(self) -> VirtualCalls | None:
        try:
            return VirtualCalls(self.torch_device)
        except NotImplementedError:
            return None

    def _allocate(self, num_bytes: int) -> torch.Tensor:
        try:
            return torch.empty(num_bytes, dtype=torch.uint8, device=self.torch_device)
        except cuda.OutOfMemoryError as problem:
            cuda.empty_cache()
            raise DeviceMemoryError(
                f"needs {num_bytes} bytes, {self.free_bytes()} are free on {self.title}"
            ) from problem

    def _forget_error(self) -> None:
        """Clear the runtime's last error, which the next launch would take for its own."""
        with suppress(RuntimeError):
            torch.ones(1, device=self.torch_device)

    def _freed(self) -> None:
        # The caching allocator would keep the block; other programs shall have it.
        cuda.synchronize(self.torch_device)
        cuda.empty_cache()


class _CudaEvent:
    """The end of some work; with `start`, of one timed copy."""

    def __init__(self, end: cuda.Event, start: cuda.Event | None = None) -> None:
        self.end = end
        self._start = start

    def done(self) -> bool:
        return bool(self.end.query())  # type: ignore[no-untyped-call]

    def synchronize(self) -> None:
        self.end.synchronize()

    def seconds(self) -> float:
        if self._start is None or not self.done():
            return 0.0
        return float(self._start.elapsed_time(self.end)) / 1e3


class _SideStream:
    """Copies in order beside compute."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = cuda.Stream(device)  # type: ignore[no-untyped-call]

    def copy(self, dst: torch.Tensor, src: torch.Tensor, after: Event | None = None) -> _CudaEvent:
        return self.copy_all(((dst, src),), after)

    def copy_all(
        self, pairs: Sequence[tuple[torch.Tensor, torch.Tensor]], after: Event | None = None
    ) -> _CudaEvent:
        if isinstance(after, _CudaEvent):
            self._stream.wait_event(after.end)
        elif after is not None:
            after.synchronize()
        start, end = _timed_event(), _timed_event()
        with cuda.stream(self._stream):
            start.record(self._stream)
            for dst, src in pairs:
                # Pageable sources make this call block; the order stays the same.
                dst.copy_(src, non_blocking=True)
            end.record(self._stream)
        return _CudaEvent(end, start)

    def close(self) -> None:
        self._stream.synchronize()


def _timed_event() -> cuda.Event:
    return cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]


def _register(address: int, num_bytes: int) -> None:
    """Pin ordinary memory for every card. Raises RuntimeError with the driver's words.

    torch's own pinned memory comes in powers of two, which a bank of 33 GB cannot afford, and stays
    with the process after it was freed.
    """
    runtime = cuda.cudart()  # type: ignore[no-untyped-call]
    error = runtime.cudaHostRegister(address, num_bytes, _PORTABLE_MAPPED)
    if int(error):
        raise RuntimeError(runtime.cudaGetErrorString(error))


def _unregister(address: int) -> None:
    """Let pinned memory go. Only a lost card refuses it, which others will notice."""
    cuda.cudart().cudaHostUnregister(address)  # type: ignore[no-untyped-call]


def stream_handle(device: torch.device) -> int:
    """Return the driver's handle of torch's current stream of a card."""
    return int(cuda.current_stream(device).cuda_stream)


def list_cuda() -> tuple[DeviceFacts, ...]:
    """Return every card; one that does not answer carries the driver's sentence."""
    try:
        return tuple(_facts(index) for index in range(cuda.device_count()))
    except RuntimeError as problem:
        return (DeviceFacts("cuda", "NVIDIA GPU", 0, 0, problem=f"CUDA failed: {problem}"),)


def _facts(index: int) -> DeviceFacts:
    name = f"cuda:{index}"
    try:
        free, total = cuda.mem_get_info(index)
        return DeviceFacts(name, cuda.get_device_name(index), int(total), int(free))
    except RuntimeError as problem:
        return DeviceFacts(name, "NVIDIA GPU", 0, 0, problem=f"CUDA failed: {problem}")
