"""Which device a model runs on."""

import pytest

from app.services.device_choice import choose_device, key_of
from engine.protocol import messages as m

GIB = 1 << 30


def device(name, gib, key="", emulated=False):
    return m.DeviceInfo(
        name=name,
        id=key,
        title=name,
        total_bytes=gib * GIB,
        free_bytes=gib * GIB,
        emulated=emulated,
    )


PROCESSOR = device("cpu", 64, emulated=True)
SMALL, LARGE = device("cuda:0", 8, "GPU-small"), device("cuda:1", 24, "GPU-large")


@pytest.mark.parametrize("order", [(SMALL, LARGE), (LARGE, SMALL)])
def test_device_when_nothing_is_wished_then_the_largest_card(order):
    """Case M-20: memory that a processor shares counts for nothing, in whatever order they come."""
    assert choose_device((PROCESSOR, *order)) == "cuda:1"
    assert choose_device((*order, PROCESSOR)) == "cuda:1"
    assert choose_device((PROCESSOR, SMALL)) == "cuda:0"
    assert choose_device((PROCESSOR,)) == choose_device(()) == "cpu"


def test_device_when_wished_then_that_one_wherever_it_is_listed():
    """Case M-20: a card is known by its own id, not by its place."""
    moved = device("cuda:0", 24, "GPU-large"), device("cuda:1", 8, "GPU-small")
    assert choose_device((PROCESSOR, SMALL, LARGE), key_of(SMALL)) == "cuda:0"
    assert choose_device((PROCESSOR, *moved), key_of(SMALL)) == "cuda:1"
    assert choose_device((PROCESSOR, SMALL, LARGE), "cpu") == "cpu"
    assert choose_device((PROCESSOR, LARGE), key_of(SMALL)) == "cuda:1"
    assert key_of(device("cuda:3", 8)) == "cuda:3"
