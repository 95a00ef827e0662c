"""The C++ module agrees with the operating system about this CPU."""

import sys
import types
from pathlib import Path

import pytest

from kernels.cpu import expert_obstacle, isa_tier


@pytest.mark.skipif(isa_tier() is None, reason="needs the C++ module: dev.py bootstrap builds it")
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc/cpuinfo")
def test_isa_tier_equals_what_the_kernel_reports() -> None:
    """A tier is offered exactly if the system lists its instructions (case E-09)."""
    flags = set(Path("/proc/cpuinfo").read_text().split())
    avx2 = {"avx2", "fma", "f16c"} <= flags
    avx512 = avx2 and {"avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512cd"} <= flags
    assert isa_tier() == ("avx512" if avx512 else "avx2" if avx2 else "scalar")


def test_module_built_from_other_sources_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stale build could read past its record; the reference serves instead, with the reason."""
    stale = types.ModuleType("kernels.cpu._native")
    stale.isa_tier = lambda: "avx2"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "kernels.cpu._native", stale)
    assert isa_tier() is None
    assert "not built" in expert_obstacle()
