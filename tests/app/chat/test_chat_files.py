"""Attached files: every text encoding is read, everything else refused by name and reason."""

import os
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.services.chat_files import (
    MAX_ALL_BYTES,
    MAX_FILE_BYTES,
    MAX_FILES,
    FileReader,
    Refusal,
    added,
    decode,
    read_text_file,
)
from engine.protocol.messages import Part

CHINESE = "缓存决定保留哪些专家。\n第二行,比第一行更长一些。\n"
JAPANESE = "キャッシュは最近使われたものを残します。\n二行目です。\n"
RUSSIAN = "Кэш хранит то, что использовалось последним.\nВторая строка.\n"


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        ("plain\n", "ascii"),
        (RUSSIAN, "utf-8"),
        (CHINESE, "utf-8-sig"),
        (RUSSIAN, "utf-16"),
        ("ab\n", "utf-16-le"),
        (f"with {CHINESE}", "utf-16-be"),
        (JAPANESE, "utf-32"),
        (CHINESE, "gb18030"),
        (CHINESE, "gbk"),
        (JAPANESE, "shift_jis"),
        ("naïve café — “quoted”\n", "cp1252"),
        ("Grüße an alle Müßiggänger\n", "latin-1"),
    ],
)
def test_decode_then_the_text_is_what_was_written(text: str, encoding: str) -> None:
    """With mark or without, in pairs of bytes or in single ones."""
    assert decode(text.encode(encoding)) == text


@pytest.mark.parametrize(
    "data",
    [
        b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\x01\0",
        b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n1 0 obj\x01\x02\x03",
        b"PK\x03\x04\x14\0\x06\0\x08\0",
        b"\x7fELF\x02\x01\x01\0\0\0",
        bytes(range(256)) * 8,
    ],
)
def test_decode_when_binary_then_nothing(data: bytes) -> None:
    """Pictures, documents, archives and programs are no text."""
    assert decode(data) is None


@given(st.text(st.characters(blacklist_categories=("Cs", "Cc"))))
def test_decode_then_any_utf8_text_comes_back(text: str) -> None:
    """Whatever letters it has; a mark at the beginning is no part of the text."""
    assert decode(text.encode()) == text.removeprefix("\ufeff")


@given(st.binary(max_size=400))
def test_decode_then_random_bytes_never_raise(data: bytes) -> None:
    """A text without control signs, or nothing."""
    text = decode(data)
    assert text is None or "\0" not in text


def test_read_when_taken_then_name_and_lines_are_kept(tmp_path) -> None:
    """Line ends of Windows and old Macs become one kind."""
    path = tmp_path / "notes.md"
    path.write_bytes(b"a\r\nb\rc")
    assert read_text_file(path) == Part(name="notes.md", text="a\nb\nc")


def test_read_when_not_taken_then_file_and_reason_are_named(tmp_path) -> None:
    """G-04: folder, size, binary, empty and missing, each in its own words."""
    (tmp_path / "picture.png").write_bytes(b"\x89PNG\0\0")
    (tmp_path / "large.log").write_bytes(b"x" * (MAX_FILE_BYTES + 1))
    (tmp_path / "empty.txt").write_bytes(b" \n")
    cases = {
        tmp_path: "is a folder",
        tmp_path / "picture.png": "is not a text file",
        tmp_path / "large.log": "A file may have",
        tmp_path / "empty.txt": "is empty",
        tmp_path / "missing.txt": "cannot be read",
    }
    for path, reason in cases.items():
        found = read_text_file(path)
        assert isinstance(found, Refusal)
        assert path.name in found.sentence
        assert reason in found.sentence


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="POSIX pipes")
def test_read_when_not_a_regular_file_then_it_does_not_wait(tmp_path) -> None:
    """A pipe that nobody writes to would block for ever."""
    os.mkfifo(tmp_path / "pipe")
    assert isinstance(read_text_file(tmp_path / "pipe"), Refusal)


def test_added_then_doubles_are_left_out_and_bounds_hold() -> None:
    """The same file twice is one; too many or too much is refused by name."""
    one = Part(name="a", text="x")
    assert added((one,), [one]) == ((one,), [])
    many = [Part(name=f"{n}.txt", text=str(n)) for n in range(MAX_FILES + 1)]
    kept, refused = added((), many)
    assert kept == tuple(many[:-1])
    assert [f"{MAX_FILES}.txt" in refusal.sentence for refusal in refused] == [True]
    large = [Part(name=f"{n}.log", text=f"{n}" * (MAX_ALL_BYTES // 3)) for n in range(4)]
    kept, refused = added((), large)
    assert len(kept) == 3
    assert "3.log" in refused[0].sentence


def test_reader_then_work_is_done_on_a_thread_and_handed_over_here(qtbot) -> None:
    """The window's thread only takes results, in the order they are ready."""
    reader, seen = FileReader(), []
    may_end = threading.Event()

    def work() -> int:
        may_end.wait(10)
        return threading.get_ident()

    reader.run(work, lambda ident: seen.append((ident, threading.get_ident())))
    assert reader.is_busy
    may_end.set()
    qtbot.waitUntil(lambda: bool(seen), timeout=5000)
    ((there, here),) = seen
    assert here == threading.get_ident() != there
    assert not reader.is_busy
