"""Attached files as chips: in the composer, where a click takes one away, and in a message.

In a message a click unfolds the text of the file below the chips.
"""

from collections.abc import Sequence
from functools import partial

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QWidget

from app.widgets import Button, vbox
from app.widgets.chat.blocks import Code
from app.widgets.chat.code import CodeBlock
from app.widgets.chat.wrap import Wrap
from app.wording import figures, tr
from engine.protocol.messages import Part

NAME_LENGTH = 32


class FileChips(QWidget):
    """One chip for each file. Hidden while there are none.

    Args:
        removes: a click takes the file away; else it unfolds its text below.

    Signals:
        removed: (place) the person takes a file away.
    """

    removed = Signal(int)

    def __init__(self, removes: bool) -> None:
        super().__init__()
        self._removes = removes
        self._files: tuple[Part, ...] = ()
        self._row = Wrap()
        self.chips: list[Button] = []
        self.text: CodeBlock | None = None
        self._open = -1
        self._column = vbox(self._row, gap=8)
        self.setLayout(self._column)
        self.hide()

    def set_files(self, files: Sequence[Part]) -> None:
        """Show these files."""
        if tuple(files) == self._files:
            return
        self._files = tuple(files)
        self._fold()
        for chip in self.chips:
            self._row.removeWidget(chip)
            chip.hide()
            chip.deleteLater()
        self.chips = [self._chip(place, file) for place, file in enumerate(self._files)]
        for chip in self.chips:
            self._row.addWidget(chip)
        self.setVisible(bool(self._files))

    def _chip(self, place: int, file: Part) -> Button:
        size = figures.file_size(len(file.text.encode()))
        words = f"{short_name(file.name)}  {size}"
        name = tr("Remove {name}, {size}", name=file.name, size=size)
        if not self._removes:
            name = tr("Show the text of {name}, {size}", name=file.name, size=size)
        tail = "x" if self._removes else "down"
        chip = Button(words, "secondary", "attach", small=True, tail=tail, name=name, tip=file.name)
        chip.clicked.connect(partial(self._act, place))
        return chip

    def _act(self, place: int, _checked: bool = False) -> None:
        if self._removes:
            self.removed.emit(place)
        else:
            self._toggle(place)

    def _toggle(self, place: int) -> None:
        """Unfold the text of one file; of the same one, fold it."""
        was_open = self._open
        self._fold()
        if place != was_open:
            file = self._files[place]
            language = file.name.rpartition(".")[2] if "." in file.name else ""
            self.text = CodeBlock(Code(file.text.rstrip("\n"), language))
            self._open = place
            self._column.addWidget(self.text)

    def _fold(self) -> None:
        if self.text is not None:
            self._column.removeWidget(self.text)
            self.text.hide()
            self.text.deleteLater()
        self.text, self._open = None, -1


def short_name(name: str) -> str:
    """Return a file name with its middle left out where it is long: its end says the kind."""
    if len(name) <= NAME_LENGTH:
        return name
    end = NAME_LENGTH // 2 - 1
    return f"{name[: NAME_LENGTH - end - 1]}…{name[-end:]}"
