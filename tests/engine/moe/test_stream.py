"""Staging: what arrives is right, and the next layer is on its way while this one is used."""

import pytest
import torch

from engine.moe.meter import CopyMeter
from engine.moe.planner import choose_path, distinct_share
from engine.moe.stream import LayerStream, staging_bytes
from kernels.device.fake import FakeDevice
from kernels.device.registry import open_device
from tests.engine.moe.world import EXPERTS, LAYERS, LAYOUT, RECORDS, make_pool


@pytest.fixture(params=["cpu", "fake"])
def device(request):
    return open_device(request.param)


def test_layer_when_asked_in_order_is_copied_once_and_ahead(device):
    """Each layer crosses once, whole, over two chunks of the prompt."""
    pool, meter = make_pool(device), CopyMeter()
    stream = LayerStream(device, pool, 2 * EXPERTS)
    for _ in range(2):
        for layer in range(LAYERS):
            assert torch.equal(stream.layer(layer, meter), pool.layer(layer))
    assert meter.num_bytes == 2 * RECORDS * LAYOUT.record_bytes
    assert meter.seconds > 0.0
    assert stream.num_bytes == staging_bytes(LAYOUT, 2 * EXPERTS)
    stream.close()


def test_layer_when_used_has_the_next_copy_queued_behind_it():
    """Double buffering: layer l + 1 is queued before layer l is computed, into the other half."""
    device = FakeDevice()
    pool = make_pool(device)
    stream = LayerStream(device, pool, 2 * EXPERTS)
    device.calls.clear()
    first = stream.layer(0, CopyMeter())
    size = EXPERTS * LAYOUT.record_bytes
    assert device.calls == [("copy", size), ("wait", 0), ("copy", size)]
    second = stream.layer(1, CopyMeter())
    assert device.calls[3:] == [("wait", 0), ("copy", size)]
    device.synchronize()  # layer 2 lands in the half of layer 0, not in that of layer 1
    assert torch.equal(second, pool.layer(1))
    assert torch.equal(first, pool.layer(2))
    stream.close()


def test_layer_when_order_is_broken_still_returns_what_was_asked(device):
    """A chunk that was cut short leaves a copy ahead that nobody wants."""
    pool, meter = make_pool(device), CopyMeter()
    stream = LayerStream(device, pool, 2 * EXPERTS)
    for layer in (0, 0, 2, 1, 0):
        assert torch.equal(stream.layer(layer, meter), pool.layer(layer))
        got = {index: view.clone() for index, view in stream.records([layer, 17], meter)}
        assert all(torch.equal(view, pool.record(index)) for index, view in got.items())
    stream.close()


@pytest.mark.parametrize("staging", [1, 2, 3, 5, 2 * EXPERTS])
def test_records_when_staging_is_small_pass_in_groups(device, staging):
    """Any number of records passes through any staging, in order."""
    pool, meter = make_pool(device), CopyMeter()
    stream = LayerStream(device, pool, staging)
    wanted = [3, 17, 0, 8, 4, 11, 9]
    seen = []
    for index, view in stream.records(wanted, meter):
        assert torch.equal(view, pool.record(index))
        seen.append(index)
    assert seen == wanted
    assert list(stream.records([], meter)) == []
    assert meter.num_bytes == len(wanted) * LAYOUT.record_bytes
    stream.close()


def test_path_when_chosen_depends_on_the_chunk_and_staging_only():
    """Few distinct experts or little staging: on demand; else whole layers."""
    assert choose_path(64, 4, 32, 64) == "full_layer"
    assert choose_path(64, 4, 32, 63) == "on_demand"
    assert choose_path(8, 4, 32, 64) == "on_demand"
    assert [round(distinct_share(n, 8, 256), 2) for n in (4, 16, 64, 128)] == [
        0.12,
        0.4,
        0.87,
        0.98,
    ]
    assert distinct_share(1, 9, 8) == 1.0
