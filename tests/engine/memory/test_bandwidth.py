"""Stored profiles: written whole, read tolerantly, judged with a reason."""

import msgspec
import pytest

from engine.memory.bandwidth import (
    BandwidthProfile,
    CurvePoint,
    ProfileKey,
    profile_path,
    read_profile,
    stale_reason,
    write_profile,
)
from engine.protocol.errors import FileAccess

KEY = ProfileKey(
    device="NVIDIA GeForce RTX 5090",
    cpu="Some CPU",
    format="fp8_block",
    record_bytes=4096,
    threads=8,
    engine_version="0.1.0",
)
PROFILE = BandwidthProfile(
    key=KEY,
    fill=50e9,
    cpu=70e9,
    joint_fill=45e9,
    joint_cpu=20e9,
    measured_at_s=1000.0,
    points=(CurvePoint(link="fill", size_bytes=65536, gbps=12.0),),
)


def test_profile_written_and_read_is_the_same(tmp_path):
    """Rates survive, and no temporary file is left."""
    path = profile_path(tmp_path / "profiles", KEY.device, KEY.format)
    assert path.name == "nvidia-geforce-rtx-5090-fp8-block.json"
    write_profile(path, PROFILE)
    assert read_profile(path) == PROFILE
    assert PROFILE.rates.joint_cpu == 20e9
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_damaged_or_foreign_profile_counts_as_none(tmp_path):
    """A profile can always be measured again."""
    path = tmp_path / "a.json"
    assert read_profile(path) is None
    path.write_bytes(b"{half")
    assert read_profile(path) is None
    path.write_bytes(msgspec.json.encode(msgspec.structs.replace(PROFILE, version=99)))
    assert read_profile(path) is None


def test_profile_that_cannot_be_written_names_the_file(tmp_path):
    """A file stands where the folder should be."""
    (tmp_path / "profiles").write_text("")
    with pytest.raises(FileAccess, match=r"x\.json"):
        write_profile(tmp_path / "profiles" / "x.json", PROFILE)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"device": "B"}, "device"),
        ({"cpu": "B"}, "processor"),
        ({"driver": "600"}, "driver"),
        ({"format": "bf16"}, "expert format"),
        ({"record_bytes": 1}, "expert size"),
        ({"threads": 4}, "threads"),
        ({"engine_version": "2"}, "engine version"),
    ],
)
def test_profile_measured_under_other_facts_is_stale_with_the_reason(change, word):
    """Each fact that the rates depend on."""
    other = msgspec.structs.replace(KEY, **change)
    assert word in stale_reason(PROFILE, other, 1001.0)


def test_profile_grows_old_and_holds_until_then():
    """Same machine, same everything: only age counts."""
    assert stale_reason(PROFILE, KEY, 1001.0) == ""
    assert "100 days ago" in stale_reason(PROFILE, KEY, 1000.0 + 100 * 86400)
    broken = msgspec.structs.replace(PROFILE, cpu=0.0)
    assert "incomplete" in stale_reason(broken, KEY, 1001.0)
