"""Write pictures of the chat page and the palette: `python -m tests.app.chat.pictures FOLDER`.

Long chat, attachments, presets and palette, in dark and light, Chinese, small and at 200 %. To be
looked at by a person before each release.
"""

import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")

from PySide6.QtWidgets import QApplication, QWidget

from app.services.presets import Preset
from app.viewmodels.palette import Entry, PaletteViewModel
from app.views.chat import ChatView
from app.views.palette import Palette, fixed_entries
from app.widgets.look import use
from engine.protocol.messages import Part, Sampling
from tests.app.chat.fakes import FakeClient, make_vm
from tests.app.pictures import DARK, LIGHT, Look, grab
from tests.perf.ui_samples import long_chat

ZH: Look = ("dark", 1.0, "zh_CN")
NOTES = Part(name="release-notes-of-the-next-version.md", text="# Notes\n\n- one\n- two\n" * 40)
DATA = Part(name="uses.csv", text="expert,uses\n3,120\n17,80\n")


def chat_page(folder: Path) -> ChatView:
    """A page with a preset, a question with files, and a reply."""
    client = FakeClient()
    vm = make_vm(folder, client)
    vm.presets._store.save(Preset("Careful reviewer", "Review with care.", Sampling(), "medium"))
    page = ChatView(vm)
    page.resize(996, 712)
    vm.presets.choose("Careful reviewer")
    vm.talk.attach(vm.talk.chat.id, (NOTES, DATA))
    vm.send("Which expert is used most, and what do the notes say about it?")
    client.say("Expert **3**, with 120 uses.\n\n| expert | uses |\n|---|---:|\n| 3 | 120 |\n")
    client.finish()
    page.vm, page.client = vm, client
    return page


def drafting(page: ChatView) -> None:
    """Files attached to a draft, its tokens counted, and a message that waits."""
    page.vm.send("And a second question")
    page.vm.send("A third one that waits for its turn")
    page.vm.talk.attach(page.vm.talk.chat.id, (NOTES, DATA))
    page.composer.set_text("Compare these two files.")
    page.vm.context._whole_tokens = 1_840
    page.vm.context.changed.emit()


def waiting(page: ChatView) -> None:
    """A message sent while the model loads."""
    page.client.model = None
    page.vm.new_chat()
    page.vm.send("Answer as soon as you are there.")


def inspecting(page: ChatView) -> None:
    """The inspector with a changed preset."""
    page.shortcut("inspector")
    page.vm.change_sampling(temperature=0.4)


def naming(page: ChatView) -> None:
    """A name for a new preset is typed."""
    inspecting(page)
    page.inspector.presets.save_as.click()


def unfolded(page: ChatView) -> None:
    """The text of an attached file."""
    view = page.column.views[page.vm.talk.messages[0].id]
    view.files.chips[1].click()


def long(page: ChatView) -> None:
    """The middle of 5,000 messages."""
    chat = long_chat(page.vm.test_store, 5_000)
    page.vm.open_chat(chat.id)
    page.show()
    bar = page.column.verticalScrollBar()
    bar.setValue(bar.maximum() // 2)


def palette(page: ChatView, typed: str = "") -> None:
    """The palette over the page, perhaps with words typed."""
    chats = page.vm.chats
    models = [Entry("model", "tiny-moe-fp8", "FP8 · 38 MB", "/m")]
    vm = PaletteViewModel(fixed_entries(), lambda: models, chats.chats, chats.find)
    page.palette = Palette(page, vm)
    page.palette.toggle()
    page.palette.field.setText(typed)
    if typed:
        vm.search_texts()


def small(page: ChatView) -> None:
    """The least width with drafts."""
    drafting(page)
    page.resize(680, 500)


SHOTS: dict[str, tuple[Look, int, Callable[[ChatView], object]]] = {
    "files-dark": (DARK, 1, unfolded),
    "draft-light": (LIGHT, 1, drafting),
    "draft-zh": (ZH, 1, drafting),
    "draft-small": (DARK, 1, small),
    "waiting-dark": (DARK, 1, waiting),
    "inspector-dark": (DARK, 1, inspecting),
    "inspector-naming-light": (LIGHT, 1, naming),
    "inspector-zh@2x": (ZH, 2, inspecting),
    "long-dark": (DARK, 1, long),
    "palette-dark": (DARK, 1, palette),
    "palette-typed-light": (LIGHT, 1, lambda page: palette(page, "expert")),
    "palette-zh": (ZH, 1, palette),
    "palette-none@2x": (DARK, 2, lambda page: palette(page, "qqq")),
}


def main(arguments: list[str]) -> None:
    """Write the pictures whose names contain one of the parts, or all."""
    app = QApplication.instance() or QApplication(sys.argv[:1])
    folder = Path(arguments[0])
    folder.mkdir(parents=True, exist_ok=True)
    for name, (look, ratio, change) in SHOTS.items():
        if arguments[1:] and not any(part in name for part in arguments[1:]):
            continue
        use(*look)
        with tempfile.TemporaryDirectory() as home:
            page: QWidget = chat_page(Path(home))
            page.show()
            app.processEvents()
            change(page)
            grab(page, ratio).save(str(folder / f"{name}.png"))
            page.vm.close()
            page.close()
            page.deleteLater()
            app.processEvents()
            page.vm.test_store.close()


if __name__ == "__main__":
    main(sys.argv[1:])
