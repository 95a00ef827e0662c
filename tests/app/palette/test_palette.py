"""The palette by keyboard alone: what it finds, what Enter does, where the keyboard goes after."""

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PySide6.QtCore import QPoint, Qt
from PySide6.QtWidgets import QLineEdit, QWidget

from app.services.chat_records import Chat, ChatId, MessageId, SearchHit
from app.viewmodels.palette import MOST, Entry, PaletteViewModel
from app.viewmodels.palette_match import best, score
from app.views.palette import Palette, fixed_entries
from app.views.shortcuts import PAGES
from app.widgets.look import use

pytestmark = pytest.mark.usefixtures("looks")
CHATS = [
    Chat(ChatId(3), "Merge overlapping ranges"),
    Chat(ChatId(2), "Trip plan"),
    Chat(ChatId(1), "缓存如何决定"),
]
MODELS = [Entry("model", "tiny-moe-fp8", "FP8", "/m/tiny")]
WORDS = st.text("abc xyz", min_size=1, max_size=12)


def search(query: str) -> list[SearchHit]:
    if "port" in query:
        return [
            SearchHit(CHATS[1], MessageId(17), "the port is 1234"),
            SearchHit(CHATS[0], None, ""),
        ]
    return []


# --- matching -------------------------------------------------------------------------------------


@given(WORDS, WORDS)
def test_score_then_a_fit_holds_every_letter_of_every_word(query: str, title: str) -> None:
    """And any title fits itself, the empty query fits anything."""
    value = score(query, title)
    if value is not None:
        assert set(query.split()) == set() or all(
            letter in title for word in query.split() for letter in word
        )
    assert score("", title) is not None
    assert score(title, title) is not None


@pytest.mark.parametrize(
    ("query", "order"),
    [
        ("per", ["Performance", "Go to Performance", "Answer upper part", "Pointer"]),
        ("GO perf", ["Go to Performance"]),
        ("缓存", ["缓存如何决定"]),
        ("zz", []),
    ],
)
def test_best_then_beginnings_come_before_insides_before_scattered_letters(
    query: str, order: list[str]
) -> None:
    """Upper and lower case are one; all words must be found."""
    titles = ["Pointer", "Go to Performance", "Answer upper part", "Performance", "缓存如何决定"]
    assert best(query, titles, lambda title: title, 9) == order


def test_best_then_equal_ones_keep_their_order_and_no_more_than_asked() -> None:
    """The last used chat stays first among those of one name."""
    pairs = [("a", 1), ("a", 2), ("a", 3)]
    assert best("a", pairs, lambda pair: pair[0], 2) == pairs[:2]


# --- what is offered ------------------------------------------------------------------------------


@pytest.fixture
def vm(qapp) -> PaletteViewModel:
    return PaletteViewModel(fixed_entries(), lambda: MODELS, lambda: CHATS, search)


def shown(vm: PaletteViewModel) -> dict[str, list[str]]:
    return {str(head): [str(e.title) for e in entries] for head, entries in vm.groups}


def test_nothing_typed_then_all_pages_actions_models_and_the_last_chats(vm) -> None:
    """What can be done is seen before a key is pressed."""
    vm.set_query("")
    groups = shown(vm)
    assert list(groups) == ["Pages", "Actions", "Models", "Chats"]
    assert groups["Pages"] == [str(text) for _, text in PAGES]
    assert "New chat" in groups["Actions"]
    assert "Import chats…" in groups["Actions"]
    assert "Find anything" not in groups["Actions"]  # it is open already
    assert groups["Chats"] == [chat.title for chat in CHATS]


def test_words_typed_then_titles_at_once_and_texts_after_them(vm) -> None:
    """A chat found by its title is not listed again for its text; titles in Chinese are found."""
    vm.set_query("port")
    assert "In the text of chats" not in shown(vm)
    vm.search_texts()
    assert shown(vm)["In the text of chats"] == ["Trip plan"]
    assert vm.groups[-1][1][0].message == 17
    vm.set_query("缓存")
    assert shown(vm) == {"Chats": ["缓存如何决定"]}
    vm.set_query("  ")
    assert vm.query == ""


def test_words_in_another_language_then_entries_are_found_by_what_is_shown(vm) -> None:
    """A person types the words that stand there."""
    use(language_code="zh_CN")
    vm.set_query("模型")
    assert "models" in [entry.target for _, entries in vm.groups for entry in entries]


def test_settings_then_offered_for_words_only(vm) -> None:
    """Thirty of them would hide what is below."""
    vm.set_query("")
    assert "Settings" not in shown(vm)
    vm.set_query("zoom")
    assert shown(vm)["Settings"][0] == "Zoom"


def test_many_fits_then_a_bounded_number_of_each_kind(vm) -> None:
    """The list stays short enough to read."""
    vm._chats = lambda: [Chat(ChatId(n), f"chat {n}") for n in range(1, 100)]
    vm.set_query("chat")
    assert len(shown(vm)["Chats"]) == MOST


# --- keys -----------------------------------------------------------------------------------------


@pytest.fixture
def palette(qtbot, vm) -> Iterator[Palette]:
    window = QWidget()
    window.resize(900, 600)
    edit = QLineEdit(window)
    qtbot.addWidget(window)
    window.show()
    edit.setFocus()
    made = Palette(window, vm)
    made.edit = edit
    made.chosen = []
    made.page_chosen.connect(lambda name: made.chosen.append(("page", name)))
    made.action_chosen.connect(lambda name: made.chosen.append(("action", name)))
    made.setting_chosen.connect(lambda name: made.chosen.append(("setting", name)))
    made.model_chosen.connect(lambda path: made.chosen.append(("model", path)))
    made.chat_chosen.connect(lambda *ids: made.chosen.append(("chat", *ids)))
    yield made
    window.close()


def current(palette: Palette) -> str:
    entry = palette.items.entry(palette.list.currentIndex().row())
    return str(entry.title) if entry else ""


@pytest.mark.parametrize(
    ("typed", "done"),
    [
        ("profi", ("page", "profiler")),
        ("new ch", ("action", "new_chat")),
        ("proxy", ("setting", "storage")),
        ("about", ("setting", "about")),
        ("tiny", ("model", "/m/tiny")),
        ("load tiny", ("model", "/m/tiny")),
        ("merge", ("chat", 3, 0)),
    ],
)
def test_type_and_enter_then_the_best_fit_is_done_and_the_keyboard_is_back(
    palette, qtbot, typed, done
) -> None:
    """Open, some letters, Enter."""
    palette.toggle()
    qtbot.keyClicks(palette.field, typed)
    qtbot.keyClick(palette.field, Qt.Key.Key_Return)
    assert palette.chosen == [done]
    assert palette.isHidden()
    assert palette.edit.hasFocus()


def test_text_found_then_its_chat_and_message_are_told(palette, qtbot) -> None:
    """Enter on a place in a text leads to that message."""
    palette.toggle()
    qtbot.keyClicks(palette.field, "the port")
    palette._vm.search_texts()
    assert current(palette) == "Trip plan"
    palette.run_current()
    assert palette.chosen == [("chat", 2, 17)]


def test_arrows_then_entries_are_chosen_heads_are_not(palette, qtbot) -> None:
    """Down, Up over the end, page keys, Tab; Enter on nothing does nothing."""
    palette.toggle()
    assert current(palette) == "Chat"
    qtbot.keyClick(palette.field, Qt.Key.Key_Down)
    assert current(palette) == "Models"
    qtbot.keyClick(palette.field, Qt.Key.Key_Tab)
    assert current(palette) == "Performance"
    for _ in range(3):
        qtbot.keyClick(palette.field, Qt.Key.Key_Up)
    assert current(palette) == CHATS[-1].title
    qtbot.keyClick(palette.field, Qt.Key.Key_PageUp)
    assert current(palette) not in ("", CHATS[-1].title)
    for _ in range(9):
        qtbot.keyClick(palette.field, Qt.Key.Key_PageUp)
    assert current(palette) == "Chat"
    qtbot.keyClicks(palette.field, "qqqq")
    assert not palette.none.isHidden()
    qtbot.keyClick(palette.field, Qt.Key.Key_Down)
    qtbot.keyClick(palette.field, Qt.Key.Key_Return)
    assert palette.chosen == []
    assert palette.isVisible()


def test_leave_by_esc_by_the_same_keys_or_by_a_click_beside_it(palette, qtbot) -> None:
    """Each time the keyboard goes back, and the next time the field is empty."""
    for leave in (
        lambda: qtbot.keyClick(palette.field, Qt.Key.Key_Escape),
        palette.toggle,
        lambda: qtbot.mouseClick(palette, Qt.MouseButton.LeftButton, pos=QPoint(5, 590)),
    ):
        palette.toggle()
        assert palette.field.hasFocus()
        assert palette.field.text() == ""
        qtbot.keyClicks(palette.field, "some words")
        leave()
        assert palette.isHidden()
        assert palette.edit.hasFocus()


@pytest.mark.parametrize("size", [(1180, 760), (900, 600), (640, 360)])
def test_card_then_it_lies_in_the_window_at_any_size(palette, size) -> None:
    """Also when the window changes while it is open, and at the largest zoom."""
    palette.toggle()
    palette.parentWidget().resize(*size)
    for zoom in (1.0, 1.6):
        use(zoom=zoom)
        palette._place()
        assert palette.rect().contains(palette.card.geometry())
        assert palette.geometry().size() == palette.parentWidget().size()
    assert palette.field.accessibleName()
    assert palette.list.accessibleName()
