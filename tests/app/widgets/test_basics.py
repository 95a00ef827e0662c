"""The basic parts: real controls underneath, words that follow the language, keys that work."""

import pytest
from PySide6.QtCore import QPoint, QPointF, Qt
from PySide6.QtGui import QAccessible, QKeyEvent, QWheelEvent
from PySide6.QtWidgets import QApplication, QSizePolicy, QWidget
from pytestqt.qtbot import QtBot

from app.theme import px
from app.widgets.bars import Bar
from app.widgets.buttons import Button, Segmented, Toggle
from app.widgets.chips import STATES, Chip, StatePill
from app.widgets.dialogs import ask
from app.widgets.inputs import Combo, Field, LineField, Slider
from app.widgets.labels import Elide, Icon, Label
from app.widgets.layout import fixed, hbox, holder, vbox
from app.widgets.look import use
from app.widgets.toasts import MAX_TOASTS, Toasts
from app.wording import tr
from tests.app.component_sheet import component_sheet
from tests.app.walk import clipped, controls, described, overlaps, settle, spoken_name

pytestmark = pytest.mark.usefixtures("looks")


def shown(qtbot: QtBot, widget: QWidget) -> QWidget:
    """Show a widget and let it come to rest."""
    qtbot.addWidget(widget)
    widget.show()
    settle()
    return widget


@pytest.mark.parametrize(
    ("widget", "role"),
    [
        (lambda: Button(tr("Stop")), QAccessible.Role.Button),
        (lambda: Toggle(True, tr("Follow")), QAccessible.Role.CheckBox),
        (lambda: Field(4, "GiB", name=tr("Free")), QAccessible.Role.SpinBox),
        (lambda: Combo((tr("Dark"),), name=tr("Appearance")), QAccessible.Role.ComboBox),
        (lambda: Slider(0.5, tr("Zoom")), QAccessible.Role.Slider),
        (lambda: LineField(tr("Search")), QAccessible.Role.EditableText),
        (lambda: StatePill("ready"), QAccessible.Role.Button),
    ],
)
def test_control_then_assistive_tools_see_its_kind_and_name(qtbot: QtBot, widget, role) -> None:
    """Painted looks, real controls (G-15's readers use tools)."""
    control = shown(qtbot, widget())
    face = QAccessible.queryAccessibleInterface(control)
    assert face.role() == role
    assert spoken_name(control)


def test_every_control_of_the_sheet_then_it_has_a_name(qtbot: QtBot) -> None:
    """Nothing on the sheet is silent."""
    sheet = shown(qtbot, component_sheet())
    assert not [described(w) for w in controls(sheet) if not spoken_name(w)]


def test_texts_when_language_changes_then_they_are_said_anew(qtbot: QtBot) -> None:
    """No widget keeps the former language."""
    parts = {
        "label": Label(tr("Ready")),
        "line": Elide(tr("Ready")),
        "button": Button(tr("Ready")),
        "item": Combo((tr("Ready"),)),
        "data": Label("Ready"),
    }
    chip, field = Chip(tr("Ready")), LineField(tr("Search"))
    row = shown(qtbot, holder(hbox(*parts.values(), chip, field)))
    use(language_code="zh_CN")
    assert row.isVisible()
    texts = {k: w.currentText() if k == "item" else w.text() for k, w in parts.items()}
    assert texts == dict.fromkeys(("label", "line", "button", "item"), "就绪") | {"data": "Ready"}
    assert (chip.text, field.placeholderText()) == ("就绪", "搜索")


def test_sheet_when_pseudo_and_zoomed_then_nothing_is_cut(qtbot: QtBot) -> None:
    """Words 30 % longer, everything at 160 %."""
    sheet = shown(qtbot, component_sheet())
    use("light", 1.6, "pseudo")
    sheet.adjustSize()
    settle()
    assert not clipped(sheet)
    assert not overlaps(sheet)


def test_field_typed_then_one_signal_with_the_value(qtbot: QtBot) -> None:
    """Not one per key: a resize must not start at the first digit."""
    field = shown(qtbot, Field(226, "GiB", high=5000, name=tr("Free")))
    field.lineEdit().selectAll()
    seen: list[float] = []
    field.valueChanged.connect(seen.append)
    qtbot.keyClicks(field, "1176")
    assert seen == []
    qtbot.keyClick(field, Qt.Key.Key_Return)
    assert seen == [1176.0]
    assert field.text() == "1,176"


def test_field_show_value_while_typing_then_the_text_stays(qtbot: QtBot) -> None:
    """A status frame does not overwrite what is being typed."""
    field = shown(qtbot, Field(10, name=tr("Free")))
    qtbot.addWidget(field)
    field.activateWindow()
    field.setFocus()
    field.lineEdit().selectAll()
    qtbot.keyClicks(field, "3")
    field.show_value(99)
    assert field.lineEdit().text() == "3" or not field.hasFocus()
    with qtbot.assertNotEmitted(field.valueChanged):
        Field(5).show_value(7)


def test_wheel_without_focus_then_values_stay(qtbot: QtBot) -> None:
    """A page is scrolled past its fields."""
    parts = Field(5), Combo(("a", "b")), Slider(0.5)
    for part in parts:
        shown(qtbot, part)
        part.clearFocus()
        wheel = QWheelEvent(
            QPointF(5, 5), QPointF(5, 5), QPoint(0, 120), QPoint(0, 120),
            Qt.MouseButton.NoButton, Qt.KeyboardModifier.NoModifier,
            Qt.ScrollPhase.NoScrollPhase, False,
        )  # fmt: skip
        QApplication.sendEvent(part, wheel)
    assert (parts[0].value(), parts[1].currentIndex(), parts[2].number) == (5, 0, 0.5)


def test_segmented_when_clicked_then_picked_comes_once(qtbot: QtBot) -> None:
    """And not when it is set by the program."""
    choice = shown(qtbot, Segmented((tr("All"), tr("App"), tr("Engine")), name=tr("Source")))
    with qtbot.assertNotEmitted(choice.picked):
        choice.set_current(2)
    with qtbot.waitSignal(choice.picked) as seen:
        qtbot.mouseClick(choice.segments[1], Qt.MouseButton.LeftButton)
    assert seen.args == [1]
    assert choice.current == 1


def test_segmented_when_arrow_key_then_the_next_is_picked(qtbot: QtBot) -> None:
    """A full keyboard path."""
    choice = shown(qtbot, Segmented((tr("All"), tr("App")), name=tr("Source")))
    choice.segments[0].setFocus()
    qtbot.keyClick(choice.segments[0], Qt.Key.Key_Right)
    assert choice.current == 1


def test_toggle_when_space_then_it_switches(qtbot: QtBot) -> None:
    """By mouse on the track, by key with the focus."""
    toggle = shown(qtbot, Toggle(False, tr("Follow")))
    qtbot.mouseClick(toggle, Qt.MouseButton.LeftButton, pos=QPoint(2, 10))
    assert toggle.isChecked()
    qtbot.keyClick(toggle, Qt.Key.Key_Space)
    assert not toggle.isChecked()
    with qtbot.assertNotEmitted(toggle.toggled):
        toggle.show_on(True)


def test_focus_ring_then_it_is_for_the_keyboard_only(qtbot: QtBot) -> None:
    """A click does not draw a ring around a button."""
    button = shown(qtbot, Button(tr("Stop")))
    for reason, ring in (
        (Qt.FocusReason.MouseFocusReason, False),
        (Qt.FocusReason.TabFocusReason, True),
        (Qt.FocusReason.ShortcutFocusReason, True),
    ):
        button.clearFocus()
        button.setFocus(reason)
        assert button.ring is ring


def test_line_field_when_esc_then_text_goes_first(qtbot: QtBot) -> None:
    """Only on an empty field does Esc reach the window."""
    field = shown(qtbot, LineField(tr("Search")))
    qtbot.keyClicks(field, "abc")
    qtbot.keyClick(field, Qt.Key.Key_Escape)
    assert field.text() == ""
    event = QKeyEvent(QKeyEvent.Type.KeyPress, Qt.Key.Key_Escape, Qt.KeyboardModifier.NoModifier)
    QApplication.sendEvent(field, event)
    assert not event.isAccepted()


def test_search_field_when_its_cross_is_clicked_then_it_is_empty(qtbot: QtBot) -> None:
    """Without a text there is no cross, and a field for anything else has none."""
    search, plain = LineField(tr("Search"), "search", 200), LineField("", "", 200)
    row = shown(qtbot, holder(vbox(search, plain)))
    assert row.isVisible()
    end = QPoint(search.width() - px(14), search.height() // 2)
    for field, left in ((search, ""), (plain, "words")):
        field.setText("words")
        qtbot.mouseClick(field, Qt.MouseButton.LeftButton, pos=QPoint(60, 14))
        assert field.text() == "words"
        qtbot.mouseClick(field, Qt.MouseButton.LeftButton, pos=end)
        assert field.text() == left
        assert field.hasFocus()


def test_slider_then_number_and_steps_agree(qtbot: QtBot) -> None:
    """Steps of 0.05 between 0 and 2."""
    slider = shown(qtbot, Slider(0.7, tr("Zoom"), 0, 2, 0.05))
    assert slider.number == pytest.approx(0.7)
    with qtbot.waitSignal(slider.moved) as seen:
        qtbot.keyClick(slider, Qt.Key.Key_Right)
    assert seen.args == [pytest.approx(0.75)]


def test_combo_set_items_then_no_signal(qtbot: QtBot) -> None:
    """New items are no choice of the person."""
    combo = shown(qtbot, Combo(("a", "b"), 1))
    with qtbot.assertNotEmitted(combo.currentIndexChanged):
        combo.set_items(("c", "d", "e"), 2)
    assert combo.currentText() == "e"


def test_pill_then_every_state_has_a_shape_and_words(qtbot: QtBot) -> None:
    """State is word + shape + place."""
    pill = shown(qtbot, StatePill())
    pictures = set()
    for state in STATES:
        pill.set_state(state, "same words")
        pictures.add(bytes(pill.grab().toImage().bits()))
        pill.set_state(state)
        assert pill.text()
        assert pill.text() in pill.accessibleName()
    assert len(pictures) >= len(STATES) - 2  # loading = moving, ready differs from generating


def test_icon_when_unknown_then_it_says_which(qtbot: QtBot) -> None:
    """A wrong name is found at the first paint, by the test of that page."""
    from app.widgets import icons

    with pytest.raises(FileNotFoundError, match="no-such"):
        icons.icon("no-such")


def test_elide_when_cut_then_the_whole_is_a_tool_tip(qtbot: QtBot) -> None:
    """And none where everything can be read."""
    line = shown(qtbot, Elide("a long line of words that does not fit into so little room"))
    line.resize(60, line.height())
    settle()
    assert line.toolTip() == line.text()
    line.resize(900, line.height())
    settle()
    assert line.toolTip() == ""


def test_elide_when_its_words_are_short_then_no_wider_than_they_are(qtbot: QtBot) -> None:
    """One Chinese character before a time leaves no hole."""
    line = Elide("你", "meta")
    line.setSizePolicy(QSizePolicy.Policy.Maximum, QSizePolicy.Policy.Fixed)
    row = shown(qtbot, holder(hbox(line, Label("19:23", "caption"), None)))
    assert row.isVisible()
    assert line.width() == line.sizeHint().width() < px(24)


def test_zoom_then_fixed_sizes_and_gaps_follow(qtbot: QtBot) -> None:
    """Every length of a design is px at 100 %."""
    box = fixed(QWidget(), width=100, min_height=40)
    row = shown(qtbot, holder(hbox(box, 10, Icon("chat"), gap=8, pad=(4, 4, 4, 4))))
    use(zoom=1.5)
    assert (box.width(), box.minimumHeight(), px(8)) == (150, 60, 12)
    assert row.layout().spacing() == 12
    assert row.layout().contentsMargins().left() == 6


def test_row_when_only_an_alignment_is_given_then_it_is_no_stretch(qtbot: QtBot) -> None:
    """Alignment flags are ints: one taken for a stretch gave an icon most of the row."""
    top = Qt.AlignmentFlag.AlignTop
    icon, words, last = Icon("chat"), Label(tr("Close")), Icon("x")
    row = hbox((icon, top), (words, 3), (last, 0, top), None)
    assert [row.stretch(i) for i in range(4)] == [0, 3, 0, 1]
    assert [row.itemAt(i).alignment() for i in (0, 2)] == [top, top]


def test_toasts_when_the_same_is_said_again_then_once(qtbot: QtBot) -> None:
    """A field that is turned ten times does not fill the corner."""
    host = shown(qtbot, QWidget())
    toasts = Toasts(host)
    for _ in range(3):
        toasts.show(tr("Saved automatically"))
    assert len(toasts.shown) == 1


def test_toasts_when_host_goes_while_events_come_then_nothing_is_missed(qtbot: QtBot) -> None:
    """The filter outlives its own attributes at the end of the host."""
    host = shown(qtbot, QWidget())
    toasts = Toasts(host)
    toasts.__dict__.clear()  # as the collector does it
    host.move(10, 10)
    host.hide()
    settle()


def test_toasts_then_at_most_two_and_each_can_be_closed(qtbot: QtBot) -> None:
    """The oldest makes room; the place follows the host."""
    host = shown(qtbot, QWidget())
    host.resize(600, 400)
    toasts = Toasts(host)
    for words in (tr("Saved automatically"), tr("Close"), tr("Stop")):
        toasts.show(words)
    assert len(toasts.shown) == MAX_TOASTS
    host.resize(500, 300)
    settle()
    assert all(host.rect().contains(toast.geometry()) for toast in toasts.shown)
    toasts.shown[0].close()
    assert len(toasts.shown) == 1


def test_question_then_the_safe_answer_is_the_default(qtbot: QtBot) -> None:
    """Enter never deletes anything."""
    host = shown(qtbot, QWidget())
    done: list[bool] = []
    dialog = ask(
        host, tr("Stop"), tr("Stopped"), tr("Close"), tr("Stop"), lambda: done.append(True)
    )
    assert dialog.safe.isDefault()
    qtbot.keyClick(dialog, Qt.Key.Key_Return)
    assert not dialog.isVisible()
    assert not done
    dialog = ask(
        host, tr("Stop"), tr("Stopped"), tr("Close"), tr("Stop"), lambda: done.append(True)
    )
    qtbot.mouseClick(dialog.act, Qt.MouseButton.LeftButton)
    assert done


def test_bar_then_shares_are_drawn_in_their_colours(qtbot: QtBot) -> None:
    """Half of the bar is the one series, a quarter the other."""
    from app.theme import color

    bar = shown(qtbot, Bar([("kv", 0.5), ("experts", 0.25)], 8, 100, name=tr("VRAM")))
    image = bar.grab().toImage()
    places = {25: "kv", 60: "experts", 90: "track"}
    assert {x: image.pixelColor(x, 4).name() for x in places} == {
        x: color(role).name() for x, role in places.items()
    }
