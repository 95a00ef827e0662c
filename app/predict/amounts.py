"""Figures as text: memory in GiB, files in GB, links in GB/s, tokens in K.

Pure, and the same in every language; the words around a figure are the caller's.
"""

import math

from app.wording import figures

_KIB, _MIB, _GIB = 1 << 10, 1 << 20, 1 << 30
MINUS = "\N{MINUS SIGN}"


def memory(size_bytes: float) -> str:
    """Return memory as "512 KiB", "37.3 MiB" or "9.6 GiB"."""
    unit, name = memory_unit(abs(size_bytes))
    return f"{in_unit(size_bytes, unit)} {name}"


def memory_unit(largest_bytes: float) -> tuple[int, str]:
    """Return the unit that suits a group of sizes whose greatest is `largest_bytes`."""
    if largest_bytes >= _GIB:
        return _GIB, "GiB"
    if largest_bytes >= _MIB:
        return _MIB, "MiB"
    return _KIB, "KiB"


def in_unit(size_bytes: float, unit: int) -> str:
    """Return the number alone: one decimal below 100, none above, none for a round zero."""
    value = size_bytes / unit
    if abs(value) < 0.05:
        return "0"
    return f"{value:.1f}" if abs(value) < 99.95 else f"{value:,.0f}"


def signed_memory(size_bytes: float, unit: int) -> str:
    """Return a change as "+1.9" or "−1.9" in `unit`; "" where it would read as zero."""
    text = in_unit(abs(size_bytes), unit)
    return "" if text == "0" else f"{'+' if size_bytes > 0 else MINUS}{text}"


def disk(size_bytes: float) -> str:
    """Return a file size as "540 kB", "38.2 MB" or "158 GB"."""
    return figures.file_size(round(size_bytes))


def number(value: float) -> str:
    """Return a figure with three places that matter: "0.78", "24.8", "178"; "–" for NaN."""
    if not math.isfinite(value):
        return "–"
    if value == 0:
        return "0"
    for limit, places in ((0.995, 2), (99.95, 1)):
        if abs(value) < limit:
            return _plain(f"{value:.{places}f}")
    return _plain(f"{value:,.0f}")


def signed(value: float) -> str:
    """Return a change with its sign, one decimal: "+1.4", "−0.3"."""
    return f"{'+' if value >= 0 else MINUS}{abs(value):.1f}"


def share(value: float) -> str:
    """Return a share of 1 as "63 %"."""
    return "–" if not math.isfinite(value) else f"{100 * value:.0f} %"


def tokens(count: int) -> str:
    """Return a token count as "640", "18.4K", "226K" or "1M"."""
    million = 1 << 20
    if count >= million:
        return f"{count / million:.1f}M".replace(".0M", "M")
    return figures.tokens(count)


def duration(seconds: float) -> str:
    """Return a time as "40 s", "8 min" or "2 h 5 min"."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"


def milliseconds(value: float) -> str:
    """Return a pause as "0.4 ms", "31 ms" or "1.2 s"."""
    if value >= 999.5:
        return f"{value / 1000:.1f} s"
    if value < 0.05:
        return "<0.1 ms"
    return f"{value:.1f} ms" if value < 9.95 else f"{value:.0f} ms"


def _plain(text: str) -> str:
    return text.replace("-", MINUS)
