"""Judgements of a machine's parts, and which models are suggested first."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.predict import hardware as h
from app.predict.fit import Fit, judge_fit
from app.predict.profiles import read_profile
from app.predict.unseen import ConfigFacts, ThisMachine, disk_need
from tests.app.performance.stubs import profile_bytes

GB, GIB = 10**9, 1 << 30
PROFILE = read_profile(profile_bytes(fmt="fp8_block"))


def facts(layers=48, hidden=2048, moe=768, quant="fp8_block"):
    return ConfigFacts(quant, layers, 128, 8, hidden, moe, 32, 4, 128, 151_936)


def test_card_and_driver_when_there_is_none_then_no_fault():
    """A machine without a card is a machine like any other."""
    assert h.check_card(0).tone == "plain"
    assert h.check_driver("").tone == "plain"
    assert h.check_link(0, 0).tone == "plain"
    assert h.check_disk(-1, GB).tone == "plain"


@pytest.mark.parametrize(
    ("version", "tone"),
    [("590.44", "ok"), ("580.65.06", "ok"), ("579.99", "warn"), ("535", "warn"), ("x", "plain")],
)
def test_driver_then_judged_by_its_first_number(version, tone):
    """As text, "99" would be newer than "580". Case C-03: an old one is named before anything."""
    assert h.check_driver(version).tone == tone


def test_link_when_lanes_are_missing_then_warned_whatever_the_generation():
    """x4 in a x16 slot: a quarter of the rate."""
    assert h.check_link(16, 16).tone == "ok"
    check = h.check_link(4, 16)
    assert (check.tone, check.value, check.other) == ("warn", 4, 16)
    assert h.link_limit_gbps(4, 16) == pytest.approx(4 * h.link_limit_gbps(4, 4))
    assert h.link_limit_gbps(99, 16) == 0


@given(st.integers(0, 512 * GIB), st.integers(0, 512 * GIB), st.integers(1, 256 * GB))
def test_ram_and_disk_then_more_is_never_judged_worse(a, b, need):
    """Monotone, and the largest model that fits really fits."""
    less, more = sorted((a, b))
    rank = {"warn": 0, "ok": 1}
    for judge in (h.check_ram, h.check_disk):
        assert rank[judge(less, need).tone] <= rank[judge(more, need).tone]
    check = h.check_ram(more, need)
    assert judge_fit(int(check.other), more, more).fit in (Fit.FITS, Fit.UNKNOWN)
    assert (check.tone == "ok") == (check.other >= need)
    assert (h.check_disk(more, need).tone == "ok") == (more >= disk_need(need))


MODELS = {
    "small": facts(),
    "middle": facts(hidden=2560, moe=1024),
    "bf16": facts(quant="bf16"),
    "large": facts(94, 4096, 1536),
}


def machine(ram=192, free=180, disk=4000 * GB, profile=None):
    return ThisMachine(ram * GIB, free * GIB, 32 * GIB, disk, profile)


def suggested(here, count=3):
    return h.suggest([(h.Candidate(k, f), here) for k, f in MODELS.items()], count)


def test_suggest_when_measured_then_fastest_first_by_the_guess():
    """Each comes with its speed and what it reads."""
    found = suggested(machine(profile=PROFILE))
    assert found[0].key == "small"
    speeds = [one.guess.high for one in found]
    assert speeds == sorted(speeds, reverse=True)


def test_suggest_when_not_measured_then_by_bytes_per_token():
    """At any bandwidth that is the order of speed."""
    found = suggested(machine(), 4)
    assert all(one.guess is None for one in found)
    assert [one.read_bytes for one in found] == sorted(one.read_bytes for one in found)


def test_suggest_when_memory_is_short_then_what_fits_easily_is_chosen_first():
    """What needs other programs closed comes only if nothing better is there."""
    here = machine(ram=100, free=40, profile=PROFILE)
    assert [one.key for one in suggested(here, 1)] == ["small"]
    found = suggested(here, 3)
    assert {one.key: one.advice.fit for one in found} == {
        "small": Fit.FITS, "middle": Fit.TIGHT, "bf16": Fit.TIGHT,
    }  # fmt: skip


def test_suggest_when_the_disk_is_full_then_nothing():
    """A download that cannot end is no suggestion."""
    assert suggested(machine(disk=GB)) == ()
    assert h.suggest([]) == ()
