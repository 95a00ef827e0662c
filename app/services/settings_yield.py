"""The settings of auto-yield: types with range, label and help, as `settings_schema` shows them."""

from typing import Annotated

from msgspec import Meta

from app.wording import tr

_SECTION = {"section": "yield"}

AutoYield = Annotated[
    bool,
    Meta(
        extra=_SECTION
        | {
            "label": tr("Auto-yield"),
            "help": tr("Give device memory to other programs by itself, and take it back later"),
        }
    ),
]
FloorGib = Annotated[
    float,
    Meta(
        ge=0,
        le=1024,
        extra=_SECTION
        | {
            "label": tr("Floor"),
            "help": tr("Free device memory that stays for others; with less, experts are given up"),
            "step": 0.5,
            "unit": "GiB",
        },
    ),
]
ReturnSeconds = Annotated[
    int,
    Meta(
        ge=0,
        le=3600,
        extra=_SECTION
        | {
            "label": tr("Return after"),
            "help": tr("How long it must be calm before memory is taken back"),
            "step": 5,
            "unit": "s",
        },
    ),
]
LeastShare = Annotated[
    float,
    Meta(
        ge=0,
        le=1,
        extra=_SECTION
        | {
            "label": tr("Keep at least"),
            "help": tr("Part of the experts that is never given up"),
            "step": 0.05,
            "scale": 100,
            "unit": "%",
        },
    ),
]
ToFullScreen = Annotated[
    bool,
    Meta(
        extra=_SECTION
        | {
            "label": tr("Yield to full-screen apps"),
            "help": tr("On a GPU, where the desktop tells: Windows, X11 and games under XWayland"),
        }
    ),
]
ToPrograms = Annotated[
    str,
    Meta(
        extra=_SECTION
        | {
            "label": tr("Yield to programs"),
            "help": tr("Names with commas between them, such as game.exe, blender"),
        }
    ),
]
