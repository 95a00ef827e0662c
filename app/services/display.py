"""Whether a window can be shown here, and if not, what is missing. Asked before Qt is started.

Qt itself ends the process without a usable sentence when its platform plugin cannot be loaded.
"""

import ctypes
import sys
from pathlib import Path

import PySide6

from app.services.settings import Environment
from app.wording import tr


def display_problem(environment: Environment) -> str:
    """Return "" if a window can be shown, else a sentence that names what is missing."""
    if sys.platform != "linux":
        return ""
    if not environment.has_display:
        problem = tr("No display was found: neither WAYLAND_DISPLAY nor DISPLAY is set.")
        if getattr(sys, "frozen", False):
            return problem  # there is no Python to name
        hint = tr("For a conversation in the terminal run: python -m engine.cli")
        return f"{problem} {hint}"
    if environment.needs_x11:
        return _x11_problem(Path(PySide6.__file__).parent / "Qt" / "plugins" / "platforms")
    return ""


def _x11_problem(plugins: Path) -> str:
    """Load Qt's X11 plugin as Qt would, to hear which library it lacks."""
    plugin = plugins / "libqxcb.so"
    if not plugin.exists():
        return ""
    try:
        ctypes.CDLL(str(plugin))
    except OSError as problem:
        # A frozen build wraps the linker's words in its own.
        library = str(problem.__cause__ or problem).partition(":")[0]
        return tr(
            "Qt cannot open a window: the system library {library} is missing. On Debian or Ubuntu "
            "install: sudo apt install libegl1 libgl1 libxkbcommon-x11-0 libxcb-cursor0 "
            "libxcb-icccm4 libxcb-image0 libxcb-keysyms1 libxcb-render-util0 libxcb-shape0 "
            "libxcb-xinerama0 libxcb-xkb1 libdbus-1-3 libfontconfig1",
            library=library,
        )
    return ""
