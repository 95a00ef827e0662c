"""The live look of the window: tone, zoom, language of the fonts, motion.

`Theme` is a child of the QApplication, reached through `theme()`. Widgets connect to
`theme().changed` and take every colour and size from the functions here, so that tone, zoom and
language switch at run time. Knows no widget and no words.
"""

from collections.abc import Callable
from typing import Literal
from weakref import ref

from PySide6.QtCore import QObject, Qt, Signal
from PySide6.QtGui import QColor, QFont, QFontDatabase, QGuiApplication, QPalette
from PySide6.QtWidgets import QApplication, QWidget
from shiboken6 import isValid

from app.theme.sheet import style_sheet
from app.theme.tokens import HEAT, MOTION, TOKENS, Tone
from engine.protocol.places import resources_dir

Mode = Literal["system", "dark", "light"]
MODES: tuple[Mode, ...] = ("system", "dark", "light")
ZOOM_MIN, ZOOM_MAX, ZOOM_STEP = 0.8, 1.6, 0.1
_PROPERTY = "freetokenTheme"


class Theme(QObject):
    """What the person chose, and what follows from it.

    Signals:
        changed: tone, zoom, language or motion is another now; repaint and measure again.
    """

    changed = Signal()

    def __init__(self, app: QApplication) -> None:
        super().__init__(app)
        self._app = app
        self.mode: Mode = "system"
        self.zoom = 1.0
        self.language = "en"
        self.reduced_motion = False
        self.renderers: dict[tuple[str, str, float], QObject] = {}  # icons, by name, ink, width
        self._fonts: dict[tuple[int, int, bool], QFont] = {}
        self._dressed: list[ref[QWidget]] = []
        self._sheet = ""
        for path in sorted((resources_dir() / "fonts").glob("*.[ot]tf")):
            QFontDatabase.addApplicationFont(str(path))
        app.setStyle("Fusion")
        app.styleHints().colorSchemeChanged.connect(self._follow_system)
        self._apply()

    @property
    def tone(self) -> Tone:
        """The tone on screen now. An unknown system tone counts as dark."""
        if self.mode != "system":
            return self.mode
        scheme = QGuiApplication.styleHints().colorScheme()
        return "light" if scheme == Qt.ColorScheme.Light else "dark"

    def use(
        self,
        mode: Mode | None = None,
        zoom: float | None = None,
        language: str | None = None,
        reduced_motion: bool | None = None,
    ) -> None:
        """Take new choices; None keeps one. Emits `changed` once if anything differs."""
        before = (self.mode, self.zoom, self.language, self.reduced_motion)
        self.mode = self.mode if mode is None else mode
        if zoom is not None:
            self.zoom = round(min(max(zoom, ZOOM_MIN), ZOOM_MAX), 2)
        self.language = self.language if language is None else language
        if reduced_motion is not None:
            self.reduced_motion = reduced_motion
        if before != (self.mode, self.zoom, self.language, self.reduced_motion):
            if self.mode != before[0]:
                self._tell_system()
            self._apply()
            self.changed.emit()

    def dress(self, window: QWidget) -> None:
        """Give a top-level window the style sheet, kept in step; its parts and dialogs inherit it.

        The application has none: Qt would polish whatever is put into a layout once more at each
        step of building, and a page would take twice as long to build [M].
        """
        if not any(known() is window for known in self._dressed):
            self._dressed.append(ref(window))
            window.setStyleSheet(self._sheet)

    def _dress_all(self) -> None:
        self._sheet = style_sheet(lambda role: _value(role, self.tone), self.zoom)
        windows = [window for known in self._dressed if (window := known()) and isValid(window)]
        self._dressed = [ref(window) for window in windows]
        for window in windows:
            window.setStyleSheet(self._sheet)

    def font(self, pixels: int, weight: int, mono: bool) -> QFont:
        """Return the font for a size in px at 100 %; copies are cheap, do not change it."""
        key = (pixels, weight, mono)
        if key not in self._fonts:
            self._fonts[key] = self._make_font(*key)
        return self._fonts[key]

    def _make_font(self, pixels: int, weight: int, mono: bool) -> QFont:
        families = TOKENS["font"]["mono"]
        if not mono:
            families = TOKENS["font"]["uiZh" if self.language.startswith("zh") else "ui"]
        font = QFont(families)
        font.setPixelSize(pixels)
        if self.language.startswith("zh") and weight == 500:
            weight = 400  # common CJK families have no medium: it would turn into bold
        font.setWeight(QFont.Weight(weight))
        font.setHintingPreference(QFont.HintingPreference.PreferNoHinting)
        if mono:
            font.setStyleHint(QFont.StyleHint.Monospace)
            font.setFeature(QFont.Tag("calt"), 0)
        else:
            font.setFeature(QFont.Tag("tnum"), 1)
        return font

    def _tell_system(self) -> None:
        """Ask for title bars and file dialogs of the same tone, as Windows and macOS can."""
        schemes = {"dark": Qt.ColorScheme.Dark, "light": Qt.ColorScheme.Light}
        scheme = schemes.get(self.mode, Qt.ColorScheme.Unknown)  # that of the system again
        QGuiApplication.styleHints().setColorScheme(scheme)

    def _follow_system(self) -> None:
        if self.mode == "system":
            self._apply()
            self.changed.emit()

    def _apply(self) -> None:
        """Give Qt's own parts (menus, tool tips, scroll bars, selections) the same look."""
        self._fonts.clear()
        self.renderers.clear()
        # A widget that is polished only after a change of sheet gets its font of before back [M].
        for widget in QApplication.allWidgets():
            widget.ensurePolished()
        self._app.setPalette(_palette(self.tone))
        self._app.setFont(self.font(round(TOKENS["font"]["size"]["body"] * self.zoom), 400, False))
        self._dress_all()


def theme() -> Theme:
    """Return the application's theme, made at the first call.

    Raises:
        RuntimeError: there is no QApplication yet.
    """
    app = QApplication.instance()
    if not isinstance(app, QApplication):
        raise RuntimeError("The theme needs a QApplication.")
    found = app.property(_PROPERTY)
    if not isinstance(found, Theme):
        found = Theme(app)
        app.setProperty(_PROPERTY, found)
    return found


def follow(update: Callable[[], object]) -> None:
    """Call `update` (a method of a QObject) now and after each change of look or language."""
    theme().changed.connect(update)
    update()


def is_dark() -> bool:
    """Whether the dark tone is on screen."""
    return theme().tone == "dark"


def color(role: str, alpha: float | None = None) -> QColor:
    """Return the colour of a role ("text2", "surface") or series ("kv", "hit") in this tone.

    Raises:
        KeyError: no such role.
    """
    value = QColor(_value(role, theme().tone))
    if alpha is not None:
        value.setAlphaF(alpha)
    return value


def heat_stops() -> tuple[QColor, ...]:
    """Return the five colours of the heat ramp, "no hits" first."""
    return tuple(QColor(stop) for stop in HEAT[theme().tone])


def syntax(kind: str) -> QColor:
    """Return the colour of a kind of code token: keyword, string, number, comment, ..."""
    return QColor(TOKENS["syntax"][theme().tone][kind])


def px(value: float) -> int:
    """Return a length of the design in screen px at the present zoom."""
    return round(value * theme().zoom)


def font(size: str | int = "body", weight: int = 400, mono: bool = False) -> QFont:
    """Return the zoomed font of a step of the type scale, for `setFont`."""
    return QFont(theme().font(px(base_size(size)), weight, mono))


def base_font(size: str | int = "body", weight: int = 400, mono: bool = False) -> QFont:
    """Return the font at 100 %, for a painter that is scaled by the zoom (`painting.painter`)."""
    return theme().font(base_size(size), weight, mono)


def base_size(size: str | int) -> int:
    """Return a step of the type scale in px at 100 %; a number is taken as it is."""
    return TOKENS["font"]["size"][size] if isinstance(size, str) else size


def line_height(size: str) -> int:
    """Return the line height of a step of the type scale, in px at 100 %."""
    return TOKENS["font"]["line"][size]


def duration(name: str) -> int:
    """Return a motion time in ms ("fast", "base", "slow"); 0 with reduced motion."""
    return 0 if theme().reduced_motion else MOTION[name]


def _value(role: str, tone: Tone) -> str:
    """Return "#RRGGBB" or "#AARRGGBB" (Qt's order; the tokens have alpha last)."""
    colors, series = TOKENS["color"][tone], TOKENS["series"][tone]
    value = colors[role] if role in colors else series[role]
    return f"#{value[7:]}{value[1:7]}" if len(value) == 9 else value


def _palette(tone: Tone) -> QPalette:
    roles = QPalette.ColorRole
    pairs = {
        roles.Window: "canvas",
        roles.Base: "surface",
        roles.AlternateBase: "raised",
        roles.Button: "raised",
        roles.WindowText: "text",
        roles.Text: "text",
        roles.ButtonText: "text",
        roles.BrightText: "text",
        roles.PlaceholderText: "text3",
        roles.Highlight: "accent",
        roles.HighlightedText: "accentInk",
        roles.ToolTipBase: "tooltip",
        roles.ToolTipText: "onTooltip",
        roles.Link: "link",
        roles.LinkVisited: "link",
        roles.Accent: "accent",
    }
    palette = QPalette()
    for role, name in pairs.items():
        palette.setColor(role, QColor(_value(name, tone)))
    for role in (roles.WindowText, roles.Text, roles.ButtonText):
        palette.setColor(QPalette.ColorGroup.Disabled, role, QColor(_value("text3", tone)))
    return palette
