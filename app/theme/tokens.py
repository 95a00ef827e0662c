"""The design tokens as data: colours by role, type scale, spaces, radii, sizes, motion.

Read once from `resources/themes/tokens.json` and never changed. Sizes are in px at 100 % zoom. The
only source of such literals in the app; knows nothing of Qt.
"""

import json
from typing import Literal, TypedDict

from engine.protocol.places import resources_dir

Tone = Literal["dark", "light"]


class FontTokens(TypedDict):
    """Families in order of preference, and the type scale in px."""

    ui: list[str]
    uiZh: list[str]
    mono: list[str]
    size: dict[str, int]
    line: dict[str, int]
    weight: dict[str, int]


class Tokens(TypedDict):
    """The whole token file; `color` and `syntax` are keyed by tone, then by role."""

    color: dict[str, dict[str, str]]
    series: dict[str, dict[str, str]]
    syntax: dict[str, dict[str, str]]
    font: FontTokens
    space: dict[str, int]
    radius: dict[str, int]
    size: dict[str, int]
    motion: dict[str, int]


def _read() -> tuple[Tokens, dict[str, tuple[str, ...]], dict[str, tuple[float, ...]]]:
    """Return tokens, heat ramps by tone and dash patterns by series."""
    path = resources_dir() / "themes" / "tokens.json"
    raw = json.loads(path.read_text("utf-8"))
    series = {tone: dict(raw["series"][tone]) for tone in ("dark", "light")}
    heat = {tone: tuple(raw["series"]["heat"][tone]) for tone in ("dark", "light")}
    dash = {name: tuple(map(float, steps)) for name, steps in raw["series"]["dash"].items()}
    sizes = {name: value for name, value in raw["size"].items() if isinstance(value, int)}
    sizes["windowMinWidth"], sizes["windowMinHeight"] = raw["size"]["windowMin"]
    sizes["windowWidth"], sizes["windowHeight"] = raw["size"]["window"]
    motion = {name: value for name, value in raw["motion"].items() if isinstance(value, int)}
    tokens = Tokens(
        color=raw["color"],
        series=series,
        syntax=raw["syntax"],
        font=raw["font"],
        space=raw["space"],
        radius=raw["radius"],
        size=sizes,
        motion=motion,
    )
    return tokens, heat, dash


TOKENS, HEAT, DASH = _read()
SPACE, RADIUS, SIZE, MOTION = TOKENS["space"], TOKENS["radius"], TOKENS["size"], TOKENS["motion"]
