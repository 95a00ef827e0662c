"""The ring and the files beside it."""

import logging
import threading

import pytest

from app.services.log_ring import ChildLog, LogRing, RingHandler, level_of, rotating_file
from engine.protocol import messages as m
from engine.protocol.errors import ErrorCode


def test_append_when_full_then_oldest_go_and_numbers_stay(qtbot):
    """20,000 lines at most; the numbers tell what is new."""
    ring = LogRing(max_lines=3)
    for number in range(5):
        ring.append("app", "info", f"line {number}")
    assert [line.text for line in ring.lines()] == ["line 2", "line 3", "line 4"]
    assert [line.number for line in ring.lines(after=4)] == [5]
    assert ring.lines(after=5) == ()
    assert len(ring.lines(after=1)) == 3
    assert ring.count == 5


def test_changed_when_flooded_from_threads_then_told_seldom(qtbot):
    """A flood of lines is one signal per tenth of a second, on the window's thread."""
    ring = LogRing()
    told = []
    ring.changed.connect(lambda: told.append(threading.current_thread()))
    with qtbot.waitSignal(ring.changed):
        threads = [
            threading.Thread(
                target=lambda: [ring.append("engine", "info", "x") for _ in range(500)]
            )
            for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert ring.count == 2_000
    assert len(told) <= 2
    assert set(told) == {threading.main_thread()}
    with qtbot.waitSignal(ring.changed):
        ring.append("app", "info", "told again after a pause")


@pytest.mark.parametrize(
    ("text", "level"),
    [
        ("INFO engine: ready", "info"),
        ("WARNING engine: slow", "warning"),
        ("foo.py:3: UserWarning: hm", "info"),
        ("2026 ERROR engine: x", "error"),
        ("Traceback (most recent call last):", "error"),
        ("ValueError: no", "error"),
    ],
)
def test_level_of_then_guessed_from_words(text, level):
    """Lines of the engine carry their level as a word."""
    assert level_of(text) == level


def test_child_log_then_ring_and_file(qtbot, tmp_path):
    """Each stderr line is in both; the engine's JSON error is shown by its sentence."""
    ring = LogRing()
    take = ChildLog(ring, "engine", tmp_path / "logs" / "engine.log")
    take("INFO hello")
    take(m.encode(m.Error(code=ErrorCode.DEVICE, message="The GPU is gone.")).decode().strip())
    take.close()
    take("INFO only here")
    assert [line.text for line in ring.lines()][:2] == [
        "INFO hello",
        "ERROR device: The GPU is gone.",
    ]
    assert [line.level for line in ring.lines()][:2] == ["info", "error"]
    text = (tmp_path / "logs" / "engine.log").read_text()
    assert "INFO hello" in text
    assert "only here" not in text
    assert '"code":"device"' in text


def test_rotating_file_when_folder_cannot_be_made_then_none(tmp_path):
    """A log that cannot be written never stops the app."""
    (tmp_path / "logs").write_text("a file")
    assert rotating_file(tmp_path / "logs" / "x.log") is None


def test_rotating_file_when_the_disk_is_full_then_lines_are_left_out(tmp_path, monkeypatch, capfd):
    """D-07: the log of a full disk says nothing on stderr, and closes."""

    class Full:
        def fail(self, *_):
            raise OSError(28, "No space left on device")

        write = flush = seek = close = fail

    handler = rotating_file(tmp_path / "x.log")
    stream, handler.stream = handler.stream, Full()
    handler.handle(logging.makeLogRecord({"msg": "lost"}))
    handler.stream = stream
    handler.handle(logging.makeLogRecord({"msg": "kept"}))
    handler.stream = Full()
    handler.close()
    stream.close()
    assert "kept" in (tmp_path / "x.log").read_text("utf-8")
    assert capfd.readouterr().err == ""


def test_ring_handler_then_records_with_traceback(qtbot):
    """The app's own exceptions are readable on the Logs page."""
    ring = LogRing()
    log = logging.getLogger("test-ring")
    log.propagate = False
    handler = RingHandler(ring)
    log.addHandler(handler)
    try:
        raise ValueError("broken")
    except ValueError:
        log.exception("it happened")
    log.warning("careful")
    log.removeHandler(handler)
    first, second = ring.lines()
    assert (first.level, second.level) == ("error", "warning")
    assert "ValueError: broken" in first.text
