"""The live look."""

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QFontDatabase, QFontInfo, QPalette
from pytestqt.qtbot import QtBot

from app.theme import ZOOM_MAX, ZOOM_MIN, color, duration, follow, font, px, theme
from app.widgets.labels import Label
from app.widgets.look import use
from app.wording import tr

pytestmark = pytest.mark.usefixtures("looks")


def test_use_when_several_things_change_then_changed_comes_once(qtbot: QtBot) -> None:
    """Widgets repaint once, with words, fonts and colours all new."""
    seen: list[str] = []
    theme().changed.connect(lambda: seen.append(tr("Chat") + color("text").name()))
    use("light", 1.2, "zh_CN")
    assert seen == ["对话#14181b"]


def test_use_when_nothing_differs_then_nobody_is_told(qtbot: QtBot) -> None:
    """The settings file is read again without a flicker."""
    with qtbot.assertNotEmitted(theme().changed):
        use("dark", 1.0, "en", reduced_motion=True)


def test_zoom_outside_its_range_then_it_is_held(qtbot: QtBot) -> None:
    """Ctrl + pressed ten times stops at 160 % (case G-15)."""
    use(zoom=9)
    assert theme().zoom == ZOOM_MAX
    assert px(10) == 16
    use(zoom=0.1)
    assert theme().zoom == ZOOM_MIN


def test_zoom_then_fonts_and_palette_follow(qtbot: QtBot) -> None:
    """Qt's own parts take size and ink from the same tokens (case G-17)."""
    use("light", 1.5)
    assert font("body").pixelSize() == 20
    palette = theme().parent().palette()
    assert palette.color(QPalette.ColorRole.Text) == color("text")
    assert palette.color(QPalette.ColorRole.Window) == color("canvas")


def test_reduced_motion_then_durations_are_zero(qtbot: QtBot) -> None:
    """Nothing glides for those who asked for that."""
    assert duration("base") == 0
    use(reduced_motion=False)
    assert duration("base") == 160


def test_fonts_then_the_shipped_families_are_used(qtbot: QtBot) -> None:
    """Inter and JetBrains Mono come with the program."""
    theme()
    assert {"Inter", "JetBrains Mono"} <= set(QFontDatabase.families())
    assert QFontInfo(font("body", 600)).family() == "Inter"
    assert QFontInfo(font("meta", mono=True)).family() == "JetBrains Mono"


def test_chinese_then_medium_becomes_regular(qtbot: QtBot) -> None:
    """Common CJK families have no medium: it would turn into bold."""
    use(language_code="zh_CN")
    assert font("body", 500).weight() == 400
    assert font("body", 600).weight() == 600


def test_unknown_system_tone_then_dark(qtbot: QtBot) -> None:
    """Bare platforms do not say which tone they use."""
    use("system")
    assert theme().tone in ("dark", "light")
    assert color("text") == color("text")


def test_tone_when_chosen_then_the_system_is_told(qtbot: QtBot, monkeypatch) -> None:
    """Case G-17: title bars and file dialogs are the system's; a change of zoom tells nothing."""
    told = []

    class Hints:
        def setColorScheme(self, scheme) -> None:
            told.append(scheme.name)

        def colorScheme(self):
            return Qt.ColorScheme.Unknown

    monkeypatch.setattr("app.theme.look.QGuiApplication.styleHints", Hints)
    use("light")
    use(zoom=1.2)
    use("system")
    use("dark")
    assert told == ["Light", "Unknown", "Dark"]


def test_follow_when_widget_is_gone_then_a_change_is_harmless(qtbot: QtBot) -> None:
    """A connection ends with its widget."""
    label = Label(tr("Chat"))
    follow(label.retheme)
    label.deleteLater()
    del label
    qtbot.wait(1)
    use("light")


def test_color_with_alpha_token_then_alpha_is_kept(qtbot: QtBot) -> None:
    """The tokens write alpha last, Qt first."""
    assert color("scrim").alpha() == 0xA0
    assert color("text", 0.5).alpha() == 128
