"""What window and smoke run begin with: the Qt application, and the names of the pages."""

from PySide6.QtGui import QIcon
from PySide6.QtWidgets import QApplication

from engine.protocol.places import resources_dir

PAGES = ("chat", "models", "performance", "profiler", "server", "logs", "settings")


def make_application(offscreen: bool) -> QApplication:
    """Make the Qt application; closing the window does not end it by itself."""
    platform = ["-platform", "offscreen"] if offscreen else []
    app = QApplication(["freetoken-desktop", *platform])
    app.setApplicationName("FreeToken Desktop")
    app.setDesktopFileName("freetoken-desktop")
    app.setWindowIcon(QIcon(str(resources_dir() / "icons" / "app" / "freetoken.svg")))
    app.setQuitOnLastWindowClosed(False)
    return app
