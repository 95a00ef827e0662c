"""Write pictures of the window: `python -m tests.app.pictures FOLDER [name part ...]`.

Every page of this area in dark and light, one in Chinese and at 200 %, small, zoomed, in trouble,
and a sheet of all basic parts. To be looked at by a person before each release.
"""

import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")

from PySide6.QtCore import QPoint
from PySide6.QtGui import QImage, QPainter, QRegion
from PySide6.QtWidgets import QApplication, QWidget

from app.theme import color, theme
from app.viewmodels.session_words import Problem
from app.views.help_dialog import HelpDialog
from app.widgets.look import use
from app.wording import tr
from tests.app.component_sheet import component_sheet
from tests.app.faces import Faces, make_faces

Look = tuple[str, float, str]  # tone, zoom, language
DARK: Look = ("dark", 1.0, "en")
LIGHT: Look = ("light", 1.0, "en")


def grab(widget: QWidget, ratio: int = 1) -> QImage:
    """Return a picture of a widget, `ratio` device px per px."""
    widget.show()
    for _ in range(4):
        QApplication.processEvents()
    image = QImage(widget.size() * ratio, QImage.Format.Format_RGB32)
    image.setDevicePixelRatio(ratio)
    image.fill(color("canvas"))
    p = QPainter(image)
    flags = QWidget.RenderFlag.DrawChildren | QWidget.RenderFlag.DrawWindowBackground
    widget.render(p, QPoint(), QRegion(), flags)
    p.end()
    return image


def page(name: str, change: Callable[[Faces], object] | None = None) -> Callable[[Path], QWidget]:
    """Return a builder of the window with a page in front."""

    def build(folder: Path) -> QWidget:
        faces = make_faces(folder)
        faces.window.show_page(name)
        if change is not None:
            change(faces)
        faces.session.changed.emit()
        faces.window.faces = faces
        return faces.window

    return build


def small(faces: Faces) -> None:
    """The least size of the window."""
    faces.window.resize(900, 600)


def trouble(faces: Faces) -> None:
    """The engine is gone."""
    faces.session.trouble = Problem(
        kind="stopped",
        sentence="The engine stopped because of a device error.",
        hint="Try a smaller expert cache; if the device stays away, restart the computer.",
        last_log="cache.resize asked 2.1 GiB, freed 0.8 GiB, then: out of memory",
        can_restart=True,
        can_shrink=True,
    )
    faces.session.status, faces.session.can_stop = None, False


def notes(faces: Faces) -> None:
    """Two toasts."""
    faces.window.show()
    faces.window.toast(tr("Give back {size}", size="8.4 GiB"), "ok", tr("Open log"), lambda: None)
    faces.window.toast(tr("Nothing here yet."), "warn")


def section(key: str) -> Callable[[Faces], object]:
    """A section of the settings."""
    return lambda faces: faces.window.pages["settings"].open_section(key)


SHOTS: dict[str, tuple[Look, int, Callable[[Path], QWidget]]] = {
    "settings-dark": (DARK, 1, page("settings")),
    "settings-light": (LIGHT, 1, page("settings")),
    "settings-zh": (("dark", 1.0, "zh_CN"), 1, page("settings")),
    "settings-engine-900x600": (
        DARK,
        1,
        page("settings", lambda f: (small(f), section("engine")(f))),
    ),
    "settings-shortcuts": (LIGHT, 1, page("settings", section("shortcuts"))),
    "settings-about": (DARK, 1, page("settings", section("about"))),
    "settings-pseudo-160": (("light", 1.6, "pseudo"), 1, page("settings")),
    "logs-dark": (DARK, 1, page("logs")),
    "logs-light": (LIGHT, 1, page("logs")),
    "logs-dark@2x": (DARK, 2, page("logs")),
    "logs-pseudo-900x600": (("dark", 1.0, "pseudo"), 1, page("logs", small)),
    "server-dark": (DARK, 1, page("server")),
    "server-zh": (("light", 1.0, "zh_CN"), 1, page("server")),
    "server-900x600": (DARK, 1, page("server", small)),
    "trouble-dark": (DARK, 1, page("logs", trouble)),
    "notes-light": (LIGHT, 1, page("chat", notes)),
    "components-dark": (DARK, 1, lambda _: component_sheet()),
    "components-light": (LIGHT, 1, lambda _: component_sheet()),
    "components-pseudo-130": (("dark", 1.3, "pseudo"), 1, lambda _: component_sheet()),
    "help-dark": (DARK, 1, lambda _: HelpDialog()),
}


def main(arguments: list[str]) -> None:
    """Write the pictures whose names contain one of the parts, or all."""
    app = QApplication.instance() or QApplication(sys.argv[:1])
    folder = Path(arguments[0])
    folder.mkdir(parents=True, exist_ok=True)
    theme()
    for name, (look, ratio, build) in SHOTS.items():
        if arguments[1:] and not any(part in name for part in arguments[1:]):
            continue
        use(*look)
        with tempfile.TemporaryDirectory() as home:
            widget = build(Path(home))
            grab(widget, ratio).save(str(folder / f"{name}.png"))
            widget.close()
            widget.deleteLater()
            app.processEvents()


if __name__ == "__main__":
    main(sys.argv[1:])
