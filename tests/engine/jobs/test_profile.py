"""The profile job with a short effort: what is measured, stored and said."""

import pytest

from engine.jobs import profile
from engine.jobs.measure import Effort
from engine.loader.rates import profile_key
from engine.memory.bandwidth import read_profile, stale_reason
from engine.protocol.errors import BudgetError, Cancelled, InvalidRequest
from engine.protocol.messages import ProfilePoint, Progress
from kernels.device.registry import open_device

MIB = 1024**2

RECORD_BYTES = 148 * 1024  # an expert of the built-in model


@pytest.fixture(autouse=True)
def short(monkeypatch):
    effort = Effort(rounds=1, round_s=0.0, pool_bytes=4 * MIB)
    monkeypatch.setattr(profile, "EFFORTS", {"quick": effort})
    monkeypatch.setattr(profile, "FILL_SIZES", (64 * 1024, MIB))


def test_profile_of_a_model_measures_its_records_and_stores_rates(converted_home, tmp_path):
    """Both links alone and together; on a CPU-only machine it says what a fill is."""
    events = []
    spec = {
        "mode": "quick",
        "model": "builtin",
        "home": str(converted_home.root),
        "output": str(tmp_path / "one.json"),
        "id": "p",
    }
    result = profile.run(spec, events.append, lambda: False)
    points = [event for event in events if isinstance(event, ProfilePoint)]
    assert {point.link for point in points} == {"fill", "cpu", "joint_fill", "joint_cpu"}
    assert all(point.gbps > 0 for point in points)
    assert [p.size_bytes for p in points if p.link == "fill"] == [65_536, RECORD_BYTES, MIB]
    steps = [event for event in events if isinstance(event, Progress)]
    assert steps[-1].done_bytes == steps[-1].total_bytes
    assert "not over PCIe" in result["note"]
    stored = read_profile(tmp_path / "one.json")
    assert stored is not None
    assert stored.emulated
    assert stored.fill == pytest.approx(result["fill_gbps"] * 1e9)
    key = profile_key("fp8_block", RECORD_BYTES, open_device("cpu", 0))
    assert stale_reason(stored, key, stored.measured_at_s + 1) == ""


def test_profile_without_a_model_measures_each_format(tmp_path):
    """Typical experts, one file per format in the data root."""
    spec = {"home": str(tmp_path)}
    result = profile.run(spec, lambda _: None, lambda: False)
    assert [figures["format"] for figures in result["formats"]] == ["fp8_block", "bf16"]
    assert len(list((tmp_path / "profiles").iterdir())) == 2


@pytest.mark.parametrize("spec", [{"mode": "slow"}, {"device": "tpu"}])
def test_profile_with_a_bad_spec_names_it(spec, tmp_path):
    """The caller can mend it."""
    with pytest.raises(InvalidRequest):
        profile.run({"home": str(tmp_path), **spec}, lambda _: None, lambda: False)


def test_profile_when_cancelled_stops(tmp_path):
    """Asked between pieces of work."""
    with pytest.raises(Cancelled):
        profile.run({"home": str(tmp_path)}, lambda _: None, lambda: True)


def test_profile_without_memory_refuses_with_figures(tmp_path, monkeypatch):
    """It must not push the machine into swap."""
    monkeypatch.setattr(profile, "host_memory", lambda: (8 * 1024**3, 10 * MIB))
    with pytest.raises(BudgetError, match="available"):
        profile.run({"home": str(tmp_path)}, lambda _: None, lambda: False)
