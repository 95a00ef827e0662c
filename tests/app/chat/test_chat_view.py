"""The chat page on screen: streaming, scrolling, keys, names, themes, narrow windows."""

from itertools import pairwise

import pytest
from PySide6.QtCore import (
    QCoreApplication,
    QEvent,
    QMimeData,
    QPoint,
    QPointF,
    Qt,
    QTimer,
    QUrl,
)
from PySide6.QtGui import (
    QDesktopServices,
    QDragEnterEvent,
    QDropEvent,
    QEnterEvent,
    QGuiApplication,
)
from PySide6.QtWidgets import (
    QAbstractButton,
    QAbstractSlider,
    QAbstractSpinBox,
    QFileDialog,
    QLineEdit,
    QPlainTextEdit,
    QWidget,
)

from app.services.chat_records import MessageState
from app.theme import theme
from app.views.chat import ChatView
from app.widgets.chat.body import Flow, MessageBody
from app.widgets.chat.cards import CrashCard, ErrorCard, IncompleteLine
from app.widgets.chat.code import FOLD_TO, CodeBlock
from app.widgets.chat.highlight import spans_of
from app.widgets.chat.prose import Prose, open_link
from app.widgets.look import use
from engine.protocol import messages as m
from engine.protocol.errors import ErrorCode
from tests.app.chat.fakes import FakeClient, make_vm
from tests.app.walk import settle


@pytest.fixture(autouse=True)
def look(qapp):
    use(mode="dark", zoom=1.0, language_code="en", reduced_motion=False)
    yield
    use(mode="dark", zoom=1.0, language_code="en", reduced_motion=False)


@pytest.fixture
def client(qapp):
    return FakeClient()


@pytest.fixture
def page(tmp_path, client, qtbot):
    """A page of 996 x 712 with its view model and client as attributes."""
    vm = make_vm(tmp_path, client)
    view = ChatView(vm)
    qtbot.addWidget(view)
    view.resize(996, 712)
    view.show()
    view.vm, view.client = vm, client
    yield view
    vm.close()
    vm.test_store.close()


def turns(qtbot, count=6):
    """Let the event loop go round, with what it posts to itself."""
    for _ in range(count):
        QCoreApplication.processEvents()
        QCoreApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)


def last(page):
    return page.column.views[page.vm.talk.messages[-1].id]


def flush(page):
    """Show what has arrived, however busy the machine is."""
    for view in page.column.views.values():
        view.body._not_before = 0.0
    page.vm.runner.flush()


def long_chat(page, count):
    """Store a chat of so many messages and open it."""
    store = page.vm.test_store
    chat = store.create_chat("long")

    def work(db):
        rows = [
            (
                n,
                chat.id,
                n - 1 or None,
                "user" if n % 2 else "assistant",
                f'[{{"text":"m **{n}**"}}]',
            )
            for n in range(1, count + 1)
        ]
        db.executemany(
            "INSERT INTO messages(id, chat, parent, role, parts, created) VALUES (?,?,?,?,?,0)",
            rows,
        )
        db.execute("UPDATE chats SET leaf = ? WHERE id = ?", (count, chat.id))

    store._file.write(work)
    page.vm.open_chat(chat.id)
    return chat


def test_typed_message_is_sent_streams_and_shows_figures(page, client, qtbot):
    """The main job by keyboard: type, Enter, read, figures; nothing but widgets involved."""
    page.composer.edit.setPlainText("Hello")
    qtbot.keyClick(page.composer.edit, Qt.Key.Key_Return)
    assert page.composer.text == ""
    client.say("Some **bold**")
    flush(page)
    view = last(page)
    assert isinstance(view.body.widgets[0], Flow)
    assert view.body.widgets[0].text == "Some bold▍"
    client.finish()
    assert view.body.widgets[0].text == "Some bold"
    assert "20.0 tok/s" in view.stats.label.text()
    turns(qtbot)
    assert view.stats.isVisible()
    view.stats.trace.click()
    assert view.stats.card is not None


def test_keys_of_the_composer(page, client, qtbot):
    """Shift+Enter breaks the line, empty sends nothing, Up edits the last message."""
    edit = page.composer.edit
    qtbot.keyClick(edit, Qt.Key.Key_Return)
    assert not client.requests
    qtbot.keyClicks(edit, "a")
    qtbot.keyClick(edit, Qt.Key.Key_Return, Qt.KeyboardModifier.ShiftModifier)
    qtbot.keyClicks(edit, "b")
    assert edit.toPlainText() == "a\nb"
    one_line = edit.height()
    edit.setPlainText("\n".join("x" * 20))
    assert edit.height() > one_line
    tallest = edit.height()
    edit.setPlainText("\n".join("x" * 60))
    assert edit.height() == tallest  # eight lines at most
    edit.setPlainText("q")
    qtbot.keyClick(edit, Qt.Key.Key_Return)
    client.say("a")
    client.finish()
    qtbot.keyClick(edit, Qt.Key.Key_Up)
    question = page.column.views[page.vm.talk.messages[0].id]
    assert question.editor is not None
    question.editor.setPlainText("better")
    qtbot.keyClick(question.editor, Qt.Key.Key_Return)
    assert page.vm.talk.messages[0].text == "better"
    assert last(page).bar.count.text() == "1 / 1"
    assert page.column.views[page.vm.talk.messages[0].id].bar.count.text() == "2 / 2"


def test_button_says_what_it_does(page, client):
    """Send, stop and wait are three faces of one button, each with its name."""
    button = page.composer.button
    assert not button.isEnabled()
    page.composer.set_text("one")
    assert (button.accessibleName(), button.isEnabled()) == ("Send", True)
    button.click()
    assert (button.accessibleName(), button.isEnabled()) == ("Stop", True)
    page.composer.set_text("two")
    assert button.accessibleName() == "Send after this reply"
    button.click()
    assert page.composer.queue.isVisibleTo(page)
    page.composer.queue.edit.click()
    assert page.composer.text == "two"
    page.composer.set_text("")
    button.click()
    assert client.cancelled == ["reply-1"]
    assert page.vm.talk.messages[-1].state is MessageState.STOPPED


def test_new_chat_button_and_shortcut_are_never_dead(page, client):
    """G-03: from a running reply and without a model, both lead to an empty page with focus."""
    page.composer.set_text("one")
    page.composer.send()
    page.list.new.click()
    assert page._blank.isVisibleTo(page)
    client.die()
    page.composer.set_text("two")
    page.composer.send()
    assert page.shortcut("new_chat")
    assert page._blank.isVisibleTo(page)
    assert page.composer.text == ""


def test_stream_of_a_long_listing_leaves_the_loop_free(page, client, qtbot):
    """G-13: 2,000 lines at full speed in a long chat; the event loop turns between the chunks.

    Each burst is what 20 Hz would bring at 200 tok/s; the page may then take one turn to draw it,
    and the parser and the text edit must be given the new part only.
    """
    long_chat(page, 200)
    page.composer.set_text("code please")
    page.composer.send()
    client.say("```python\n")
    beats = []
    beat = QTimer()
    beat.setInterval(0)
    beat.timeout.connect(lambda: beats.append(1))
    beat.start()
    for start in range(0, 2000, 40):
        for number in range(start, start + 40):
            client.say(f"value_{number} = compute({number})\n")
        flush(page)
        before = len(beats)
        turns(qtbot, 2)
        assert len(beats) > before
    beat.stop()
    block = last(page).body.widgets[-1]
    assert isinstance(block, CodeBlock)
    last(page).body._render(page.vm.runner.reply_of(last(page).message.id).text, is_done=False)
    assert block is last(page).body.widgets[-1]  # the same widget grew, none was made anew
    assert block.text.blockCount() == 2000
    assert block.text.height() < (FOLD_TO + 3) * block.text.fontMetrics().lineSpacing()
    client.finish()
    qtbot.waitUntil(lambda: block._colors.is_done, timeout=5000)
    assert block.block.is_closed


def test_append_only_gives_the_edit_what_is_new(page, client, monkeypatch):
    """A growing listing is appended to, never set anew."""
    body = MessageBody()
    body._render("```py\na = 1\n", is_done=False)
    added = []
    block = body.widgets[0]
    monkeypatch.setattr(block.text, "append_text", added.append)
    body._render("```py\na = 1\nb = 2\n", is_done=False)
    assert added == ["\nb = 2"]


def test_closed_blocks_are_frozen_while_the_last_one_changes(page, client):
    """A finished paragraph keeps its widget; only the open one is drawn again."""
    body = MessageBody()
    body._render("One.\n\nTwo", is_done=False)
    first, second = body.widgets
    made = []
    first.retheme = lambda: made.append(1)
    body._render("One.\n\nTwo and a half", is_done=False)
    assert body.widgets == [first, second]
    assert second.text == "Two and a half▍"
    assert not made
    body._render("One.\n\nTwo and a half", is_done=True)
    assert body.widgets == [first, second]
    assert second.text == "Two and a half"


def test_slow_rendering_is_done_less_often(page, monkeypatch):
    """A message that takes long to draw is caught up on later, not on every delta."""
    clock = [0.0]
    body = MessageBody()
    monkeypatch.setattr("app.widgets.chat.body.time.monotonic", lambda: clock[0])
    drawn = []

    def render(text, is_done):
        drawn.append(text)
        clock[0] += 0.1

    monkeypatch.setattr(body, "_render", render)
    body.set_markdown("a", is_done=False)
    body.set_markdown("ab", is_done=False)  # too soon: waits for its timer
    assert drawn == ["a"]
    assert body._later.isActive()
    clock[0] += 1.0
    body._catch_up()
    assert drawn == ["a", "ab"]
    body.set_markdown("abc", is_done=True)  # the end is never put off
    assert drawn[-1] == "abc"


def test_html_of_a_model_stays_text(page, client, qtbot, monkeypatch):
    """Tags are shown, no resource is asked for, only web links open."""
    page.composer.set_text("<b>me</b>")
    page.composer.send()
    hostile = (
        '<img src="file:///etc/passwd"><script>x</script> [a](javascript:x) ![p](http://h/p.png)'
    )
    client.say(hostile + "\n\n| <i>c</i> | d |\n|---|---|\n| `<u>` | x |\n")
    client.finish()
    question = page.column.views[page.vm.talk.messages[0].id]
    assert question.body.widgets[0].text == "<b>me</b>"
    shown = [w.text for w in last(page).body.widgets if isinstance(w, Prose)]
    assert shown[0] == '<img src="file:///etc/passwd"><script>x</script> [a](javascript:x) p'
    assert "<i>c</i>" in shown[1]
    assert "<u>" in shown[1]
    doc = last(page).body.widgets[0]._doc
    assert doc.resource(2, QUrl("file:///etc/passwd")) is None
    opened = []
    monkeypatch.setattr(QDesktopServices, "openUrl", lambda url: opened.append(url) or True)
    for bad in ("javascript:x", "file:///etc/passwd", "data:text/html,x", "smb://h/x", ""):
        assert not open_link(bad)
    assert open_link("https://example.org/a")
    assert [u.toString() for u in opened] == ["https://example.org/a"]


def test_reading_is_not_disturbed_by_a_growing_reply(page, client, qtbot):
    """Scrolled up, the view stays where it is; the button leads back, and then it follows again."""
    long_chat(page, 30)
    page.composer.set_text("more")
    page.composer.send()
    client.say("word " * 400)
    flush(page)
    turns(qtbot)
    bar = page.column.verticalScrollBar()
    assert bar.value() == bar.maximum() > 0
    bar.setValue(bar.maximum() // 2)
    assert page.column.to_end.isVisibleTo(page)
    turns(qtbot, 40)  # what came into sight is built
    view = next(v for v in page.column.views.values() if 0 <= v.y() < 300)
    above = view.y()
    client.say("\n\nnew paragraph " * 40)
    flush(page)
    turns(qtbot)
    assert view.y() == above
    page.column.to_end.click()
    assert bar.value() == bar.maximum()
    assert not page.column.to_end.isVisibleTo(page)
    last(page).body._render("x\n\n" * 400, is_done=False)
    turns(qtbot)
    assert bar.value() == bar.maximum()


def alive(page):
    """Return the numbers of the messages that have widgets, in order."""
    return sorted(page.column.views)


def test_chat_of_thousands_keeps_some_screens_alive(page, qtbot):
    """5,000 messages: wherever the person scrolls, what is in sight is there, and little more."""
    long_chat(page, 5000)
    bar = page.column.verticalScrollBar()
    room = page.column.viewport().height()
    assert bar.value() == bar.maximum() > 5000 * 40
    for place in (bar.maximum(), bar.maximum() // 2, 0, bar.maximum() // 3, bar.maximum()):
        bar.setValue(place)
        turns(qtbot, 60)
        seen = sorted((v.y(), n) for n, v in page.column.views.items())
        tops = [y for y, _ in seen]
        assert [n for _, n in seen] == list(range(alive(page)[0], alive(page)[-1] + 1))
        assert tops[0] <= 8
        assert tops[-1] + page.column.views[seen[-1][1]].height() >= room - 40
        assert len(seen) < 60
        pairs = pairwise(seen)
        gaps = {below - y - page.column.views[n].height() for (y, n), (below, _) in pairs}
        assert gaps == {14}  # below each other, none on another
    assert alive(page)[-1] == 5000


def test_versions_switch_in_the_role_line(page, client):
    """Regenerate, then the arrows: the other text is on screen, the count says which."""
    page.composer.set_text("q")
    page.composer.send()
    client.say("first")
    client.finish()
    last(page).bar.retry.click()
    client.say("second")
    client.finish()
    assert last(page).bar.count.text() == "2 / 2"
    last(page).bar.left.click()
    assert last(page).body.widgets[0].text == "first"
    assert last(page).bar.count.text() == "1 / 2"
    assert not last(page).bar.left.isEnabled()


def test_actions_are_unseen_until_hover_or_focus(page, client, qtbot):
    """The hover bar shows itself to the pointer and to the keyboard, and takes Tab always."""
    page.composer.set_text("q")
    page.composer.send()
    client.say("a")
    client.finish()
    bar = last(page).bar
    assert bar._effect.opacity() == 0
    point = QPointF(1, 1)
    last(page).enterEvent(QEnterEvent(point, point, point))
    assert bar._effect.opacity() == 1
    last(page).leaveEvent(QEvent(QEvent.Type.Leave))
    assert bar._effect.opacity() == 0
    assert bar.copy.focusPolicy() & Qt.FocusPolicy.TabFocus
    last(page)._on_focus(None, bar.copy)
    assert bar._effect.opacity() == 1
    bar.copy.click()
    assert QGuiApplication.clipboard().text() == "a"


def test_crash_shows_cause_kept_text_and_the_way_back(page, client, qtbot):
    """The window stays: text, chip, cause, buttons; all gone on success except what is missing."""
    page.composer.set_text("q")
    page.composer.send()
    client.say("half of it")
    client.die()
    view = last(page)
    assert isinstance(view.tail, IncompleteLine)
    card = page.findChild(CrashCard)
    turns(qtbot)
    assert card.isVisible()
    asked, pages = [], []
    page.vm.restart_requested.connect(asked.append)
    page.vm.page_requested.connect(pages.append)
    card.smaller.click()
    card.as_before.click()
    card.log.click()
    assert (asked, pages) == ([True, False], ["logs"])
    client.is_running = True
    client.ready.emit(m.Ready())
    client.load()
    assert page._crash is None
    view.tail.go_on.click()
    client.say(" and the rest")
    client.finish()
    assert last(page).body.widgets[0].text == "half of it and the rest"
    assert last(page).tail is None


def test_error_stands_in_the_place_of_the_reply_and_goes_on_success(page, client):
    """G-05: figures, what to do, the page that helps; after a retry nothing of it stays."""
    page.composer.set_text("q")
    page.composer.send()
    client.fail(ErrorCode.BUDGET, "needs 16384 tokens, 8192 fit")
    card = last(page).tail
    assert isinstance(card, ErrorCard)
    pages = []
    page.vm.page_requested.connect(pages.append)
    card.open.click()
    assert pages == ["performance"]
    card.retry.click()
    client.say("ok")
    client.finish()
    assert last(page).tail is None
    assert last(page).body.widgets[0].text == "ok"


def test_reasoning_opens_itself_only_while_it_is_the_sole_output(page, client):
    """Open while thinking, closed once the answer begins, and the person's choice holds."""
    page.composer.set_text("q")
    page.composer.send()
    client.say("Let me think.", kind="reasoning")
    flush(page)
    fold = last(page).fold
    assert fold.head.isChecked()
    assert fold.text.toPlainText() == "Let me think."
    client.say("Answer")
    flush(page)
    assert not fold.head.isChecked()
    fold.head.click()
    client.say(" more")
    client.finish()
    assert fold.head.isChecked()


def test_code_block_copies_wraps_and_folds(qtbot):
    """Copy takes all lines, a tick says so; over 24 lines it folds to 18."""
    body = MessageBody()
    qtbot.addWidget(body)
    code = "\n".join(f"line_{n} = {n}" for n in range(30))
    body.set_markdown(f"```py\n{code}\n```", is_done=True)
    block = body.widgets[0]
    spacing = block.text.fontMetrics().lineSpacing()
    assert block.text.height() < (FOLD_TO + 2) * spacing
    block.more.click()
    assert block.text.height() >= 30 * spacing
    block.copy_button.click()
    assert QGuiApplication.clipboard().text() == code
    assert block.copy_button.text() == "Copied"
    block._tick.timeout.emit()
    assert block.copy_button.text() == "Copy"
    short = MessageBody()
    qtbot.addWidget(short)
    short.resize(300, 200)
    short.set_markdown("```\n" + "word " * 60 + "\n```", is_done=True)
    short.show()
    one_line = short.widgets[0].text.height()
    short.widgets[0].wrap.click()
    assert short.widgets[0].text.height() > one_line


def test_highlight_counts_as_qt_does():
    """Spans are in UTF-16 units per line, also after an emoji and in strings over many lines."""
    spans = list(spans_of('x = "😀" # c\ny = """a\nb"""', "python"))
    assert (4, 4, "string") in spans[0] or (5, 2, "string") in spans[0]
    assert spans[0][-1] == (9, 3, "comment")
    assert any(kind == "string" for _, _, kind in spans[2])
    assert list(spans_of("x", "no-such-language")) == []


def test_theme_and_language_switch_while_a_reply_streams(page, client, qtbot):
    """Colours and words change at once everywhere, the text stays."""
    page.composer.set_text("q")
    page.composer.send()
    client.say("A [link](https://e.org) and `code`\n\n```py\nx = 1\n```\n\nEnd")
    flush(page)
    flow, block = last(page).body.widgets[:2]
    dark = flow._doc.toHtml()
    use(mode="light", language_code="pseudo", zoom=1.3)
    assert flow._doc.toHtml() != dark
    assert flow.text == "A link and code"
    assert block.text.toPlainText() == "x = 1"
    assert block.copy_button.text() != "Copy"
    assert page.composer.edit.placeholderText() != ""
    assert not page.composer.edit.placeholderText().startswith("Write")
    assert page.list.search.placeholderText() != "Search chats"
    client.finish()
    assert last(page).body.widgets[2].text == "End"


def test_language_switch_when_a_reply_is_done_then_its_figures_follow(page, client, qtbot):
    """The line of figures joins several phrases: each is said anew."""
    page.composer.set_text("q")
    page.composer.send()
    client.say("Text")
    client.finish()
    line = last(page).stats
    english = line.label.text()
    assert "token" in english
    use(language_code="pseudo")
    assert line.label.text() != english
    use(language_code="en")
    assert line.label.text() == english


def test_reasoning_of_two_lines_then_nothing_covers_the_second(page, client, qtbot):
    """Bars as the style sheet makes them take room at once, and one bar brings the other."""
    theme().dress(page)
    page.composer.set_text("q")
    page.composer.send()
    client.say("The person asks for the end of the walk. " * 4, kind="reasoning")
    settle()
    flush(page)
    settle()
    text = last(page).fold.text
    assert text.document().size().height() == 2
    assert not text.horizontalScrollBar().isVisible()
    assert text.viewport().height() >= 2 * text.fontMetrics().lineSpacing()


@pytest.mark.parametrize("language", ["en", "pseudo"])
@pytest.mark.parametrize("size", [(844, 552), (640, 500)])
def test_narrow_window_keeps_the_composer_in_view(page, client, qtbot, size, language):
    """G-22: small window, long words and names, inspector open: send is on screen, whole."""
    use(language_code=language)
    page.vm.test_store.create_chat("A very long title " * 8)
    page.vm.chats.refresh()
    client.model = None
    page.composer.set_text("q " * 400)
    page.shortcut("inspector")
    page.composer.send()
    client.load()
    client.say(
        "x" * 500 + "\n\n```\n" + "y" * 500 + "\n```\n\n| a | b |\n|---|---|\n| " + "z" * 300
    )
    client.finish()
    last(page).stats.trace.click()
    page.composer.set_text("next " * 300)
    page.resize(*size)
    turns(qtbot)
    assert (page.width(), page.height()) == size
    button = page.composer.button
    corner = button.mapTo(page, button.rect().bottomRight())
    assert page.rect().contains(corner)
    room = page.column.viewport().width()
    assert all(view.x() + view.width() <= room for view in page.column.views.values())
    page.shortcut("inspector")
    turns(qtbot)
    assert page.rect().contains(button.mapTo(page, button.rect().bottomRight()))


def test_every_control_has_a_name(page, client, qtbot):
    """Assistive tools find a name on each control of the page, in all of its states."""
    page.shortcut("inspector")
    page.composer.set_text("q")
    page.composer.send()
    client.say("think", kind="reasoning")
    client.say("```py\nx\n```\n\n" + "a")
    client.finish()
    last(page).stats.trace.click()
    last(page).begin_edit()
    client.die()
    kinds = (QAbstractButton, QAbstractSlider, QAbstractSpinBox, QLineEdit, QPlainTextEdit, Prose)
    inner = ("qt_spinbox_lineedit",)
    for widget in page.findChildren(QWidget):
        if isinstance(widget, kinds) and widget.objectName() not in inner:
            if type(widget).__name__ == "QScrollBar":
                continue
            assert widget.accessibleName(), (widget, widget.parent())


def test_list_opens_renames_pins_and_deletes_with_undo(page, client, qtbot):
    """Click opens, the menu has all acts, Delete can be taken back in the toast."""
    store = page.vm.test_store
    first, second = store.create_chat("first"), store.create_chat("second")
    page.vm.chats.refresh()
    index = page.list.items.index(page.list.items.row_of(first.id))
    place = page.list.view.visualRect(index).center()
    qtbot.mouseClick(page.list.view.viewport(), Qt.MouseButton.LeftButton, pos=place)
    assert page.vm.talk.chat.id == first.id
    assert page.title.text() == "first"
    acts = {a.text(): a for a in page.list.menu_for(first.id).actions() if a.text()}
    assert list(acts) == [
        "Pin",
        "Rename",
        "Export as Markdown…",
        "Export as JSON…",
        "Delete chat",
    ]
    acts["Pin"].trigger()
    assert str(page.vm.chats.sections[0].title) == "Pinned"
    page.list.items.setData(page.list.items.index(page.list.items.row_of(first.id)), "renamed")
    assert store.chat(first.id).title == "renamed"
    assert page.title.text() == "renamed"
    acts["Delete chat"].trigger()
    assert page.list.items.row_of(first.id) == -1
    page.toasts.shown[-1].findChildren(QAbstractButton)[0].click()
    assert page.list.items.row_of(first.id) >= 0
    qtbot.keyClick(page.list.view, Qt.Key.Key_Down)
    qtbot.keyClick(page.list.view, Qt.Key.Key_Return)
    page.list.search.setText("seco")
    page.vm.chats.refresh()
    assert [r.chat.id for s in page.vm.chats.sections for r in s.rows] == [second.id]


def test_inspector_values_reach_the_next_reply(page, client, qtbot):
    """System prompt, numbers, seed and stop strings are sent; the defaults come back."""
    page.shortcut("inspector")
    box = page.inspector
    assert box.fields["temperature"].value() == 0.7
    box.prompt.setPlainText("Be brief.")
    box.fields["temperature"].setValue(0.2)
    box.fields["seed"].setValue(7)
    box.stop.setText("END, stop ")
    box.stop.editingFinished.emit()
    page.composer.set_text("q")
    page.composer.send()
    messages, sampling, _ = client.requests["reply-1"]
    assert messages[0].parts[0].text == "Be brief."
    assert (sampling.temperature, sampling.seed, sampling.stop) == (0.2, 7, ("END", "stop"))
    assert sampling.top_p == 0.8
    box.fields["seed"].setValue(-1)
    assert page.vm.sampling.seed is None
    box.reset_button.click()
    assert page.vm.talk.chat.sampling is None
    assert box.fields["temperature"].value() == 0.7


def test_context_is_shown_against_its_capacity(page, client):
    """The panel shows the engine's counts."""
    page.shortcut("context")
    page.vm.context._history_tokens = 1000
    page.vm.context.changed.emit()
    assert page.inspector._context.text() == "1.0K of 4K tokens"


def test_context_parts_and_the_room_for_a_reply_are_shown(page, client):
    """What takes it, what is left, and a word before the next reply would not fit."""
    page.shortcut("context")
    meter, box = page.vm.context, page.inspector
    assert box._fill_rows["files"].isHidden()
    meter._history_tokens, meter._without = 3500, {"system": 3000, "files": 2500}
    meter.changed.emit()
    shown = {part: box._fill[part].text() for part in ("system", "files", "talk", "room")}
    assert shown == {"system": "500", "files": "1.0K", "talk": "2.0K", "room": "596"}
    assert box._room.isHidden()
    page.vm.change_sampling(max_tokens=2000)
    assert "may end early" in box._room.text()
    meter._history_tokens = 4096
    meter.changed.emit()
    assert "Performance" in box._room.text()
    assert not box._room.isHidden()


def test_dropped_file_is_a_chip_until_it_is_sent_or_taken_away(page, client, tmp_path, qtbot):
    """G-04: chips in the composer and the message; a click takes away, or unfolds the text."""
    paths = [tmp_path / "a.txt", tmp_path / "b.py"]
    paths[0].write_text("content")
    paths[1].write_text("x = 1")
    data = QMimeData()
    data.setUrls([QUrl.fromLocalFile(str(path)) for path in paths])
    page.composer.edit.insertFromMimeData(data)
    chips = page.composer.files
    qtbot.waitUntil(lambda: len(chips.chips) == 2, timeout=5000)
    assert chips.isVisible()
    assert page.composer.text == ""
    assert page.composer.button.isEnabled()  # files alone can be sent
    chips.chips[0].click()
    assert [chip.text() for chip in chips.chips] == ["b.py  5 B"]
    page.composer.set_text("what is it?")
    page.composer.send()
    assert not chips.isVisible()
    sent = client.requests["reply-1"][0][0]
    assert sent.parts[0].text == "b.py:\n```py\nx = 1\n```\n\n"
    assert sent.parts[1].text == "what is it?"
    shown = page.column.views[page.vm.talk.messages[0].id]
    assert shown.body.widgets[0].text == "what is it?"
    shown.files.chips[0].click()
    assert shown.files.text.text.toPlainText() == "x = 1"
    shown.files.chips[0].click()
    assert shown.files.text is None


def test_chat_files_dropped_on_the_list_are_imported(page, tmp_path, qtbot):
    """G-04: what a file means follows from where it is dropped."""
    path = tmp_path / "c.json"
    path.write_text('[{"role": "user", "content": "dropped"}]')
    data = QMimeData()
    data.setUrls([QUrl.fromLocalFile(str(path))])
    buttons, keys = Qt.MouseButton.LeftButton, Qt.KeyboardModifier.NoModifier
    copy = Qt.DropAction.CopyAction
    enter = QDragEnterEvent(QPoint(5, 5), copy, data, buttons, keys)
    page.list.dragEnterEvent(enter)
    assert enter.isAccepted()
    with qtbot.waitSignal(page.vm.files.imported, timeout=5000):
        page.list.dropEvent(QDropEvent(QPointF(5, 5), copy, data, buttons, keys))
    assert page.title.text() == "dropped"


def test_pasted_text_is_text(page):
    """Only files become chips."""
    data = QMimeData()
    data.setText("tail")
    page.composer.edit.insertFromMimeData(data)
    assert page.composer.text.endswith("tail")


def test_clip_and_import_hand_the_chosen_files_on(page, monkeypatch, tmp_path, qtbot):
    """The dialogs' answers reach the draft and the list; nothing chosen changes nothing."""
    (tmp_path / "n.md").write_text("note")
    (tmp_path / "c.json").write_text('[{"role": "user", "content": "from a file"}]')
    chosen = [[], [str(tmp_path / "n.md")], [], [str(tmp_path / "c.json")]]
    monkeypatch.setattr(QFileDialog, "getOpenFileNames", lambda *_: (chosen.pop(0), ""))
    page.composer.clip.click()
    page.composer.clip.click()
    qtbot.waitUntil(lambda: len(page.composer.files.chips) == 1, timeout=5000)
    page.list.bring.click()
    with qtbot.waitSignal(page.vm.files.imported, timeout=5000):
        page.list.bring.click()
    assert page.title.text() == "from a file"
    assert page.composer.files.isHidden()  # the note belongs to the chat not begun
    page.vm.new_chat()
    assert [chip.text() for chip in page.composer.files.chips] == ["n.md  4 B"]


def test_preset_is_saved_chosen_and_compared_in_the_inspector(page, client, qtbot):
    """Save as, choose in another chat, see that it differs, save, delete; all in the panel."""
    page.shortcut("inspector")
    row, box = page.inspector.presets, page.inspector
    assert row.combo.currentText() == "No preset"
    box.prompt.setPlainText("Be brief.")
    box.fields["temperature"].setValue(0.2)
    row.save_as.click()
    qtbot.keyClicks(row.name, "Terse")
    qtbot.keyClick(row.name, Qt.Key.Key_Return)
    assert row.combo.currentText() == "Terse"
    assert row.changed.isHidden()
    page.vm.new_chat()
    assert row.combo.currentText() == "No preset"
    row.combo.activated.emit(1)
    assert page.vm.talk.chat.system_prompt == "Be brief."
    assert box.prompt.toPlainText() == "Be brief."
    assert page.vm.sampling.temperature == 0.2
    box.fields["temperature"].setValue(0.5)
    assert not row.changed.isHidden()
    row.save.click()
    assert row.changed.isHidden()
    assert page.vm.presets.names == ("Terse",)
    row.save_as.click()
    qtbot.keyClick(row.name, Qt.Key.Key_Escape)
    assert row.name.isHidden() or not row.name.isVisible()
    row.delete.click()
    assert page.vm.presets.names == ()
    assert page.vm.talk.chat.system_prompt == "Be brief."  # the chat keeps its values


def test_reasoning_is_chosen_in_composer_or_inspector_and_sent(page, client):
    """Both show the same choice; the template gets it under the names that are in use."""
    acts = page.composer.reasoning_menu().actions()
    assert [act.isChecked() for act in acts] == [True, False, False, False, False]
    acts[3].trigger()
    assert page.composer.think.text() == "Reasoning: Medium"
    assert page.inspector.reasoning.currentText() == "Medium"
    page.composer.set_text("q")
    page.composer.send()
    assert client.template_args == {
        "enable_thinking": True,
        "thinking": True,
        "reasoning_effort": "medium",
    }
    client.finish()
    page.inspector.reasoning.activated.emit(1)
    page.vm.talk.retry_last()
    assert client.template_args == {"enable_thinking": False, "thinking": False}
    assert page.composer.think.text() == "Reasoning: Off"


def test_shortcuts_of_the_table_work(page, client):
    """Copy last reply, retry, focus and search; unknown ones are refused."""
    page.composer.set_text("q")
    page.composer.send()
    client.say("the reply")
    client.finish()
    assert page.shortcut("copy_reply")
    assert QGuiApplication.clipboard().text() == "the reply"
    page.shortcut("retry")
    assert len(client.requests) == 2
    page.shortcut("search")
    page.shortcut("composer")
    assert not page.shortcut("zoom_in")


def test_zoom_keeps_the_page_in_one_piece(page, client, qtbot):
    """G-15: at 160 % the composer is still whole."""
    use(zoom=1.6)
    turns(qtbot)
    assert theme().zoom == 1.6
    button = page.composer.button
    assert page.rect().contains(button.mapTo(page, button.rect().bottomRight()))


def test_opening_and_leaving_chats_leaks_no_widgets(page, client, qtbot):
    """Twenty openings leave as many widgets as one."""
    first = long_chat(page, 10)
    page.vm.new_chat()
    turns(qtbot)
    page.vm.open_chat(first.id)
    turns(qtbot)
    count = len(page.findChildren(QWidget))
    for _ in range(20):
        page.vm.new_chat()
        page.vm.open_chat(first.id)
        turns(qtbot, 2)
    assert len(page.findChildren(QWidget)) <= count + 2
