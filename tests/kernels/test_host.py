"""Main memory as a program can still get it."""

from pathlib import Path

import pytest

from kernels.device.host import HostMemory, memory, within_container

MACHINE = HostMemory(total_bytes=1000, free_bytes=600)


@pytest.mark.parametrize(
    ("limit", "current", "stat", "expected"),
    [
        ("max", "50", "", MACHINE),
        ("400", "100", "anon 100\n", HostMemory(400, 300)),
        ("400", "350", "anon 50\ninactive_file 200\nactive_file 100\n", HostMemory(400, 350)),
        ("900", "100", "", HostMemory(900, 600)),
        ("5000", "100", "", MACHINE),
        ("400", "450", "", HostMemory(400, 0)),
    ],
)
def test_memory_when_in_a_container_then_its_limit_and_use_count(
    tmp_path: Path, limit: str, current: str, stat: str, expected: HostMemory
) -> None:
    """Over the limit the system kills, whatever the machine has; cached files give way."""
    for name, text in (("max", limit), ("current", current), ("stat", stat)):
        (tmp_path / f"memory.{name}").write_text(text)
    assert within_container(MACHINE, tmp_path) == expected


def test_memory_when_there_is_no_container_then_the_machines(tmp_path: Path) -> None:
    """No such files; and this machine has some memory."""
    assert within_container(MACHINE, tmp_path) == MACHINE
    here = memory()
    assert 0 < here.free_bytes <= here.total_bytes
    assert here.total_bytes > 1 << 28
