"""What a second review of the pictures found, kept as it was mended."""

from pathlib import PureWindowsPath

import msgspec
import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtGui import QColor
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QFileDialog, QLabel, QWidget
from pytestqt.qtbot import QtBot

from app.predict.split import ORDER, Divider
from app.services.downloads import Kept
from app.services.settings import SettingsStore
from app.services.settings_schema import fields
from app.theme import color, px
from app.viewmodels.logs import LEVELS, SOURCES
from app.viewmodels.settings import SettingsViewModel
from app.views.first_run_cards import OfferRow
from app.views.models import DISCOVER
from app.views.settings import SettingsView
from app.widgets.buttons import Button
from app.widgets.inputs import Combo, Field, LineField
from app.widgets.labels import Label
from app.widgets.look import use
from app.widgets.meters import StageDots
from app.widgets.setting_rows import Row, SettingRow
from app.widgets.splitbar_paint import BAR, RULER, Picture
from app.wording import tr
from engine.protocol.places import data_root
from tests.app.walk import picture, settle

pytestmark = pytest.mark.usefixtures("looks")


def words_of(widget: QWidget) -> str:
    return " ".join(w.text() for w in widget.findChildren(QLabel) if w.isVisible())


def right_edges(page: QWidget, *kinds: type[QWidget]) -> set[int]:
    """Where the visible controls of these kinds end, in px of the page."""
    found = [w for kind in kinds for w in page.findChildren(kind) if w.isVisible()]
    return {w.mapTo(page, QPoint(w.width(), 0)).x() for w in found}


def darkest_or_lightest(label: QLabel) -> QColor:
    """The pixel of a label that differs most from its ground."""
    image = picture(label.window(), 1)
    corner = label.mapTo(label.window(), QPoint(0, 0))
    ground = image.pixelColor(corner)
    spots = [
        image.pixelColor(corner.x() + x, corner.y() + y)
        for x in range(label.width())
        for y in range(label.height())
    ]
    return max(spots, key=lambda spot: abs(spot.lightness() - ground.lightness()))


@pytest.mark.parametrize("tone", ["dark", "light"])
def test_second_texts_of_a_message_then_in_their_own_ink(scene, tone: str) -> None:
    """The time is calmer than the name: a viewport's role does not replace the label's."""
    page = scene("chat-answered").widget
    use(tone)
    settle()
    view = page.column.views[page.vm.talk.messages[-1].id]
    ink, plain = color("text3").lightness(), color("text").lightness()
    drawn = darkest_or_lightest(view._when).lightness()
    assert abs(drawn - ink) < abs(drawn - plain)


def test_logs_when_filters_leave_nothing_then_a_button_shows_all(scene) -> None:
    """Every empty state has a way on; the filters show what they do."""
    page = scene("logs-filtered-out").widget
    page.sources.segments[2].click()
    page.levels.segments[2].click()
    assert page.all_lines.isVisible()
    assert page._vm.count_text.startswith("0 of 21 lines shown")
    page.all_lines.click()
    assert page._vm.model.rowCount() == 21
    assert not page.search.text()
    assert (SOURCES[page.sources.current][0], LEVELS[page.levels.current][0]) == ("all", "info")
    assert not page.all_lines.isVisible()


def test_logs_when_there_are_none_then_no_button_that_does_nothing(scene) -> None:
    """Nothing is filtered out: there is nothing to show."""
    assert not scene("logs-none").widget.all_lines.isVisible()


@pytest.mark.parametrize(
    ("name", "said"),
    [("fetch-running", "In progress"), ("fetch-paused", "Paused"), ("fetch-disk-full", "Failed")],
)
def test_discover_row_when_its_download_stands_then_it_says_so(scene, name, said) -> None:
    """What failed or rests is not in progress."""
    page = scene(name).widget
    rows = [row for row in page.panel._rows.values() if not row.action.isVisible()]
    assert [row._said.text() for row in rows] == [said]


@pytest.mark.parametrize(("name", "is_said"), [("discover-unmeasured", True), ("discover", False)])
def test_discover_when_the_machine_is_not_measured_then_said(scene, name, is_said) -> None:
    """A dash does not tell why there is no speed."""
    assert ("Not measured" in words_of(scene(name).widget)) == is_said


def test_leftovers_when_there_is_one_then_the_button_names_one(scene) -> None:
    """It is one, they are several."""
    page = scene("fetch-leftovers").widget
    assert page.flows.delete_left.text() == "Delete it"
    left = page.flows._vm.leftovers
    more = Kept(left[0].folder / "b", "maker/b", 1)
    page.flows._vm.downloads.found.emit((*left, more))
    assert page.flows.delete_left.text() == "Delete them"


def test_jobs_when_there_are_none_then_one_click_leads_to_models(scene) -> None:
    """An empty list of jobs says what makes one."""
    page = scene("jobs-none").widget
    page.job_panel.discover.click()
    assert page.tabs.current == DISCOVER


@pytest.mark.parametrize("name", ["jobs", "jobs-small"])
def test_jobs_then_their_last_stages_stand_below_each_other(scene, name: str) -> None:
    """Whatever can be done about a job, whether it is a download, however many stages it has."""
    page = scene(name).widget
    lines = [dots for dots in page.findChildren(StageDots) if dots.isVisible()]
    last = {d.mapTo(page, QPoint(0, 0)).x() + d.place(len(d._stages) - 1) for d in lines}
    assert len({len(dots._stages) for dots in lines}) > 1
    assert len(last) == 1


def test_fit_in_a_narrow_window_then_below_its_head(scene) -> None:
    """Chips of different widths begin at one line."""
    page = scene("models-installed-small").widget
    left = {row._fit.mapTo(page, QPoint(0, 0)).x() for row in page._rows.values()}
    assert left == {page._fit_head.mapTo(page, QPoint(0, 0)).x()}


def test_diagnosis_then_words_stand_below_their_head_in_equal_steps(scene) -> None:
    """Spare room goes below, not between head and words."""
    page = scene("profiler-many").widget
    parts = [w for w in page.findings.children() if isinstance(w, QWidget)]
    rows = [w for w in parts if w.layout() is not None and w.isVisible()]
    steps = set()
    for row in rows:
        head, words = (w for w in row.children() if isinstance(w, Label))
        steps.add(words.y() - head.y())
    assert len(rows) == 7
    assert len(steps) == 1


@pytest.mark.parametrize("kind", ["busy", "hot"])
def test_findings_about_the_card_then_they_say_what_helps(scene, kind: str) -> None:
    """Cause, figure, next step."""
    words = words_of(scene("profiler-many").widget)
    sentence = {"busy": "99 % of its time", "hot": "88 °C hot"}[kind]
    assert "measure again" in words[words.index(sentence) :][:90]


def test_curves_without_a_working_point_then_the_highest_line_has_its_figure(scene) -> None:
    """While it is measured nothing stands above that line, and its figure is not left out."""
    plot = scene("profiler-running").widget.copies._plot
    axis = plot._rates
    settle()
    low, high = plot._view.getPlotItem().getViewBox().viewRange()[1]
    ticks = axis.tickValues(low, high, plot._view.height())[0][1]
    assert max(ticks) == plot._extent[2]
    assert high > max(ticks), "a figure at the very edge is cut, and then left out"
    assert (high - max(ticks)) / (high - low) * plot._view.height() >= 6


@pytest.mark.parametrize("name", ["settings-storage", "settings-remote", "settings-yield"])
def test_controls_of_settings_then_they_end_at_one_line(scene, name: str) -> None:
    """Text fields end where numbers and lists end."""
    page = scene(name).widget
    page.search.hide()
    for way in page.findChildren(Button):
        way.setVisible(way._kind == "secondary" and way.isVisible())  # not those that reset
    assert len(right_edges(page, LineField, Field, Button)) == 1


def test_controls_of_the_inspector_then_they_end_at_one_line(scene) -> None:
    """Lists are as wide as the panel allows."""
    page = scene("chat-inspector").widget
    assert len(right_edges(page.inspector, Combo, Field, LineField)) == 1


def test_settings_when_searched_then_no_section_is_marked(scene) -> None:
    """Rows of all sections are shown; the one before comes back with an empty field."""
    page = scene("settings-search").widget
    assert not any(item.isChecked() for item in page.items.values())
    page.search.clear()
    assert [key for key, item in page.items.items() if item.isChecked()] == ["general"]
    assert page.groups["general"].isVisible()
    assert not page.groups["storage"].isVisible()


def test_first_run_then_memory_is_told_in_one_unit(scene) -> None:
    """180 GiB free of 192: in GB it would be more free than there is. A prediction says so."""
    page = scene("first-run-offers").widget
    words = words_of(page)
    assert "takes 31.9 GiB of 180 GiB of free memory" in words
    assert {row._origin.text for row in page.findChildren(OfferRow)} == {"Predicted"}
    assert "Bₚ" not in words, "who starts for the first time does not know the paper"


def test_palette_then_what_is_behind_is_dimmed(scene) -> None:
    """Also in the light look, where a veil of the ground's own colour would wash it out."""
    stage = scene("palette")
    use("light")
    settle()
    behind = picture(stage.widget, 1).pixelColor(300, 660)
    assert behind.lightness() < color("canvas").lightness() - 40


def test_field_when_the_least_number_means_something_else_then_said(qtbot: QtBot) -> None:
    """Nobody has to know that 0 stands for "Off"; a typed number takes its place."""
    field = Field(0, "min", 120, 0, 60, least=tr("Never"))
    qtbot.addWidget(field)
    field.show()
    assert field.text() == "Never"
    told: list[float] = []
    field.valueChanged.connect(told.append)
    field.selectAll()
    qtbot.keyClicks(field, "15")
    field.lineEdit().editingFinished.emit()
    field.interpretText()
    assert (field.text(), told) == ("15", [15.0])


def turn(page, index: int):
    """The widget of a message, counted from the first or the last one."""
    return page.column.views[page.vm.talk.messages[index].id]


@pytest.mark.parametrize("pressed", ["retry", "delete"])
def test_button_of_a_message_when_pressed_then_what_is_typed_next_is_the_next_message(
    qtbot: QtBot, scene, pressed: str
) -> None:
    """The button goes with the reply: the keyboard must not land in the search of chats."""
    page = scene("chat-answered").widget
    page.activateWindow()
    qtbot.mouseClick(getattr(turn(page, -1).bar, pressed), Qt.MouseButton.LeftButton)
    settle()
    assert page.composer.edit.hasFocus()


def test_edit_of_a_message_when_sent_then_the_keyboard_is_in_the_composer(
    qtbot: QtBot, scene
) -> None:
    """Enter in the edit answers anew; the edit is gone."""
    page = scene("chat-editing").widget
    page.activateWindow()
    editor = turn(page, 0).editor
    editor.setFocus()
    qtbot.keyClicks(editor, " again")
    qtbot.keyClick(editor, Qt.Key.Key_Return)
    settle()
    assert page.composer.edit.hasFocus()


def test_edit_of_a_message_when_left_then_the_keyboard_stays_with_it(qtbot: QtBot, scene) -> None:
    """Esc leaves without a change; Enter there edits again."""
    page = scene("chat-editing").widget
    page.activateWindow()
    turn(page, 0).editor.setFocus()
    qtbot.keyClick(turn(page, 0).editor, Qt.Key.Key_Escape)
    settle()
    assert turn(page, 0).bar.edit.hasFocus()


def test_versions_when_switched_by_key_then_the_arrows_stay_under_it(qtbot: QtBot, scene) -> None:
    """Back to the first version, where only the other arrow can be pressed; and on again."""
    page = scene("chat-answered").widget
    page.activateWindow()
    page.vm.talk.regenerate(turn(page, -1).message.id)
    page.client.say("Another answer.")
    page.client.finish()
    settle()
    turn(page, -1).bar.left.setFocus()
    qtbot.keyClick(turn(page, -1).bar.left, Qt.Key.Key_Space)
    settle()
    assert turn(page, -1).bar.count.text() == "1 / 2"
    assert turn(page, -1).bar.right.hasFocus()
    qtbot.keyClick(turn(page, -1).bar.right, Qt.Key.Key_Space)
    settle()
    assert turn(page, -1).bar.left.hasFocus()


@pytest.mark.parametrize("name", ["chat-empty", "chat-search-none"])
def test_list_of_chats_when_empty_then_its_sentence_stands_as_its_heads_do(scene, name) -> None:
    """One left edge for what stands in the list."""
    panel = scene(name).widget.list
    left = panel.empty.mapTo(panel, QPoint(0, 0)).x()
    assert left == px(10) + px(10)  # of the panel, of a row


def test_rail_then_memory_stands_in_the_order_of_the_split_bar(scene) -> None:
    """Whatever order the engine tells it in: the small bar is a copy of the large one."""
    window = scene("window-generating").widget
    status = window._session.status
    device = status.devices[0]
    turned = msgspec.structs.replace(device, pools=tuple(reversed(device.pools)))
    window.set_status(msgspec.structs.replace(status, devices=(turned,)))
    drawn = [role for role, _ in window.rail.meters.vram._parts]
    assert drawn == [name for name in ORDER if name in drawn]
    assert {"weights", "kv", "experts", "runtime"} <= set(drawn)


def test_prediction_when_nothing_is_moved_then_its_head_speaks_of_no_change(scene) -> None:
    """There is nothing that could be applied."""
    page = scene("performance-busy").widget
    assert page.forecast._title.text() == "Prediction"


def test_prediction_while_a_divider_is_moved_then_its_head_says_what_it_is_for(scene) -> None:
    """By pointer, by key or by an exact number."""
    page = scene("performance-preview").widget
    assert page.forecast._title.text() == "If you apply this"


def test_preview_by_pointer_then_it_says_that_a_release_applies_it(scene) -> None:
    """The divider is held."""
    bar = scene("performance-busy").widget.split.bar
    sizes = bar.shown.sizes()
    face = Picture(float(bar.width()), float(bar.shown.total_bytes), sizes, sizes)
    start = QPoint(round(face.divider_x(sizes, Divider.KV)), int(RULER + BAR / 2))
    QTest.mousePress(bar, Qt.MouseButton.LeftButton, pos=start)
    QTest.mouseMove(bar, start - QPoint(30, 0))
    assert "Release to apply" in words_of(bar.parentWidget())
    QTest.mouseRelease(bar, Qt.MouseButton.LeftButton, pos=start - QPoint(30, 0))


def test_preview_by_key_then_it_says_that_enter_applies_it(qtbot: QtBot, scene) -> None:
    """Who moves a divider by key has nothing to release."""
    page = scene("performance-busy").widget
    page.split.bar.setFocus()
    qtbot.keyClick(page.split.bar, Qt.Key.Key_Right)
    assert "Enter applies it" in words_of(page.split)
    qtbot.keyClick(page.split.bar, Qt.Key.Key_Return)
    assert "Waiting for a safe point." in words_of(page.split)


def test_about_then_folders_and_licences_come_before_the_list_of_kernels(
    qtbot: QtBot, tmp_path
) -> None:
    """What a person looks for first; what only engineers read last."""
    kernels = (("Kernel for linear", "native: C++"),)
    vm = SettingsViewModel(
        SettingsStore(tmp_path / "settings.json"), data_root(str(tmp_path)), None, lambda: kernels
    )
    licences = Row("Licences", "")
    page = SettingsView(vm, {"about": (licences,)})
    qtbot.addWidget(page)
    rows = page.build("about").rows
    assert rows.index(licences) == len(rows) - 2
    assert rows[-1].contains("Kernel for linear")
    assert any(row.contains("Log folder") for row in rows[:-2])


def test_folder_when_chosen_then_kept_with_the_separators_of_the_system(
    qtbot: QtBot, monkeypatch
) -> None:
    """Qt's dialog answers with slashes everywhere; Windows shows backslashes."""
    monkeypatch.setattr("app.widgets.setting_rows.Path", PureWindowsPath)
    monkeypatch.setattr(
        QFileDialog, "getExistingDirectory", staticmethod(lambda *_: "D:/models/large")
    )
    field = next(field for field in fields() if field.key == "models_folder")
    row = SettingRow(field)
    qtbot.addWidget(row)
    edited: list[tuple[str, object]] = []
    row.edited.connect(lambda key, value: edited.append((key, value)))
    next(b for b in row.findChildren(Button) if b.text() == "Choose").click()
    assert edited == [("models_folder", "D:\\models\\large")]


def test_settings_when_the_next_change_is_saved_then_earlier_trouble_is_gone(scene) -> None:
    """A sentence about a file that could not be written does not outlive its cause."""
    page = scene("settings-changed").widget
    page._vm.notice.emit("The settings could not be saved: the disk is full")
    assert page.said.text().startswith("The settings could not")
    page.rows["zoom"].edited.emit("zoom", 1.2)
    assert page.said.text() == "Saved automatically"
