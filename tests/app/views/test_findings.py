"""What reviews of the pictures found on the pages, kept as it was mended."""

import pytest
from pyqtgraph import TextItem
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QLabel
from pytestqt.qtbot import QtBot

from app.services.outcome import ProcessOutcome
from app.theme import px, text_width
from app.viewmodels.session_words import lost_engine
from app.viewmodels.settings import Fact
from app.views.models import DISCOVER
from app.views.profiler_history import _CHANGE, _RATE
from app.views.profiler_words import run_words
from app.views.settings import _FactRow
from app.widgets.charts.table import ValuesDialog
from app.widgets.chat.cards import CrashCard
from app.widgets.inputs import LineField
from app.widgets.look import use
from app.widgets.setting_rows import Row
from tests.app.scenes.chats import ENDS
from tests.app.walk import settle

pytestmark = pytest.mark.usefixtures("looks")


def words_of(widget) -> str:
    return " ".join(w.text() for w in widget.findChildren(QLabel) if w.isVisible())


KILLED = ProcessOutcome(True, "The engine was killed from outside.", signal=9)


@pytest.mark.parametrize(
    ("outcome", "first", "can_shrink"),
    [
        (ENDS["memory"], "Restart with 10 % smaller cache", True),
        (KILLED, "Restart with 10 % smaller cache", True),
        (ENDS["crash"], "Restart the engine", True),
        (ENDS["missing"], "Restart the engine", False),
    ],
    ids=["memory", "killed", "crash", "missing"],
)
def test_crash_card_then_the_primary_way_back_is_that_of_the_cause(
    qtbot: QtBot, outcome: ProcessOutcome, first: str, can_shrink: bool
) -> None:
    """Case E-05: a smaller cache only helps where memory was short; the hint says what does."""
    problem = lost_engine(outcome, too_often=False)
    card = CrashCard(outcome, problem.hint, problem.can_shrink)
    qtbot.addWidget(card)
    card.show()
    ways = (card.smaller, card.as_before)
    primary = [way.text() for way in ways if way._kind == "primary" and way.isVisible()]
    assert primary == [first]
    assert card.smaller.isVisible() == can_shrink
    assert problem.hint in words_of(card)


def test_crash_without_messages_then_its_card_stands_above_the_prompts(scene) -> None:
    """What is urgent comes first, and its buttons are in sight in the least window."""
    page = scene("chat-crashed-empty").widget
    card = page.findChild(CrashCard)
    bottom = card.mapTo(page, card.rect().bottomLeft()).y()
    assert bottom < page.empty.prompts[0].mapTo(page, page.empty.prompts[0].rect().topLeft()).y()
    assert bottom < page.composer.mapTo(page, page.composer.rect().topLeft()).y()


def test_reasoning_when_its_lines_wrap_then_all_of_them_are_seen(scene) -> None:
    """A fold that opens in its final width is as high as its lines."""
    page = scene("chat-thinking").widget
    text = page.column.views[page.vm.talk.messages[-1].id].fold.text
    lines = round(text.document().size().height())
    assert lines > 1
    assert text.height() >= lines * text.fontMetrics().lineSpacing()


def test_error_card_then_its_advice_is_a_sentence(scene) -> None:
    """Cause and advice read alike."""
    assert "Use a smaller cache or context." in words_of(scene("chat-refused").widget)


def test_no_models_then_one_click_leads_to_those_that_can_be_fetched(scene) -> None:
    """Who has no model needs one; importing a folder stays in the head."""
    page = scene("models-none").widget
    page._empty_button.click()
    assert page.tabs.current == DISCOVER
    assert page.panel.isVisible()


def test_models_when_still_looked_for_then_said(scene) -> None:
    """Each wait says what is waited for."""
    assert "Looking for models" in words_of(scene("models-scanning").widget)


def test_hub_rows_then_their_columns_have_names(scene) -> None:
    """No figure without its name; what the list lacks is no news beside the hub's answer."""
    page = scene("discover-answered").widget
    assert {"Format", "Context", "Size", "Predicted"} <= set(words_of(page.panel.hub).split())
    assert not page.panel._empty.isVisible()
    gated = next(row for repo, row in page.panel.hub._rows.items() if "closed" in repo)
    assert gated._facts.text().startswith("Accept its licence first")


def test_charts_when_a_model_is_loaded_then_none_says_that_none_is(scene) -> None:
    """Nothing generated yet is not the same as no model."""
    page = scene("performance-idle").widget
    empties = [chart.empty for chart in (page.memory, page.heat)]
    assert empties == ["Comes within seconds.", "Comes with the first reply."]


def test_charts_when_no_model_is_loaded_then_they_say_so(scene) -> None:
    """The other half of it."""
    page = scene("performance-no-model").widget
    assert {chart.empty for chart in (page.memory, page.heat)} == {"No model is loaded."}


@pytest.mark.parametrize("language", ["en", "zh_CN"])
def test_history_then_time_and_format_of_a_run_are_whole(scene, language: str) -> None:
    """Also in Chinese, at the usual size of the page."""
    page = scene("profiler-many").widget
    use(language_code=language)
    settle()
    room = page.history.rows[0].width() - 2 * (_RATE + _CHANGE) - 22  # less the paddings
    words = [run_words(line.profile) for line in page._vm.lines()]
    assert max(text_width(text, "meta", 600) for text in words) <= room


def test_history_when_never_measured_then_no_empty_card(scene) -> None:
    """The diagnosis says already what comes with the first run."""
    assert not scene("profiler-never").widget.history.isVisible()


@pytest.mark.parametrize("name", ["profiler-stale", "profiler-good"])
def test_word_over_the_working_point_then_above_the_highest_line(scene, name: str) -> None:
    """No grid line crosses it, in a low chart or a high one."""
    page = scene(name).widget
    plot = page.copies._plot
    view = plot._view.getPlotItem().getViewBox()
    top = view.mapViewToScene(view.viewRect().center())
    top.setY(view.mapViewToScene(type(top)(0.0, plot._extent[2])).y())
    (word,) = [i for i in view.addedItems if isinstance(i, TextItem) and i.anchor.y() == 0]
    box = word.mapRectToScene(word.boundingRect())
    margin = word.textItem.document().documentMargin()
    assert box.bottom() - margin <= top.y()


def test_first_run_when_libraries_are_missing_then_it_does_not_say_that_it_starts(scene) -> None:
    """One statement about the engine, and one that is true."""
    words = words_of(scene("first-run-no-runtime").widget)
    assert "is starting" not in words
    assert words.count("needs its libraries") == 1


@pytest.mark.parametrize("section", ["storage", "remote", "yield", "chat"])
def test_text_fields_of_settings_then_wide_enough_for_an_address(scene, section: str) -> None:
    """A third of an address is no address."""
    page = scene(f"settings-{section}").widget
    fields = [
        field
        for row in page.groups[section].findChildren(Row)
        for field in row.findChildren(LineField)
        if field.isVisible()
    ]
    assert fields
    assert all(field.width() >= px(240) for field in fields)


def test_about_when_a_path_is_long_then_it_has_the_whole_row(qtbot: QtBot, scene) -> None:
    """Beside its name there is no room; below it is cut only where the row ends."""
    row = _FactRow(Fact("Engine program", "/a" + "folder" * 20))
    qtbot.addWidget(row)
    row.resize(700, 60)
    row.show()
    value = next(w for w in row.findChildren(QLabel) if w.text().startswith("/afolder"))
    assert value.width() > px(500)
    assert row.minimumSizeHint().width() < px(500), "a path must not widen the page"


def test_values_dialog_then_titled_and_closed_by_its_button(scene) -> None:
    """A dialog like the others."""
    dialog = scene("dialog-values").widget
    assert isinstance(dialog, ValuesDialog)
    assert "Copies" in words_of(dialog)
    header = dialog.grid.horizontalHeaderItem(1)
    assert header.textAlignment() & Qt.AlignmentFlag.AlignRight
