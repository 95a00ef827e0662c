"""Regions that grow in place, over a made-up driver that counts and refuses."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.device import host
from kernels.device.base import DeviceMemoryError
from kernels.device.virtual import (
    LARGE_GRANULE_BYTES,
    Surroundings,
    VirtualRegion,
    granule_size,
)

GRANULE = 64
RANGE = 64 * 16 * GRANULE


class Calls:
    """A driver with `capacity` granules of memory; contents live per granule."""

    granule_bytes = GRANULE

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.mapped: dict[int, int] = {}  # address -> handle
        self.ranges: set[tuple[int, int]] = set()
        self.made = 0
        self.is_settled = False

    def reserve(self, num_bytes):
        self.ranges.add((1 << 20, num_bytes))
        return 1 << 20

    def map(self, address, num_bytes):
        units = num_bytes // GRANULE
        if sum(size for _, size in self.mapped.values()) + units > self.capacity:
            raise DeviceMemoryError("out of memory")
        assert address not in self.mapped, "mapped twice"
        self.made += 1
        self.is_settled = False
        self.mapped[address] = (self.made, units)
        return self.made

    def unmap(self, address, num_bytes, handle):
        assert self.is_settled, "unmapped under work that may still run"
        assert self.mapped.pop(address) == (handle, num_bytes // GRANULE)

    def free(self, address, num_bytes):
        assert not self.mapped, "freed while mapped"
        self.ranges.remove((address, num_bytes))

    def view(self, address, num_bytes):
        covered = sum(size for _, size in self.mapped.values()) * GRANULE
        assert num_bytes <= covered, "shows what is not mapped"
        return torch.zeros(num_bytes, dtype=torch.uint8)


def region_over(calls: Calls, initial: int, retry=lambda: None) -> VirtualRegion:
    around = Surroundings(lambda: 4242, retry, lambda: setattr(calls, "is_settled", True))
    return VirtualRegion(calls, RANGE, initial, around)


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 40), st.lists(st.integers(0, RANGE), max_size=12))
def test_resize_whatever_is_asked_maps_exactly_the_granules_needed(capacity, sizes):
    """A refusal changes nothing; the address never does; the end gives all back (M-01)."""
    calls = Calls(capacity * 16)
    region = region_over(calls, 0)
    address, size = region.address, 0
    for wanted in sizes:
        before, refused = dict(calls.mapped), ""
        try:
            region.resize(wanted)
            size = wanted
        except DeviceMemoryError as problem:
            refused = str(problem)
        if refused:
            assert "4242 are free" in refused
            assert calls.mapped == before
        assert region.address == address
        assert region.tensor.numel() == size
        assert 0 <= region.mapped_bytes - size < 16 * GRANULE
    region.close()
    region.close()
    assert not calls.mapped
    assert not calls.ranges


def test_resize_when_what_is_held_in_reserve_suffices_is_not_refused():
    """torch keeps freed memory for itself: it must give it up before we say no."""
    calls = Calls(16)

    def give_up() -> None:
        calls.capacity = 64

    region = region_over(calls, 16 * GRANULE, give_up)
    region.resize(40 * GRANULE)
    assert region.mapped_bytes == 48 * GRANULE
    region.close()


def test_open_when_the_first_bytes_are_refused_frees_the_range():
    """A load that fails leaves nothing behind."""
    calls = Calls(8)
    with pytest.raises(DeviceMemoryError):
        region_over(calls, RANGE)
    assert not calls.ranges


def test_resize_beyond_the_reservation_is_refused():
    """The range bounds every size."""
    region = region_over(Calls(4096), 0)
    with pytest.raises(ValueError, match="asked of a region"):
        region.resize(RANGE + 1)
    region.close()


def test_granules_are_large_for_large_ranges_and_few_for_small_ones():
    """64 MiB under a pool of experts, the least piece under a pool of a few MiB."""
    least = 2 << 20
    assert granule_size(100 << 30, least) == LARGE_GRANULE_BYTES
    assert granule_size(8 << 20, least) == least
    assert granule_size(1 << 30, least) % least == 0


def test_huge_pages_when_the_range_is_odd_leave_its_contents():
    """The wish covers whole pages only and touches nothing."""
    memory = torch.arange(3 * host.PAGE_BYTES, dtype=torch.int64)
    host.prefer_huge_pages(memory.data_ptr() + 8, memory.numel() * 8 - 16)
    assert torch.equal(memory, torch.arange(3 * host.PAGE_BYTES, dtype=torch.int64))
