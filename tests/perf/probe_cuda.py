"""The GPU's part of the probe: link, device memory, graph nodes, and the host's answer time.

Knows the driver and the kernels of `kernels/cuda/source/probe.cu`, nothing of the engine.
"""

import ctypes
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from ctypes import byref, c_float, c_int, c_longlong, c_uint, c_ulonglong, c_void_p
from statistics import median
from types import TracebackType
from typing import Self

import torch

from kernels.cuda.compile import compile_source
from kernels.cuda.driver import Module, architecture, num_multiprocessors, open_driver

NON_BLOCKING = 1  # CU_STREAM_NON_BLOCKING
THIS_THREAD = 1  # CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
GATHER_THREADS = 512
GATHER_CTAS = 16
STEP_CTAS, STEP_THREADS = 132, 256
NEVER = 0x9E3779B9
WORD = 16
TWO_SECONDS = 4_000_000_000  # cycles, at 2 GHz
LAYERS = 48  # handshakes of one graph
GB = 1e9


class CudaProbe:
    """One card, ready to be measured; a context manager.

    Args:
        host_bytes: of pinned main memory to copy from; more than the processor caches.
        device_bytes: of the card's memory to read.
    """

    def __init__(self, host_bytes: int, device_bytes: int) -> None:
        self._driver = open_driver()
        self._device = torch.device("cuda", 0)
        self._on_device = torch.zeros(device_bytes, dtype=torch.uint8, device=self._device)
        self.host = torch.empty(host_bytes, dtype=torch.uint8, pin_memory=True)
        self.host.fill_(1)
        self._words = torch.zeros(STEP_CTAS * STEP_THREADS, device=self._device)
        self._module = Module(compile_source("probe.cu", {}, architecture()))
        self._stream = c_void_p()
        self._call("cuStreamCreate", byref(self._stream), NON_BLOCKING)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._call("cuStreamSynchronize", self._stream)
        self._call("cuStreamDestroy_v2", self._stream)
        self._module.close()

    def copy_rate(self, num_bytes: int, pinned: bool, seconds: float) -> float:
        """Return bytes/s of copies of this size to the card."""
        source = self.host if pinned else torch.ones(64 << 20, dtype=torch.uint8)
        places = source.numel() // num_bytes
        target = self._on_device[:num_bytes]

        def copy(index: int) -> None:
            start = index % places * num_bytes
            target.copy_(source[start : start + num_bytes], non_blocking=True)

        return self._rate(copy, num_bytes, seconds)

    def gather_rate(self, records: int, record_bytes: int, ctas: int = GATHER_CTAS) -> float:
        """Return bytes/s of a kernel that copies `records` scattered records over the link."""
        gather = self._gather(records, record_bytes, ctas)
        times = [self._seconds(gather) for _ in range(9)]
        return records * record_bytes / median(times)

    @contextmanager
    def gathering(self, record_bytes: int) -> Iterator[Callable[[], float]]:
        """Keep gathering on a thread; yields a function that ends it and returns its bytes/s."""
        records = 16
        gather = self._gather(records, record_bytes, GATHER_CTAS)
        stop, begun = threading.Event(), threading.Event()
        done: list[float] = []

        def loop() -> None:
            torch.zeros(1, device=self._device)  # the card's context becomes this thread's
            count, start = 0, time.perf_counter()
            while not stop.is_set():
                gather()
                self._call("cuStreamSynchronize", self._stream)
                count += 1
                begun.set()
            done.append(count * records * record_bytes / (time.perf_counter() - start))

        def end() -> float:
            stop.set()
            thread.join()
            return done[0]

        thread = threading.Thread(target=loop, name="gather")
        thread.start()
        begun.wait()
        try:
            yield end
        finally:
            stop.set()
            thread.join()

    def read_rate(self) -> float:
        """Return bytes/s at which the card reads its own memory."""
        function = self._module.function("probe_read")
        grid = (8 * num_multiprocessors(), 1, 1)
        words = c_ulonglong(self._on_device.numel() // WORD)
        args = (self._at(self._on_device), words, c_uint(NEVER), self._at(self._words))

        def read() -> None:
            function.launch(grid, 512, args, self._handle)

        times = [self._seconds(read) for _ in range(9)]
        return self._on_device.numel() / median(times)

    def node_us(self, kernel: str) -> float:
        """Return microseconds of one more node in a graph: "empty", or "step" that depends."""
        function = self._module.function(f"probe_{kernel}")
        is_step = kernel == "step"
        grid = (STEP_CTAS if is_step else 1, 1, 1)
        args = (self._at(self._words),) if is_step else ()

        def chain(count: int) -> float:
            def build() -> None:
                for _ in range(count):
                    function.launch(grid, STEP_THREADS, args, self._handle)

            return self._graph_seconds(build)

        return (chain(500) - chain(100)) / 400 * 1e6

    def handshake_us(self) -> float:
        """Return microseconds from a kernel's message to the host until a kernel has the answer.

        Both nodes included. The host polls in Python, about 0.1 us slower than C++.
        """
        words = torch.zeros(64, dtype=torch.int64, pin_memory=True)
        number = torch.zeros(1, dtype=torch.int64, device=self._device)
        bell, answer = c_void_p(words.data_ptr()), c_void_p(words.data_ptr() + 256)
        ring, wait = self._module.function("probe_ring"), self._module.function("probe_wait")
        stop = threading.Event()

        def host() -> None:
            heard = ctypes.c_uint64.from_address(words.data_ptr())
            said = ctypes.c_uint64.from_address(words.data_ptr() + 256)
            while not stop.is_set():
                for _ in range(1000):
                    said.value = heard.value

        def build() -> None:
            for _ in range(LAYERS):
                ring.launch((1, 1, 1), 1, (bell, self._at(number)), self._handle)
                args = (answer, self._at(number), c_longlong(TWO_SECONDS))
                wait.launch((1, 1, 1), 1, args, self._handle)

        thread = threading.Thread(target=host, name="answers")
        thread.start()
        try:
            return self._graph_seconds(build) / LAYERS * 1e6
        finally:
            stop.set()
            thread.join()

    @property
    def _handle(self) -> int:
        return self._stream.value or 0

    def _at(self, tensor: torch.Tensor) -> c_void_p:
        return c_void_p(tensor.data_ptr())

    def _call(self, name: str, *arguments: object) -> None:
        self._driver.call(name, *arguments)

    def _gather(self, records: int, record_bytes: int, ctas: int) -> Callable[[], None]:
        """Return a launch of the gather; each call takes other records."""
        function = self._module.function("probe_gather")
        places = self.host.numel() // record_bytes
        order = torch.arange(places, dtype=torch.int32) * 37 % places  # 37 is coprime to any 2^n
        ids = torch.cat((order, order[:records])).to(self._device)
        self._driver.call("cuCtxSynchronize")
        turn = 0

        def launch() -> None:
            nonlocal turn
            turn = (turn + records) % places
            args = (
                self._at(self.host),
                self._at(self._on_device),
                c_void_p(ids.data_ptr() + 4 * turn),
                c_int(records),
                c_ulonglong(record_bytes // WORD),
            )
            function.launch((ctas, 1, 1), GATHER_THREADS, args, self._handle)

        return launch

    def _rate(self, copy: Callable[[int], None], num_bytes: int, seconds: float) -> float:
        copy(0)
        self._driver.call("cuCtxSynchronize")
        count, start = 0, time.perf_counter()
        while time.perf_counter() - start < seconds:
            for _ in range(8):
                copy(count)
                count += 1
            self._driver.call("cuCtxSynchronize")
        return count * num_bytes / (time.perf_counter() - start)

    def _seconds(self, work: Callable[[], None]) -> float:
        """Return the seconds that queued work takes on the card."""
        events = (c_void_p(), c_void_p())
        for event in events:
            self._call("cuEventCreate", byref(event), 0)
        took = c_float()
        try:
            self._call("cuEventRecord", events[0], self._stream)
            work()
            self._call("cuEventRecord", events[1], self._stream)
            self._call("cuEventSynchronize", events[1])
            self._call("cuEventElapsedTime", byref(took), *events)
        finally:
            for event in events:
                self._call("cuEventDestroy_v2", event)
        return took.value / 1e3

    def _graph_seconds(self, build: Callable[[], None]) -> float:
        """Capture what `build` queues, replay it; returns the median seconds of a replay."""
        graph, ready = c_void_p(), c_void_p()
        self._call("cuStreamBeginCapture_v2", self._stream, THIS_THREAD)
        build()
        self._call("cuStreamEndCapture", self._stream, byref(graph))
        self._call("cuGraphInstantiateWithFlags", byref(ready), graph, c_ulonglong(0))
        try:
            times = [
                self._seconds(lambda: self._call("cuGraphLaunch", ready, self._stream))
                for _ in range(60)
            ]
        finally:
            self._call("cuGraphExecDestroy", ready)
            self._call("cuGraphDestroy", graph)
        return median(times[10:])


def link_rows(probe: CudaProbe, sizes: Sequence[int], seconds: float) -> list[dict[str, object]]:
    """Return a row of copy and gather rates for each size, in GB/s."""
    return [
        {
            "bytes": size,
            "pinned": probe.copy_rate(size, True, seconds) / GB,
            "pageable": probe.copy_rate(size, False, seconds) / GB,
            "gather 1": probe.gather_rate(1, size) / GB,
            "gather 4": probe.gather_rate(4, size) / GB,
        }
        for size in sizes
    ]
