"""Which card a number means: cards that are hidden, reordered, or numbered in another way."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels.cuda import driver
from kernels.cuda.driver import Driver
from kernels.device import cards, cuda, cuda_calls
from kernels.device.base import DeviceLostError
from kernels.device.cards import Card, Identity, bus_of, choose_visible, find_number
from kernels.device.registry import open_device
from tests.kernels.cuda.test_driver import FakeLibrary

UUIDS = ("GPU-aa11", "GPU-bb22", "GPU-bc33")
SLOTS = tuple(Identity(uuid, bus_of(0, slot + 1, 0)) for slot, uuid in enumerate(UUIDS))


@pytest.mark.parametrize(
    ("wish", "expected"),
    [
        (None, (0, 1, 2)),
        ("", ()),
        ("2", (2,)),
        ("2,0", (2, 0)),
        (" 1 , 2 ", (1, 2)),
        ("0,3,1", (0,)),
        ("0,-1,1", (0,)),
        ("-1", ()),
        ("1,1", ()),
        ("0,x", (0,)),
        ("GPU-bb", (1,)),
        ("GPU-bc33,GPU-aa", (2, 0)),
        ("GPU-b", ()),
        ("GPU-b,0", ()),
        ("1,GPU-bb", ()),
        ("MIG-x", ("MIG-x",)),
        ("MIG-x,MIG-x", ()),
    ],
)
def test_visible_when_wished_then_as_cuda_reads_it(
    wish: str | None, expected: tuple[int | str, ...]
) -> None:
    """Numbers, ids, beginnings of ids; nothing after what names no card; none if one repeats."""
    assert choose_visible(UUIDS, wish) == expected


@given(st.text(alphabet="0123,-GPUMIGabc ", max_size=20))
def test_visible_when_anything_is_wished_then_cards_that_exist_once_each(wish: str) -> None:
    """Whatever stands there."""
    seen = choose_visible(UUIDS, wish)
    assert len(set(seen)) == len(seen)
    assert all(one in range(3) for one in seen if isinstance(one, int))
    assert all(one.startswith("MIG-") for one in seen if isinstance(one, str))


@given(st.permutations(SLOTS), st.integers(0, 2), st.sampled_from(["uuid", "bus", "both"]))
def test_number_when_cuda_counts_differently_then_the_same_card(
    present: list[Identity], wanted: int, known: str
) -> None:
    """Case M-20: by id or by place on the bus, whichever both know."""
    theirs = [
        Identity(
            one.uuid.removeprefix("GPU-").upper() if known != "bus" else "",
            one.bus if known != "uuid" else "",
        )
        for one in present
    ]
    number = find_number(wanted, SLOTS, theirs)
    assert number is not None
    assert present[number] == SLOTS[wanted]


def test_number_when_the_card_is_hidden_then_none() -> None:
    """Another card in its place is never taken for it."""
    assert find_number(0, SLOTS, SLOTS[1:]) is None
    assert find_number(2, SLOTS, SLOTS[1:]) == 1


@pytest.mark.parametrize("listed", [(), (Identity(),), (Identity("MIG-x"),)])
def test_number_when_nothing_is_known_then_it_stays(listed: tuple[Identity, ...]) -> None:
    """No driver library, an old one, or an instance, whose card has one bus for all of them."""
    assert find_number(0, listed, SLOTS) == 0


def test_number_when_instances_share_a_bus_then_the_wished_one() -> None:
    """The driver may tell the card's id for each instance of it."""
    parts = (Identity("one", "0000:01:00"), Identity("two", "0000:01:00"))
    assert find_number(1, (SLOTS[0], SLOTS[0]), parts) == 1


def test_number_when_another_instance_of_the_card_is_there_then_none() -> None:
    """CUDA offers one instance to a process; the second one is not the first (case M-20)."""
    listed = (Identity("MIG-aaaa", "0000:01:00"), Identity("MIG-bbbb", "0000:01:00"))
    assert find_number(0, listed, (Identity("aaaa", "0000:01:00"),)) == 0
    assert find_number(1, listed, (Identity("aaaa", "0000:01:00"),)) is None


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, str]]:
    """What is opened, on a machine whose CUDA puts the last card first and hides the first."""
    found: list[tuple[int, str]] = []
    listed = tuple(Card(n, one, f"Card {n}", 8, 8) for n, one in enumerate(SLOTS))
    monkeypatch.setattr(cuda, "list_cards", lambda: listed)
    monkeypatch.setattr(cuda, "card_identity", lambda index: (SLOTS[2], SLOTS[1])[index])
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    monkeypatch.setattr(
        cuda, "CudaDevice", lambda index, name="": found.append((index, name or f"cuda:{index}"))
    )
    monkeypatch.setenv(cards.ORDER_VARIABLE, "FASTEST_FIRST")
    return found


def test_open_when_cuda_counts_differently_then_the_listed_card(
    opened: list[tuple[int, str]],
) -> None:
    """Case M-20: what was chosen by its title is what the model runs on, under the same name."""
    open_device("cuda:2")
    open_device("cuda:1")
    assert opened == [(0, "cuda:2"), (1, "cuda:1")]


def test_open_when_the_card_is_hidden_then_named_and_nothing_is_opened(
    opened: list[tuple[int, str]],
) -> None:
    """Case M-20: not another card instead."""
    with pytest.raises(DeviceLostError, match="does not offer Card 0; CUDA_VISIBLE_DEVICES"):
        open_device("cuda:0")
    assert opened == []


def test_open_when_the_number_is_not_listed_then_cuda_says_so(
    opened: list[tuple[int, str]],
) -> None:
    """The driver may know cards that its library does not list."""
    open_device("cuda:97")
    assert opened == [(97, "cuda:97")]


def test_open_when_nobody_settled_the_order_then_cudas_own_numbers(
    opened: list[tuple[int, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tool by itself counts as CUDA does."""
    monkeypatch.delenv(cards.ORDER_VARIABLE)
    monkeypatch.setattr(cuda, "list_cards", lambda: pytest.fail("asked"))
    open_device("cuda:0")
    assert opened == [(0, "cuda:0")]


class Library(FakeLibrary):
    """A driver whose cards have ids."""

    def _cuDeviceGetUuid_v2(self, uuid, device):
        uuid[:] = range(16)


def test_identity_when_the_driver_tells_it_then_id_and_bus(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the listing writes them; a driver without these calls costs the identity only."""
    library = Library()
    library.compute |= {50: 1, 33: 0x41, 34: 2}
    opened = Driver(library)
    monkeypatch.setattr(cuda_calls, "open_driver", lambda: opened)
    monkeypatch.setattr(driver, "open_driver", lambda: opened)
    expected = Identity("00010203-0405-0607-0809-0a0b0c0d0e0f", "0001:41:02")
    assert cuda_calls.card_identity(0) == expected
    library.fails["cuDeviceGetUuid_v2"] = 500
    assert cuda_calls.card_identity(0) == Identity()
