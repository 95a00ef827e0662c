"""Text files for a message: read on a thread, decoded whatever their encoding, refused in words.

Nothing here looks at a file's name to judge it: what decodes to text is text. The window never
waits for a disk or a network folder.
"""

import codecs
import itertools
import queue
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from PySide6.QtCore import QObject, QTimer

from app.wording import Phrase, figures, tr
from engine.protocol.messages import Part

T = TypeVar("T")

MAX_FILE_BYTES = 512 * 1024
MAX_FILES = 16  # of one message
MAX_ALL_BYTES = 2 * 2**20  # of one message: the pipe to the engine takes lines of 8 MiB
POLL_MS = 20
_MARKS = (  # the longer marks first: that of UTF-32 begins like that of UTF-16
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_MOSTLY = 0.9  # of the signs of a text are from common blocks; of random bytes it is a third
_CONTROLS = frozenset(range(32)) - {7, 8, 9, 10, 11, 12, 13, 26, 27}
_PAIRS = ((0x3000, 0x30FF), (0x4E00, 0x9FFF), (0xFF00, 0xFFEF))  # kana, Chinese, wide forms
_COMMON = ((0x20, 0x24F), (0x370, 0x5FF), (0x2010, 0x2044), *_PAIRS)  # letters, punctuation
_LEGACY = (  # Japanese is full of kana; Chinese read as Japanese is not
    ("shift_jis", ((0x3040, 0x30FF),), 0.3),
    ("gb18030", _PAIRS, _MOSTLY),
)


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a file is not taken, as a sentence that names it."""

    sentence: Phrase


def decode(data: bytes) -> str | None:
    """Return the text of a file, or None if it is no text.

    Marks at the beginning decide first, then UTF-8, then UTF-16 without a mark; what is left and
    has no control bytes is read as Shift-JIS or GB 18030 if it fits, else as Windows-1252.
    """
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            return _strict(data, encoding)
    if 0 in data:
        return _wide(data)
    text = _strict(data, "utf-8")
    if text is not None:
        return None if _is_binary(data) else text
    if _is_binary(data):
        return None
    for encoding, blocks, least in _LEGACY:
        text = _strict(data, encoding)
        if text is not None and _share([sign for sign in text if sign > "\x7f"], blocks) >= least:
            return text
    return _strict(data, "cp1252") or data.decode("latin-1")


def read_text_file(path: Path) -> Part | Refusal:
    """Read one file as an attachment."""
    name = path.name or str(path)
    try:
        if path.is_dir():
            return Refusal(tr("{name} is a folder. Drop text files here.", name=name))
        if not path.is_file():  # a pipe would be waited for
            return Refusal(tr("{name} cannot be read.", name=name))
        size = path.stat().st_size
        if size > MAX_FILE_BYTES:
            most, found = figures.file_size(MAX_FILE_BYTES), figures.file_size(size)
            sentence = tr(
                "{name} has {size}. A file may have {most}.", name=name, size=found, most=most
            )
            return Refusal(sentence)
        text = decode(path.read_bytes())
    except OSError:
        return Refusal(tr("{name} cannot be read.", name=name))
    if text is None:
        return Refusal(tr("{name} is not a text file. Only text can be attached.", name=name))
    if not text.strip():
        return Refusal(tr("{name} is empty.", name=name))
    return Part(name=name, text=text.replace("\r\n", "\n").replace("\r", "\n"))


def added(files: tuple[Part, ...], more: Sequence[Part]) -> tuple[tuple[Part, ...], list[Refusal]]:
    """Return a draft's files with more of them, as far as one message takes them."""
    kept, refused = list(files), []
    for file in more:
        if any((file.name, file.text) == (other.name, other.text) for other in kept):
            continue  # dropped twice
        size = sum(len(other.text.encode()) for other in (*kept, file))
        if len(kept) >= MAX_FILES:
            sentence = tr(
                "{name} is not attached: a message takes {count} files.",
                name=file.name,
                count=MAX_FILES,
            )
            refused.append(Refusal(sentence))
        elif size > MAX_ALL_BYTES:
            sentence = tr(
                "{name} is not attached: the files of a message may have {most}.",
                name=file.name,
                most=figures.file_size(MAX_ALL_BYTES),
            )
            refused.append(Refusal(sentence))
        else:
            kept.append(file)
    return tuple(kept), refused


class FileReader(QObject, Generic[T]):
    """Runs work on files on a thread and hands its result over on the window's thread.

    Threads know no Qt object: the last reference to one must not end on a thread.
    """

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._done: queue.SimpleQueue[tuple[int, T]] = queue.SimpleQueue()
        self._thens: dict[int, Callable[[T], None]] = {}
        self._numbers = itertools.count()
        self._poll = QTimer(self)
        self._poll.setInterval(POLL_MS)
        self._poll.timeout.connect(self._take)

    @property
    def is_busy(self) -> bool:
        """Whether something is being read."""
        return bool(self._thens)

    def run(self, work: Callable[[], T], then: Callable[[T], None]) -> None:
        """Do `work` on a thread, then call `then` here with what it returned.

        `work` must not raise and must not refer to a Qt object.
        """
        done, number = self._done, next(self._numbers)
        self._thens[number] = then
        threading.Thread(
            target=lambda: done.put((number, work())), name="files", daemon=True
        ).start()
        self._poll.start()

    def close(self) -> None:
        """Take nothing more: the app ends."""
        self._poll.stop()

    def _take(self) -> None:
        while not self._done.empty():
            number, result = self._done.get_nowait()
            self._thens.pop(number)(result)
        if not self._thens:
            self._poll.stop()


def _strict(data: bytes, encoding: str) -> str | None:
    try:
        return data.decode(encoding)
    except UnicodeError:
        return None


def _is_binary(data: bytes) -> bool:
    """Whether control bytes occur that no text has."""
    return any(byte in _CONTROLS for byte in set(data))


def _wide(data: bytes) -> str | None:
    """Read UTF-16 without a mark; binary data with zeros in it is none."""
    for encoding in ("utf-16-le", "utf-16-be"):
        text = _strict(data, encoding)
        if text and not _is_binary(text.encode()) and _share(text, _COMMON) >= _MOSTLY:
            return text
    return None


def _share(signs: Sequence[str], blocks: Sequence[tuple[int, int]]) -> float:
    """Return which share of the signs lies in one of the blocks; line breaks and tabs do."""
    if not signs:
        return 0.0
    inside = sum(
        sign in "\t\r\n" or any(low <= ord(sign) <= high for low, high in blocks) for sign in signs
    )
    return inside / len(signs)
