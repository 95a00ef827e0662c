"""Contrast as in WCAG 2, and distance of colours as seen with each kind of colour vision."""

# Machado et al. 2009, severity 1.0, linear RGB
CVD = {
    "protan": (
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ),
    "deutan": (
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.011820, 0.042940, 0.968881),
    ),
    "tritan": (
        (1.255528, -0.076749, -0.178779),
        (-0.078411, 0.930809, 0.147602),
        (0.004733, 0.691367, 0.303900),
    ),
}


def linear(value: str) -> list[float]:
    """Return linear RGB of "#RRGGBB"."""
    parts = (int(value[i : i + 2], 16) / 255 for i in (1, 3, 5))
    return [v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in parts]


def contrast(a: str, b: str) -> float:
    """Return the ratio of two colours, 1 to 21."""
    high, low = sorted((_luminance(a), _luminance(b)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def distance(a: str, b: str, vision: str = "") -> float:
    """Return the distance in Oklab times 100; `vision` is a key of CVD or ""."""
    seen = [linear(a), linear(b)]
    if vision:
        seen = [
            [sum(m * c for m, c in zip(row, rgb, strict=True)) for row in CVD[vision]]
            for rgb in seen
        ]
    first, second = (_oklab(rgb) for rgb in seen)
    return 100 * sum((x - y) ** 2 for x, y in zip(first, second, strict=True)) ** 0.5


def _luminance(value: str) -> float:
    r, g, b = linear(value)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


def _oklab(rgb: list[float]) -> tuple[float, float, float]:
    r, g, b = (max(0.0, c) for c in rgb)
    long = (0.4122214708 * r + 0.5363325363 * g + 0.0514459929 * b) ** (1 / 3)
    mid = (0.2119034982 * r + 0.6806995451 * g + 0.1073969566 * b) ** (1 / 3)
    short = (0.0883024619 * r + 0.2817188376 * g + 0.6299787005 * b) ** (1 / 3)
    return (
        0.2104542553 * long + 0.7936177850 * mid - 0.0040720468 * short,
        1.9779984951 * long - 2.4285922050 * mid + 0.4505937099 * short,
        0.0259040371 * long + 0.7827717662 * mid - 0.8086757660 * short,
    )
