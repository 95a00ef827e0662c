"""What a measurement means: each sentence by its arithmetic, at both sides of its bound."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.predict.diagnosis import diagnose
from app.predict.profiles import Conditions, read_conditions, read_profile
from app.predict.runs import run_lines
from tests.app.performance.stubs import profile_bytes


def profile(**changes):
    """A measurement of the stubs with other figures; rates in GB/s."""
    raw = json.loads(profile_bytes(**{k: v for k, v in changes.items() if k in ("fmt", "at")}))
    for name in ("fill", "cpu"):
        if name in changes:
            raw[name] = changes[name] * 1e9
            raw["points"] = [p for p in raw["points"] if p["link"] != name]
            raw["points"].append({"link": name, "size_bytes": 1 << 26, "gbps": changes[name]})
    if "joint_cpu" in changes:
        raw["joint_cpu"] = changes["joint_cpu"] * 1e9
    raw["emulated"] = changes.get("emulated", False)
    raw["key"]["threads"] = changes.get("threads", 16)
    return read_profile(json.dumps(raw).encode())


def found(kind, one=None, earlier=(), **around):
    return next(
        (f for f in diagnose(one or profile(), Conditions(**around), earlier) if f.kind == kind),
        None,
    )


def test_narrow_when_lanes_are_missing_then_both_numbers_and_what_all_would_give():
    """PCIe 4.0 x4 of x16: four times the lanes, four times the rate."""
    finding = found("narrow", link_generation=4, link_width=4, best_width=16)
    assert (finding.value, finding.other, finding.name) == (4, 16, "26")
    assert found("narrow", link_width=16, best_width=16) is None
    assert found("narrow", link_width=0, best_width=16) is None
    assert found("narrow", profile(emulated=True), link_width=4, best_width=16) is None
    assert found("narrow", link_width=8, best_width=16).name == ""


@pytest.mark.parametrize(
    ("read", "modules", "mts", "threads", "is_found"),
    [
        (40.0, 2, 5600, 16, True),  # one channel of DDR5-5600 gives 44.8
        (44.9, 2, 5600, 16, False),
        (60.0, 2, 5600, 16, False),
        (40.0, 2, 5600, 2, False),  # two threads may be the limit themselves
        (60.0, 1, 5600, 16, True),  # one module is one channel, whatever was read
        (20.0, 1, 0, 16, True),
        (20.0, 0, 0, 16, False),  # nothing is known of the memory
    ],
)
def test_channel_then_by_modules_or_by_the_rate_of_one(read, modules, mts, threads, is_found):
    """8 bytes a transfer: what one channel can give at most."""
    one = profile(cpu=read, joint_cpu=1.0, threads=threads)
    finding = found("channel", one, modules=modules, memory_mts=mts)
    assert (finding is not None) == is_found
    if finding is not None:
        assert (finding.value, finding.other) == (read, mts * 8 / 1000)


def test_battery_when_plugged_or_not_known_then_nothing():
    """Only a battery that feeds the machine is a finding."""
    assert found("battery", on_battery=True) is not None
    assert found("battery", on_battery=False) is None
    assert found("battery") is None


def test_busy_when_the_card_worked_for_others_then_their_share():
    """A desktop alone takes some per cent; a game takes most."""
    assert found("busy", gpu_busy=0.6).value == 0.6
    assert found("busy", gpu_busy=0.05) is None
    assert found("busy") is None


@pytest.mark.parametrize(
    ("fill", "degrees", "throttled", "kind"),
    [
        (40.0, 88, None, "hot"),
        (40.0, 60, None, "slower"),
        (49.0, 88, None, None),  # hot and as fast as ever
        (49.0, 70, True, "hot"),  # the driver says so itself
        (49.0, 70, False, None),
    ],
)
def test_drop_then_heat_if_it_was_hot_else_only_slower(fill, degrees, throttled, kind):
    """Against the best earlier run of the same kind; 10 % is the bound."""
    earlier = (profile(fill=50.0), profile(fill=45.0))
    one = profile(fill=fill)
    around = {"temperature": degrees, "is_throttled": throttled}
    kinds = {f.kind for f in diagnose(one, Conditions(**around), earlier)} & {"hot", "slower"}
    assert kinds == ({kind} if kind else set())
    if kind:
        finding = found(kind, one, earlier, **around)
        assert finding.value == pytest.approx(1 - fill / 50)
        assert finding.other == (degrees if kind == "hot" else 50.0)


def test_drop_when_the_earlier_run_was_of_another_kind_then_not_compared():
    """Another format, size or device says nothing about this one."""
    assert found("slower", profile(fill=20.0), (profile(fill=50.0, fmt="bf16"),)) is None


def test_diagnose_when_nothing_was_noted_then_as_before():
    """Runs of older versions have no notes."""
    assert diagnose(profile()) == diagnose(profile(), Conditions())


def test_lines_then_changes_against_the_run_before_of_the_same_kind():
    """Newest first; the first of its kind has no change."""
    runs = (
        profile(fill=55.0, cpu=40.0, at=4.0), profile(fill=10.0, fmt="bf16", at=3.0),
        profile(fill=50.0, cpu=50.0, at=2.0),
    )  # fmt: skip
    lines = run_lines(runs)
    assert [line.profile for line in lines] == list(runs)
    assert lines[0].fill_change == pytest.approx(0.1)
    assert lines[0].cpu_change == pytest.approx(-0.2)
    assert (lines[1].fill_change, lines[2].fill_change) == (None, None)


NOTES = st.builds(
    Conditions,
    link_width=st.integers(0, 16),
    temperature=st.none() | st.integers(1, 110),
    is_throttled=st.none() | st.booleans(),
    on_battery=st.none() | st.booleans(),
    gpu_busy=st.none() | st.floats(0, 1),
)


@given(st.lists(NOTES, min_size=1, max_size=5))
def test_notes_over_a_run_then_the_worst_heat_the_widest_link_the_first_use(notes):
    """The link is at its best under load, the card at its hottest; use counts before the run."""
    whole = notes[0]
    for later in notes[1:]:
        whole = whole.and_then(later)
    assert whole.link_width == max(n.link_width for n in notes)
    assert (whole.temperature or 0) == max(n.temperature or 0 for n in notes)
    assert bool(whole.is_throttled) == any(n.is_throttled for n in notes)
    assert bool(whole.on_battery) == any(n.on_battery for n in notes)
    assert whole.gpu_busy == notes[0].gpu_busy


@pytest.mark.parametrize("data", [b"", b"[]", b"\xff", b'{"modules": "x"}'])
def test_notes_when_damaged_then_none(data):
    """A note that cannot be read costs the note only."""
    assert read_conditions(data) is None
