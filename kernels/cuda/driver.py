"""The CUDA driver through ctypes: load compiled kernels, launch them. Knows no kernel.

Shares the device's primary context with torch. Called by the launchers of this package. Source:
CUDA driver API, `cuModule*` and `cuLaunchKernelEx`.
"""

import ctypes
import sys
from collections.abc import Callable, Sequence
from ctypes import POINTER, byref, c_char_p, c_int, c_uint, c_void_p
from functools import cache

from kernels.device.base import DeviceLostError, DeviceMemoryError, KernelError

Argument = ctypes.Structure | c_int | c_uint | ctypes.c_longlong | ctypes.c_float | c_void_p
"""A kernel argument, passed by value."""

_COMPUTE_MAJOR = 75  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR
_COMPUTE_MINOR = 76
_NUM_MULTIPROCESSORS = 16
_MAX_SHARED_BYTES = 97  # CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
_FUNCTION_SHARED_BYTES = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
_OVERLAP_ATTRIBUTE = 6  # CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
_OVERLAP_MAJOR = 9  # first compute class whose kernels may start before the one before ends
_OUT_OF_MEMORY = 2
_LOST = frozenset((4, 46, 100, 101, 214, 219, 220, 700, 702, *range(709, 720), 999))
"""Codes after which the context or the card is gone: CUDA_ERROR_DEINITIALIZED, .._NO_DEVICE,
.._ILLEGAL_ADDRESS, .._LAUNCH_TIMEOUT, .._LAUNCH_FAILED and their like."""
_OF_KERNELS = ("cuModule", "cuFunc", "cuLaunch", "cuMemHostGetDevicePointer")
"""How the calls begin that bring a kernel onto a card and give it what it reads."""


class _Attribute(ctypes.Structure):
    """CUlaunchAttribute; its value is a union of 64 bytes that begins with what is set here."""

    _fields_ = (("id", c_int), ("pad", c_int), ("value", c_int), ("rest", c_int * 15))


class _Config(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = (  # one by one: an array in a structure is slow to fill
        *((f"grid_{axis}", c_uint) for axis in "xyz"),
        *((f"block_{axis}", c_uint) for axis in "xyz"),
        ("shared_bytes", c_uint),
        ("stream", c_void_p),
        ("attributes", POINTER(_Attribute)),
        ("num_attributes", c_uint),
    )


_OVERLAP = ctypes.pointer(_Attribute(id=_OVERLAP_ATTRIBUTE, value=1))  # only read


class Function:
    """One kernel of a loaded module."""

    def __init__(self, driver: "Driver", handle: c_void_p, name: str, can_overlap: bool) -> None:
        self.name = name
        self._driver = driver
        self._handle = handle
        self._can_overlap = can_overlap
        self._allowed_bytes = 0  # what it has by itself depends on what it declares

    def launch(
        self,
        grid: tuple[int, int, int],
        block: int,
        args: Sequence[Argument],
        stream: int = 0,
        shared_bytes: int = 0,
        overlap: bool = False,
    ) -> None:
        """Queue the kernel on a stream (its handle); captured if the stream is being captured.

        `args` are copied before this returns. With `overlap` its CTAs may start before the kernel
        before it has ended, which the kernel waits for by itself; without effect on cards that
        cannot.

        Raises: DeviceLostError; KernelError with the driver's words for a launch it refuses.
        """
        if shared_bytes > self._allowed_bytes:
            self._driver.call(
                "cuFuncSetAttribute", self._handle, _FUNCTION_SHARED_BYTES, shared_bytes
            )
            self._allowed_bytes = shared_bytes
        config = _Config(
            *grid, block, 1, 1, shared_bytes, stream, _OVERLAP, overlap and self._can_overlap
        )
        addresses = (c_void_p * len(args))(*map(ctypes.addressof, args))
        self._driver.call("cuLaunchKernelEx", byref(config), self._handle, addresses, None)


class Module:
    """A compiled image (cubin, fatbin or PTX) in the context of a card, which becomes current.

    Raises: OSError without a driver library; DeviceMemoryError; DeviceLostError; KernelError with
    the driver's words for an image that is not for this card.
    """

    def __init__(self, image: bytes, device_index: int = 0) -> None:
        self._driver = open_driver()
        self._device = self._driver.device(device_index)
        self._can_overlap = compute_class(device_index)[0] >= _OVERLAP_MAJOR
        self._handle = c_void_p()
        context = c_void_p()
        self._driver.call("cuDevicePrimaryCtxRetain", byref(context), self._device)
        try:
            self._driver.call("cuCtxSetCurrent", context)
            self._driver.call("cuModuleLoadData", byref(self._handle), c_char_p(image))
        except BaseException:
            self._driver.call("cuDevicePrimaryCtxRelease_v2", self._device)
            raise

    def function(self, name: str) -> Function:
        """Return a kernel by its name. Raises KernelError if there is none."""
        handle = c_void_p()
        self._driver.call(
            "cuModuleGetFunction", byref(handle), self._handle, c_char_p(name.encode())
        )
        return Function(self._driver, handle, name, self._can_overlap)

    def close(self) -> None:
        """Unload; no kernel of it may run or lie in a graph that will be launched again."""
        if self._handle:
            self._driver.call("cuModuleUnload", self._handle)
            self._driver.call("cuDevicePrimaryCtxRelease_v2", self._device)
            self._handle = c_void_p()


class Driver:
    """The driver library: calls by name, errors as exceptions."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        self._functions: dict[str, Callable[..., int]] = {}  # the library makes them anew each time
        self.call("cuInit", 0)

    def call(self, name: str, *arguments: object) -> None:
        """Call a function; integers are passed as C int.

        Raises: DeviceLostError, DeviceMemoryError, KernelError or RuntimeError with the driver's
            words.
        """
        function = self._functions.get(name)
        if function is None:
            function = self._functions[name] = self._library[name]
        code = function(*arguments)
        if code == 0:
            return
        sentence = f"The CUDA driver refused {name}: {self._words(code)} ({code})."
        if code == _OUT_OF_MEMORY:
            raise DeviceMemoryError(sentence)
        if code in _LOST:
            raise DeviceLostError(sentence)
        raise (KernelError if name.startswith(_OF_KERNELS) else RuntimeError)(sentence)

    def device(self, index: int) -> c_int:
        """Return the driver's handle of a card."""
        handle = c_int()
        self.call("cuDeviceGet", byref(handle), index)
        return handle

    def attribute(self, which: int, device_index: int) -> int:
        """Return one of a card's numbers."""
        value = c_int()
        self.call("cuDeviceGetAttribute", byref(value), which, self.device(device_index))
        return value.value

    def _words(self, code: int) -> str:
        words = c_char_p()
        self._library.cuGetErrorString(code, byref(words))
        return (words.value or b"unknown error").decode("ascii", "replace")


@cache
def open_driver() -> Driver:
    """Return the system's driver. Raises OSError without one, DeviceLostError without a card."""
    return Driver(ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"))


def compute_class(device_index: int = 0) -> tuple[int, int]:
    """Return a card's compute capability."""
    driver = open_driver()
    return (
        driver.attribute(_COMPUTE_MAJOR, device_index),
        driver.attribute(_COMPUTE_MINOR, device_index),
    )


def architecture(device_index: int = 0) -> str:
    """Return what `compile_source` builds for a card, such as "sm_90"."""
    major, minor = compute_class(device_index)
    return f"sm_{major}{minor}"


def num_multiprocessors(device_index: int = 0) -> int:
    """Return how many CTAs' worth of hardware a card has."""
    return open_driver().attribute(_NUM_MULTIPROCESSORS, device_index)


def max_shared_bytes(device_index: int = 0) -> int:
    """Return the most shared memory that one CTA may ask for."""
    return open_driver().attribute(_MAX_SHARED_BYTES, device_index)
