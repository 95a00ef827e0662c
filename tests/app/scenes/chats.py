"""The chat page and the palette, from the empty page to the crash."""

from collections.abc import Callable
from pathlib import Path

from app.services.outcome import ProcessOutcome, crash_sentence
from app.services.presets import Preset
from app.viewmodels.chat import Coming
from app.viewmodels.palette import Entry, PaletteViewModel
from app.views.chat import ChatView
from app.views.palette import Palette, fixed_entries
from app.wording import tr
from engine.protocol import messages as m
from engine.protocol.errors import ErrorCode
from tests.app.chat.fakes import FakeClient, make_vm
from tests.app.scenes.stage import SMALL, Scene, Stage
from tests.app.walk import settle
from tests.perf.ui_samples import long_chat

NOTES = m.Part(name="release-notes-of-the-next-version.md", text="# Notes\n\n- one\n- two\n" * 40)
DATA = m.Part(name="uses.csv", text="expert,uses\n3,120\n17,80\n")
REPLY = """Sort by start, then walk once and **extend** the last range. That is `O(n log n)`.

1. Sort the ranges.
2. Walk, and merge what touches.

```python
def merge(ranges):
    \"\"\"Join overlapping (start, end) pairs.\"\"\"
    out = []
    for start, end in sorted(ranges):
        out.append([start, end])
    return out
```

| input | merged |
|---|---:|
| (1, 3), (2, 5) | (1, 5) |

> Ranges that only touch count as one.
"""
OUT_OF_MEMORY = m.Error(code=ErrorCode.BUDGET, message="2.1 GiB were asked for, 0.8 GiB are free.")
ENDS: dict[str, ProcessOutcome] = {
    "memory": ProcessOutcome(
        True,
        "The device ran out of memory. 2.1 GiB were asked for, 0.8 GiB are free.",
        "cache.resize asked 2.1 GiB, freed 0.8 GiB, then: out of memory",
        m.encode(OUT_OF_MEMORY).decode(),
        exit_code=3,
    ),
    "crash": ProcessOutcome(True, crash_sentence(11), "line", signal=11),
    "missing": ProcessOutcome(
        True,
        tr("The engine could not be started: {reason}", reason="no such file"),
        was_started=False,
    ),
}


def chat_page(folder: Path) -> tuple[ChatView, Stage]:
    """A page with a preset, a question with files, and a reply."""
    client = FakeClient()
    vm = make_vm(folder, client)
    vm.presets._store.save(Preset("Careful reviewer", "Review with care.", m.Sampling(), "medium"))
    page = ChatView(vm)
    page.resize(996, 712)
    page.show()
    page.vm, page.client = vm, client
    stage = Stage(page, [vm, client], [vm.close, page.close, vm.test_store.close])
    return page, stage


def of(act: Callable[[ChatView], object], asked: bool = True) -> Callable[[Path], Stage]:
    """A scene that begins with a question and its reply, or with nothing."""

    def build(folder: Path) -> Stage:
        page, stage = chat_page(folder)
        if asked:
            page.vm.presets.choose("Careful reviewer")
            page.vm.talk.attach(page.vm.talk.chat.id, (NOTES, DATA))
            page.vm.send("Which expert is used most, and what do the notes say about it?")
            page.client.say("The table says it; the notes do not.", kind="reasoning")
            page.client.say(REPLY)
            page.client.finish(trace=TRACE)
            settle()
        act(page)
        stage.front = getattr(page, "front", None)
        return stage

    return build


TRACE = m.Trace(
    ttft_s=1.9,
    decode_s=2.0,
    decode_tokens_per_s=24.8,
    hit_share=0.63,
    fill_share=0.29,
    cpu_share=0.08,
)


def nothing(_page: ChatView) -> None:
    """As it is."""


def no_model(page: ChatView) -> None:
    page.client.model = None
    page.client.unloaded.emit(None)


def coming(page: ChatView) -> None:
    no_model(page)
    page.vm.set_coming(
        Coming("tiny-moe-fp8", tr("{doing} {share} %", doing=tr("Preparing"), share=43), 0.43)
    )


def streaming(page: ChatView) -> None:
    page.vm.send("And how does it end?")
    page.client.say("It ends with the last range, which")


def thinking(page: ChatView) -> None:
    page.vm.send("And how does it end?")
    page.client.say("The person asks for the end of the walk. " * 4, kind="reasoning")
    settle()
    for view in page.column.views.values():
        view.body._not_before = 0.0  # no pause before the next drawing
    page.vm.runner.flush()


def waiting(page: ChatView) -> None:
    no_model(page)
    page.vm.new_chat()
    page.vm.send("Answer as soon as you are there.")


def drafting(page: ChatView) -> None:
    """A reply under way, one message that waits, and a draft with files."""
    streaming(page)
    page.vm.send("A third one that waits for its turn")
    page.vm.talk.attach(page.vm.talk.chat.id, (NOTES, DATA))
    page.composer.set_text("Compare these two files.")
    page.vm.context._whole_tokens = 1_840
    page.vm.context.changed.emit()


def traced(page: ChatView) -> None:
    """The trace of the last reply is open."""
    view = page.column.views[page.vm.talk.messages[-1].id]
    view.stats.trace.click()


def refused(page: ChatView) -> None:
    page.vm.send("And a question that is too long")
    page.client.fail(ErrorCode.BUDGET, "The chat needs 16384 tokens, 8192 fit.")


def cancelled(page: ChatView) -> None:
    streaming(page)
    page.client.finish(m.FinishReason.CANCELLED)


def crashed(kind: str) -> Callable[[ChatView], object]:
    """A reply breaks off because the engine ended that way."""

    def act(page: ChatView) -> None:
        streaming(page)
        client = page.client
        client.is_running, client.model, client.state = False, None, m.EngineState.IDLE
        client.finished.emit(m.Finished(id=client.last, reason=m.FinishReason.ERROR))
        client.stopped.emit(ENDS[kind])

    return act


def crashed_empty(page: ChatView) -> None:
    page.client.is_running, page.client.model = False, None
    page.client.stopped.emit(ENDS["crash"])


def inspecting(page: ChatView) -> None:
    page.shortcut("inspector")
    page.vm.change_sampling(temperature=0.4)


def naming(page: ChatView) -> None:
    inspecting(page)
    page.inspector.presets.save_as.click()


def unfolded(page: ChatView) -> None:
    view = page.column.views[page.vm.talk.messages[0].id]
    view.files.chips[1].click()


def editing(page: ChatView) -> None:
    page.vm.new_chat()
    page.vm.send("A question to be edited")
    page.client.say("An answer.")
    page.client.finish()
    page.shortcut("edit_last")


def long(page: ChatView) -> None:
    """The middle of many messages."""
    chat = long_chat(page.vm.test_store, 400)
    page.vm.open_chat(chat.id)
    settle()
    bar = page.column.verticalScrollBar()
    bar.setValue(bar.maximum() // 2)


def searching(words: str) -> Callable[[ChatView], object]:
    """The list of chats, searched."""

    def act(page: ChatView) -> None:
        page.list.search.setText(words)
        page.vm.chats.refresh()  # before the pause after the last key

    return act


def palette(words: str) -> Callable[[ChatView], object]:
    """The palette over the page, with words typed."""

    def act(page: ChatView) -> None:
        chats = page.vm.chats
        models = [Entry("model", "tiny-moe-fp8", "FP8 · 38 MB", "/m")]
        vm = PaletteViewModel(fixed_entries(), lambda: models, chats.chats, chats.find)
        page.front = Palette(page, vm)
        page.front.toggle()
        page.front.field.setText(words)
        if words:
            vm.search_texts()

    return act


CHATS = (
    Scene("chat-empty", of(nothing, asked=False)),
    Scene("chat-no-model", of(no_model, asked=False)),
    Scene("chat-loading", of(coming, asked=False)),
    Scene("chat-empty-small", of(no_model, asked=False), SMALL),
    Scene("chat-answered", of(nothing)),
    Scene("chat-streaming", of(streaming)),
    Scene("chat-thinking", of(thinking)),
    Scene("chat-waiting", of(waiting)),
    Scene("chat-drafting", of(drafting)),
    Scene("chat-drafting-small", of(drafting), SMALL),
    Scene("chat-trace", of(traced)),
    Scene("chat-refused", of(refused)),
    Scene("chat-cancelled", of(cancelled)),
    Scene("chat-out-of-memory", of(crashed("memory"))),
    Scene("chat-crashed", of(crashed("crash"))),
    Scene("chat-engine-missing", of(crashed("missing"))),
    Scene("chat-crashed-empty", of(crashed_empty, asked=False), SMALL),
    Scene("chat-inspector", of(inspecting)),
    Scene("chat-inspector-small", of(inspecting), SMALL),
    Scene("chat-naming", of(naming)),
    Scene("chat-file-open", of(unfolded)),
    Scene("chat-editing", of(editing)),
    Scene("chat-long", of(long)),
    Scene("chat-search-none", of(searching("qqq"))),
    Scene("palette", of(palette(""))),
    Scene("palette-typed", of(palette("expert"))),
    Scene("palette-none", of(palette("qqq"))),
)
