"""Every ink on every ground it may stand on, from the tokens (cases G-15, G-17)."""

import itertools

import pytest

from app.theme.tokens import TOKENS
from tests.app.theme.colour_math import CVD, contrast, distance

TONES = ("dark", "light")
INKS = ("text", "text2", "text3", "accentText", "warn", "danger", "link")
GROUNDS = ("rail", "canvas", "surface", "raised", "overlay", "selected")
PAIRS = (
    ("accentInk", "accent"),
    ("accentInk", "accentHover"),
    ("dangerInk", "dangerFill"),
    ("accentText", "accentSoft"),
    ("warn", "warnSoft"),
    ("danger", "dangerSoft"),
    ("text", "warnSoft"),
    ("text", "dangerSoft"),
    ("text2", "code"),
    ("text3", "code"),
    ("text3", "hover"),
    ("onTooltip", "tooltip"),
    ("text", "segment"),
)


@pytest.mark.parametrize("tone", TONES)
def test_text_on_any_ground_then_contrast_is_at_least_4_5(tone: str) -> None:
    """Disabled text (text3) included."""
    colors = TOKENS["color"][tone]
    for ink, ground in itertools.chain(itertools.product(INKS, GROUNDS), PAIRS):
        assert contrast(colors[ink], colors[ground]) >= 4.5, (ink, ground)


@pytest.mark.parametrize("tone", TONES)
def test_text_inside_bars_and_code_then_contrast_is_at_least_4_5(tone: str) -> None:
    """Words drawn on a series, and every colour of the highlighter."""
    colors, series = TOKENS["color"][tone], TOKENS["series"][tone]
    assert contrast(colors["onWeights"], series["weights"]) >= 4.5
    assert contrast(colors["onExperts"], series["experts"]) >= 4.5
    for kind, value in TOKENS["syntax"][tone].items():
        assert contrast(value, colors["code"]) >= 4.5, kind


@pytest.mark.parametrize("tone", TONES)
def test_controls_and_series_then_contrast_is_at_least_3(tone: str) -> None:
    """Outlines, accent, focus ring, and each line of a chart on a card."""
    colors, series = TOKENS["color"][tone], TOKENS["series"][tone]
    for role, ground in itertools.product(
        ("control", "accent", "focus"), ("canvas", "surface", "raised")
    ):
        assert contrast(colors[role], colors[ground]) >= 3.0, (role, ground)
    for name, value in series.items():
        if name != "free":  # hollow: its outline is `control`
            assert contrast(value, colors["surface"]) >= 3.0, name


@pytest.mark.parametrize("tone", TONES)
@pytest.mark.parametrize("vision", ["", *CVD])
def test_series_seen_with_any_colour_vision_then_they_differ(tone: str, vision: str) -> None:
    """Least distance 6: below 10 the gap, label or dash of a series decides."""
    series = TOKENS["series"][tone]
    for group in (("weights", "kv", "experts", "other"), ("hit", "fill", "cpu")):
        for a, b in itertools.combinations(group, 2):
            assert distance(series[a], series[b], vision) >= 6.0, (a, b)


def test_tones_then_they_have_the_same_roles() -> None:
    """A role that only one tone knows would fail at the first switch."""
    for part in ("color", "series", "syntax"):
        assert TOKENS[part]["dark"].keys() == TOKENS[part]["light"].keys()
