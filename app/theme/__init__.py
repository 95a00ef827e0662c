"""Colours, type, space and motion as tokens; the only place with such literals.

`theme()` is the live look (tone, zoom, language of the fonts, reduced motion) with the signal
`changed`; `color(role)`, `font(size, weight, mono)` and `px(n)` read it. `follow(update)` calls a
method now and after each change. Painted widgets take `painter(self)` and `area(self)` and then
work in px at 100 %; see `app.theme.painting`.
"""

from app.theme.look import (
    MODES,
    ZOOM_MAX,
    ZOOM_MIN,
    ZOOM_STEP,
    Mode,
    Theme,
    base_font,
    color,
    duration,
    follow,
    font,
    heat_stops,
    is_dark,
    line_height,
    px,
    syntax,
    theme,
)
from app.theme.painting import (
    CENTER,
    LEFT,
    RIGHT,
    area,
    base_point,
    draw_ring,
    draw_text,
    elided,
    painter,
    pen,
    text_width,
)
from app.theme.tokens import DASH, HEAT, MOTION, RADIUS, SIZE, SPACE, TOKENS, Tone

__all__ = [
    "CENTER",
    "DASH",
    "HEAT",
    "LEFT",
    "MODES",
    "MOTION",
    "RADIUS",
    "RIGHT",
    "SIZE",
    "SPACE",
    "TOKENS",
    "ZOOM_MAX",
    "ZOOM_MIN",
    "ZOOM_STEP",
    "Mode",
    "Theme",
    "Tone",
    "area",
    "base_font",
    "base_point",
    "color",
    "draw_ring",
    "draw_text",
    "duration",
    "elided",
    "follow",
    "font",
    "heat_stops",
    "is_dark",
    "line_height",
    "painter",
    "pen",
    "px",
    "syntax",
    "text_width",
    "theme",
]
