"""The CUDA driver's virtual memory through ctypes; what `kernels.device.virtual` builds on.

torch has the context; these calls share it. Source: CUDA driver API, `cuMem*` of virtual memory.
"""

import ctypes
import sys
from ctypes import POINTER, byref, c_char_p, c_int, c_size_t, c_ubyte, c_uint64, c_ushort, c_void_p
from functools import cache

import torch

from kernels.device.base import DeviceLostError, DeviceMemoryError

_PINNED_MEMORY = 1  # CU_MEM_ALLOCATION_TYPE_PINNED: memory of the card that stays where it is
_ON_DEVICE = 1  # CU_MEM_LOCATION_TYPE_DEVICE
_READ_WRITE = 3  # CU_MEM_ACCESS_FLAGS_PROT_READWRITE
_HAS_VIRTUAL_MEMORY = 102  # CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED
_OUT_OF_MEMORY = 2


class _Location(ctypes.Structure):
    _fields_ = (("type", c_int), ("id", c_int))


class _Flags(ctypes.Structure):
    _fields_ = (
        ("compression", c_ubyte),
        ("rdma", c_ubyte),
        ("usage", c_ushort),
        ("reserved", c_ubyte * 4),
    )


class _Allocation(ctypes.Structure):
    _fields_ = (
        ("type", c_int),
        ("handle_types", c_int),
        ("location", _Location),
        ("windows_meta", c_void_p),
        ("flags", _Flags),
    )


class _Access(ctypes.Structure):
    _fields_ = (("location", _Location), ("flags", c_int))


class _View:
    """Mapped bytes as the CUDA array interface, which torch takes without a copy."""

    def __init__(self, address: int, num_bytes: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": (num_bytes,),
            "typestr": "|u1",
            "data": (address, False),
            "version": 3,
        }


class VirtualCalls:
    """Virtual memory of one card; see `kernels.device.virtual.MemoryCalls`.

    Raises: NotImplementedError where the driver or the card has none.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        index = device.index or 0
        try:
            self._driver = _driver()
        except OSError as problem:
            raise NotImplementedError(f"the CUDA driver library is not there: {problem}") from None
        supported, ordinal = c_int(0), c_int(0)
        self._check(self._driver.cuDeviceGet(byref(ordinal), index))
        self._check(
            self._driver.cuDeviceGetAttribute(byref(supported), _HAS_VIRTUAL_MEMORY, ordinal)
        )
        if not supported.value:
            raise NotImplementedError("this card and driver have no virtual memory calls")
        here = _Location(_ON_DEVICE, index)
        self._kind = _Allocation(type=_PINNED_MEMORY, location=here)
        self._access = _Access(here, _READ_WRITE)
        granule = c_size_t(0)
        self._check(
            self._driver.cuMemGetAllocationGranularity(byref(granule), byref(self._kind), 0)
        )
        self.granule_bytes = granule.value

    def reserve(self, num_bytes: int) -> int:
        """Reserve addresses."""
        address = c_uint64(0)
        self._check(
            self._driver.cuMemAddressReserve(
                byref(address), c_size_t(num_bytes), c_size_t(0), c_uint64(0), c_uint64(0)
            )
        )
        return address.value

    def map(self, address: int, num_bytes: int) -> int:
        """Create memory, map it, allow access; undone as a whole if one of them is refused."""
        driver, handle, size = self._driver, c_uint64(0), c_size_t(num_bytes)
        self._check(driver.cuMemCreate(byref(handle), size, byref(self._kind), c_uint64(0)))
        try:
            place = c_uint64(address)
            self._check(driver.cuMemMap(place, size, c_size_t(0), handle, c_uint64(0)))
            try:
                self._check(driver.cuMemSetAccess(place, size, byref(self._access), c_size_t(1)))
            except BaseException:
                driver.cuMemUnmap(place, size)
                raise
        except BaseException:
            driver.cuMemRelease(handle)
            raise
        return handle.value

    def unmap(self, address: int, num_bytes: int, handle: int) -> None:
        """Unmap and release."""
        self._check(self._driver.cuMemUnmap(c_uint64(address), c_size_t(num_bytes)))
        self._check(self._driver.cuMemRelease(c_uint64(handle)))

    def free(self, address: int, num_bytes: int) -> None:
        """Give addresses back."""
        self._check(self._driver.cuMemAddressFree(c_uint64(address), c_size_t(num_bytes)))

    def view(self, address: int, num_bytes: int) -> torch.Tensor:
        """Return uint8 [num_bytes] over mapped bytes."""
        if not num_bytes:
            return torch.empty(0, dtype=torch.uint8, device=self._device)
        return torch.as_tensor(_View(address, num_bytes), device=self._device)

    def _check(self, code: int) -> None:
        if code == 0:
            return
        words = c_char_p()
        self._driver.cuGetErrorString(code, byref(words))
        sentence = (words.value or b"").decode("ascii", "replace") or f"error {code}"
        if code == _OUT_OF_MEMORY:
            raise DeviceMemoryError(sentence)
        raise DeviceLostError(f"The CUDA driver refused a memory call: {sentence} ({code}).")


@cache
def _driver() -> ctypes.CDLL:
    """Return the driver library with its memory calls declared. Raises OSError without one."""
    library = ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
    library.cuGetErrorString.argtypes = (c_int, POINTER(c_char_p))
    return library
