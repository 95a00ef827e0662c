"""Host memory that is pinned piece by piece, by the rules that a driver has for pages."""

import gc
import weakref

import pytest

from kernels.device import host
from kernels.device.cpu import plain_buffer
from kernels.device.fake import FakePins
from kernels.device.memory import PinnedBuffer, PlainBuffer

PAGE = host.PAGE_BYTES
PIECE = 3 * PAGE
SIZE = 3 * PIECE + PAGE + 7  # the fourth piece is shorter


def pinned(pins: FakePins, size: int = SIZE, piece_bytes: int = PIECE) -> PinnedBuffer:
    """A buffer of fresh memory."""
    return PinnedBuffer(plain_buffer(size), pins.pin, pins.release, piece_bytes)


@pytest.mark.parametrize(
    ("limit", "pinned_bytes", "words"),
    [
        (None, SIZE, ""),
        (4, SIZE, ""),
        (3, 3 * PIECE, "refused to pin more: the fake device was told to refuse."),
        (2, 2 * PIECE, "refused to pin more: the fake device was told to refuse."),
        (0, 0, f"refused to pin {PIECE} bytes: the fake device was told to refuse."),
    ],
)
def test_buffer_when_a_piece_is_refused_then_those_before_it_stay_pinned(
    limit: int | None, pinned_bytes: int, words: str
) -> None:
    """First to last, the last one shorter; what is said is why there are no more (case M-02)."""
    pins = FakePins(limit)
    buffer = pinned(pins)
    first = buffer.tensor.data_ptr()
    pieces = [PIECE, PIECE, PIECE, PAGE + 7][:limit]
    assert pins.held == {first + n * PIECE: size for n, size in enumerate(pieces)}
    assert (buffer.pinned, buffer.pinned_bytes) == (pinned_bytes == SIZE, pinned_bytes)
    assert buffer.reason.endswith(words)
    assert bool(buffer.reason) == bool(words)
    buffer.close()
    assert pins.held == {}


@pytest.mark.parametrize("limit", [None, 2])
@pytest.mark.parametrize("way", ["unpin", "close", "forget"])
def test_buffer_when_it_ends_in_any_way_then_every_piece_is_let_go_once(
    limit: int | None, way: str
) -> None:
    """Also where nobody closes; a second try finds nothing to let go, which `FakePins` refuses."""
    pins = FakePins(limit)
    buffer = pinned(pins)
    if way == "forget":
        gone = weakref.ref(buffer)
        del buffer
        gc.collect()
        assert gone() is None
        assert pins.held == {}
        return
    if way == "unpin":
        assert buffer.unpin("The device had no room.")
        assert (buffer.reason, buffer.tensor.numel()) == ("The device had no room.", SIZE)
        assert not buffer.unpin("Once more.")
        assert buffer.reason == "The device had no room."
    else:
        buffer.close()
    assert pins.held == {}
    assert (buffer.pinned, buffer.pinned_bytes) == (False, 0)
    buffer.close()


def test_buffer_when_nothing_was_pinned_then_unpin_leaves_the_reason() -> None:
    """Who is refused memory for another reason is not told that a pin went (case M-12)."""
    buffer = pinned(FakePins(0))
    reason = buffer.reason
    assert not buffer.unpin("The device had no room.")
    assert buffer.reason == reason


@pytest.mark.parametrize("piece_bytes", [0, PAGE + 4, PAGE // 2])
def test_buffer_when_pieces_are_not_whole_pages_then_it_is_one_piece(piece_bytes: int) -> None:
    """Two pins must not share a page."""
    pins = FakePins()
    buffer = pinned(pins, piece_bytes=piece_bytes)
    assert pins.held == {buffer.tensor.data_ptr(): SIZE}
    assert buffer.pinned


def test_buffer_when_it_does_not_begin_at_a_page_then_it_is_one_piece() -> None:
    """The same, wherever the memory comes from."""
    whole, pins = plain_buffer(SIZE + 64), FakePins()
    buffer = PinnedBuffer(PlainBuffer(whole.tensor[64:]), pins.pin, pins.release, PIECE)
    assert pins.held == {buffer.tensor.data_ptr(): SIZE}


def test_buffer_when_pinning_is_broken_off_then_nothing_stays_pinned() -> None:
    """Whatever ends it: the memory goes, and no pin may outlive it."""
    pins = FakePins()

    def pin(address: int, num_bytes: int) -> None:
        if len(pins.held) == 2:
            raise KeyboardInterrupt
        pins.pin(address, num_bytes)

    with pytest.raises(KeyboardInterrupt):
        PinnedBuffer(plain_buffer(SIZE), pin, pins.release, PIECE)
    gc.collect()
    assert pins.held == {}


@pytest.mark.parametrize("size", [1, PAGE - 1, PAGE, 5 * PAGE + 1])
def test_plain_buffers_have_their_pages_for_themselves(size: int) -> None:
    """From a page's boundary, so that one may be pinned beside the other, and in pieces."""
    pins = FakePins()
    buffers = [pinned(pins, size, 0) for _ in range(20)]
    assert all(buffer.tensor.data_ptr() % PAGE == 0 for buffer in buffers)
    assert all(b.tensor.data_ptr() == b.tensor.untyped_storage().data_ptr() for b in buffers)
    assert all(buffer.pinned and buffer.tensor.numel() == size for buffer in buffers)
