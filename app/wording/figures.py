"""Figures as text: memory, tokens, rates, shares, formats. The same in every language.

GiB for memory (MiB below 1 GiB), GB for files, K for tokens; a space before units and %.
"""

_KIB, _MIB, _GIB = 1024, 1024**2, 1024**3
_FORMATS = {"fp8_block": "FP8", "nvfp4": "NVFP4", "mxfp4": "MXFP4"}  # the rest: upper case


def memory(num_bytes: int) -> str:
    """Return an amount of memory, as "9.6 GiB" or "29 MiB"."""
    unit, name = _unit(num_bytes)
    return f"{_digits(num_bytes / unit)} {name}"


def memory_pair(used_bytes: int, total_bytes: int) -> str:
    """Return used and total in the unit of the total, as "29.0 / 32.0 GiB"."""
    unit, name = _unit(total_bytes)
    total = total_bytes / unit
    places = 1 if total < 100 else 0
    return f"{used_bytes / unit:.{places}f} / {total:.{places}f} {name}"


def file_size(num_bytes: int) -> str:
    """Return a size on disk in decimal units, as "1.2 TB", "63 GB" or "37.8 MB"."""
    for unit, name in ((10**12, "TB"), (10**9, "GB"), (10**6, "MB"), (10**3, "kB")):
        if num_bytes >= unit:
            return f"{_digits(num_bytes / unit)} {name}"
    return f"{num_bytes} B"


def tokens(count: int) -> str:
    """Return a number of tokens, as "812", "18.4K" or "512K"; K = 1024 where that is even."""
    if count < 1000:
        return str(count)
    if count % 1024 == 0:
        return f"{count // 1024:,}K"
    thousands = count / 1000
    return f"{thousands:.1f}K" if thousands < 100 else f"{thousands:,.0f}K"


def share(value: float) -> str:
    """Return a share of 1 in per cent, as "63 %"."""
    return f"{100 * value:.0f} %"


def rate(per_second: float) -> str:
    """Return a speed with one decimal below 100, as "24.8" or "312"."""
    return f"{per_second:.1f}" if per_second < 100 else f"{per_second:.0f}"


def weight_format(name: str) -> str:
    """Return an engine's name of a weight format as people write it: "fp8_block" is "FP8"."""
    return _FORMATS.get(name.lower(), name.upper())


def card_name(name: str) -> str:
    """Return what tells a graphics card from others, as "RTX 5090"."""
    return name.removeprefix("NVIDIA ").removeprefix("GeForce ")


def _unit(num_bytes: int) -> tuple[int, str]:
    if num_bytes >= _GIB:
        return _GIB, "GiB"
    return (_MIB, "MiB") if num_bytes >= _MIB else (_KIB, "KiB")


def _digits(value: float) -> str:
    return f"{value:.1f}" if value < 100 else f"{value:.0f}"
