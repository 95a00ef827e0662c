"""The CUDA driver's virtual memory through ctypes; what `kernels.device.virtual` builds on.

torch has the context; these calls share it. Source: CUDA driver API, `cuMem*` of virtual memory.
"""

import ctypes
from ctypes import byref, c_int, c_size_t, c_ubyte, c_uint64, c_ushort, c_void_p
from uuid import UUID

import torch

from kernels.cuda.driver import open_driver
from kernels.device.cards import Identity, bus_of

_PINNED_MEMORY = 1  # CU_MEM_ALLOCATION_TYPE_PINNED: memory of the card that stays where it is
_ON_DEVICE = 1  # CU_MEM_LOCATION_TYPE_DEVICE
_READ_WRITE = 3  # CU_MEM_ACCESS_FLAGS_PROT_READWRITE
_LEAST = 0  # CU_MEM_ALLOC_GRANULARITY_MINIMUM
_HAS_VIRTUAL_MEMORY = 102  # CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED
_PLACE = (50, 33, 34)  # CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID, .._PCI_BUS_ID, .._PCI_DEVICE_ID


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
            self._driver = open_driver()
        except OSError as problem:
            raise NotImplementedError(f"the CUDA driver library is not there: {problem}") from None
        if not self._driver.attribute(_HAS_VIRTUAL_MEMORY, index):
            raise NotImplementedError("this card and driver have no virtual memory calls")
        here = _Location(_ON_DEVICE, index)
        self._kind = _Allocation(type=_PINNED_MEMORY, location=here)
        self._access = _Access(here, _READ_WRITE)
        granule = c_size_t(0)
        self._driver.call(
            "cuMemGetAllocationGranularity", byref(granule), byref(self._kind), _LEAST
        )
        self.granule_bytes = granule.value

    def reserve(self, num_bytes: int) -> int:
        """Reserve addresses."""
        address = c_uint64(0)
        self._driver.call(
            "cuMemAddressReserve",
            *(byref(address), c_size_t(num_bytes), c_size_t(0), c_uint64(0), c_uint64(0)),
        )
        return address.value

    def map(self, address: int, num_bytes: int) -> int:
        """Create memory, map it, allow access; undone as a whole if one of them is refused."""
        call, handle, size = self._driver.call, c_uint64(0), c_size_t(num_bytes)
        call("cuMemCreate", byref(handle), size, byref(self._kind), c_uint64(0))
        try:
            place = c_uint64(address)
            call("cuMemMap", place, size, c_size_t(0), handle, c_uint64(0))
            try:
                call("cuMemSetAccess", place, size, byref(self._access), c_size_t(1))
            except BaseException:
                call("cuMemUnmap", place, size)
                raise
        except BaseException:
            call("cuMemRelease", handle)
            raise
        return handle.value

    def unmap(self, address: int, num_bytes: int, handle: int) -> None:
        """Unmap and release."""
        self._driver.call("cuMemUnmap", c_uint64(address), c_size_t(num_bytes))
        self._driver.call("cuMemRelease", c_uint64(handle))

    def free(self, address: int, num_bytes: int) -> None:
        """Give addresses back."""
        self._driver.call("cuMemAddressFree", c_uint64(address), c_size_t(num_bytes))

    def view(self, address: int, num_bytes: int) -> torch.Tensor:
        """Return uint8 [num_bytes] over mapped bytes."""
        if not num_bytes:
            return torch.empty(0, dtype=torch.uint8, device=self._device)
        return torch.as_tensor(_View(address, num_bytes), device=self._device)


def card_identity(index: int) -> Identity:
    """Return what tells CUDA's card of this number from all others; empty if nothing is known."""
    try:
        driver, uuid = open_driver(), (c_ubyte * 16)()
        bus = bus_of(*(driver.attribute(which, index) for which in _PLACE))
        driver.call("cuDeviceGetUuid_v2", uuid, driver.device(index))
    except (OSError, RuntimeError, AttributeError):  # no driver, or an old one without the call
        return Identity()
    return Identity(str(UUID(bytes=bytes(uuid))), bus)


def device_pointer(address: int) -> int:
    """Return where kernels see pinned host memory; on most systems the same address.

    Raises: KernelError with the driver's words for memory that is not pinned and mapped.
    """
    pointer = c_uint64(0)
    open_driver().call(
        "cuMemHostGetDevicePointer_v2", byref(pointer), c_void_p(address), ctypes.c_uint(0)
    )
    return pointer.value
