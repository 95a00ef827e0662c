"""What window and smoke run begin with: the Qt application, and the names of the pages."""

import os
import sys
from collections.abc import MutableMapping

from PySide6.QtGui import QIcon
from PySide6.QtWidgets import QApplication

from engine.protocol.places import resources_dir

PAGES = ("chat", "models", "performance", "profiler", "server", "logs", "settings")


def make_application(offscreen: bool) -> QApplication:
    """Make the Qt application; closing the window does not end it by itself."""
    if sys.platform == "linux":
        choose_input_methods(os.environ)
    platform = ["-platform", "offscreen"] if offscreen else []
    app = QApplication(["freetoken-desktop", *platform])
    app.setApplicationName("FreeToken Desktop")
    app.setDesktopFileName("freetoken-desktop")
    app.setWindowIcon(QIcon(str(resources_dir() / "icons" / "app" / "freetoken.svg")))
    app.setQuitOnLastWindowClosed(False)
    return app


def choose_input_methods(environ: MutableMapping[str, str]) -> None:
    """Name input methods that Qt may fall back to, behind the one that the desktop names.

    Qt's wheels know ibus and the compose key, but not fcitx, which most Chinese desktops name:
    without a second choice nothing could be typed but letters. Fcitx 5 answers as ibus too.
    """
    named = environ.get("QT_IM_MODULE", "")
    if named and "QT_IM_MODULES" not in environ:
        environ["QT_IM_MODULES"] = ";".join(dict.fromkeys((named, "ibus", "compose")))
