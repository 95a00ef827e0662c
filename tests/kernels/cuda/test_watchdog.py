"""The limit of a wait on the card stands twice: for builds by Python, and for those without."""

import re

from kernels.cuda.compile import SOURCES
from kernels.cuda.experts import WATCHDOG_NS

DEFAULT = re.compile(
    r"#ifdef FT_WATCHDOG_NS\s+constexpr uint64_t kWatchdogNs = FT_WATCHDOG_NS;\s+"
    r"#else\s+constexpr uint64_t kWatchdogNs = ([\d']+);\s+#endif"
)


def test_watchdog_when_the_source_has_its_own_default_then_it_is_the_same() -> None:
    """A build without the define, as a profiler's or the emulator's, waits as long as ours."""
    (default,) = DEFAULT.findall((SOURCES / "moe_state.cuh").read_text(encoding="utf-8"))
    assert int(default.replace("'", "")) == WATCHDOG_NS
