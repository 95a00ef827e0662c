"""One app per data root: who is first, and what the first one is told."""

import os
import socket
import sys
import tempfile
from pathlib import Path

import pytest

from app.services import handing_over
from app.services.handing_over import Request, addresses, decode, encode
from app.services.single_instance import Answer, Limits, Place, SingleInstance
from tests.app.services.first_app import FirstApp

SHORT = Limits(lock=300, answer=300, poll=20)
posix = pytest.mark.skipif(sys.platform == "win32", reason="a pipe has no folder")
OTHER = "4242\nfreetoken\nanother-computer\n0123456789abcdef\nfedcba9876543210\n"


@pytest.fixture
def folder():
    """A data root whose path is short enough for a socket."""
    with tempfile.TemporaryDirectory(prefix="ft-") as place:
        yield Path(place) / "Zoë 空"


@pytest.fixture(scope="module")
def running():
    """A first app that all who only ask it something share, and its data root."""
    with tempfile.TemporaryDirectory(prefix="ft-") as place:
        app = FirstApp(Path(place) / "Zoë 空")
        yield app, Path(place) / "Zoë 空"
        app.close()


class Asking:
    """A start that has written a line and can be heard later; it waits for nobody."""

    def __init__(self, folder: Path, line: bytes) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(5)
        self._socket.connect(next(addresses(folder)))
        self.write(line)

    def write(self, line: bytes) -> None:
        self._socket.sendall(line)

    def heard(self) -> bytes:
        with self._socket:
            try:
                return self._socket.recv(64)
            except ConnectionResetError:
                return b""


def test_second_start_then_first_is_asked_to_show_itself(running):
    """The second one hands over its page and ends: there is one app, and one engine (case A-17)."""
    first, folder = running
    second = SingleInstance(folder)
    assert second.take_place(Request("models", token="x_TIME7")) is Place.HANDED_OVER
    assert first.told() == ["page", "models", "x_TIME7"]


def test_second_start_with_a_file_then_first_opens_it(running):
    """A double click on a model while the app runs; any name of a file comes through."""
    first, folder = running
    for name in ("Zoë 空\n open:", "no text \udcff", "x" * 4_000):
        assert SingleInstance(folder).hand_over(Request(file=name)) is Answer.DONE
        assert first.told() == ["file", name, ""]


def test_other_data_root_then_both_run(qtbot, folder):
    """Two data roots are two apps."""
    first, second = SingleInstance(folder / "a"), SingleInstance(folder / "b")
    assert first.claim()
    assert second.claim()
    first.close()
    second.close()


def test_after_close_then_next_start_is_first(qtbot, folder):
    """Nothing is left behind."""
    first = SingleInstance(folder)
    assert first.claim()
    first.close()
    assert list(folder.iterdir()) == []
    second = SingleInstance(folder)
    assert second.claim()
    second.close()


def test_hand_over_when_nobody_listens_then_gone(qtbot, folder):
    """A dead first app is noticed, not waited for."""
    assert SingleInstance(folder).hand_over(Request()) is Answer.GONE


def test_claim_when_folder_cannot_be_made_then_first(qtbot, tmp_path):
    """A read-only place does not stop the app here; other parts say what is wrong."""
    (tmp_path / "file").write_text("")
    assert SingleInstance(tmp_path / "file" / "root").claim()


@posix
def test_claim_when_folder_is_read_only_and_has_an_old_lock_then_first(qtbot, folder, monkeypatch):
    """A lock that cannot be taken away does not keep the app from a place where nobody writes."""
    folder.mkdir()
    (folder / "app.lock").write_text(OTHER)
    monkeypatch.setattr(os, "access", lambda _path, _mode: False)
    assert SingleInstance(folder, SHORT).take_place(Request()) is Place.FIRST
    assert (folder / "app.lock").read_text() == OTHER


# --- where it is heard


@posix
def test_two_temporary_folders_then_still_one_app(folder, tmp_path, monkeypatch):
    """Menu and terminal may have different ones, or one that is not there."""
    first = FirstApp(folder, TMPDIR=str(tmp_path / "none"))
    for place in (tmp_path, tmp_path / "none either"):
        monkeypatch.setenv("TMPDIR", str(place))
        assert SingleInstance(folder).take_place(Request("logs")) is Place.HANDED_OVER
        assert first.told() == ["page", "logs", ""]
    first.close()


@posix
def test_data_root_by_another_name_then_still_one_app(running, tmp_path):
    """A link to it is the same folder."""
    first, folder = running
    (tmp_path / "link").symlink_to(folder)
    assert SingleInstance(tmp_path / "link").hand_over(Request()) is Answer.DONE
    assert first.told() == ["page", "", ""]


@posix
def test_path_too_long_for_a_socket_then_heard_in_a_folder_of_the_persons(
    qtbot, folder, monkeypatch
):
    """The lock stays in the data root; the socket lies where only this person can put one."""
    folder.mkdir()
    monkeypatch.setattr(handing_over, "RUN", str(folder / "none"))
    monkeypatch.setattr(handing_over, "SHARED", str(folder / "own"))
    long = folder / ("x" * 120)
    first = SingleInstance(long)
    assert first.claim()
    first.answer()
    place = Path(f"{folder / 'own'}-{os.getuid()}")
    assert place.stat().st_mode & 0o777 == 0o700
    with qtbot.waitSignal(first.asked):
        second = Asking(long, encode(Request()))
    assert second.heard() == b"ok\n"
    first.close()
    assert list(place.iterdir()) == []


@posix
@pytest.mark.parametrize("fault", ["open", "link", "file"])
def test_folder_that_others_may_have_made_then_it_is_not_used(folder, monkeypatch, fault):
    """Nobody else is to hear what is asked, or to answer it."""
    folder.mkdir()
    monkeypatch.setattr(handing_over, "RUN", str(folder / "none"))
    monkeypatch.setattr(handing_over, "SHARED", str(folder / "own"))
    place = Path(f"{folder / 'own'}-{os.getuid()}")
    if fault == "open":
        place.mkdir()
        place.chmod(0o770)
    elif fault == "link":
        (folder / "elsewhere").mkdir(mode=0o700)
        place.symlink_to(folder / "elsewhere")
    else:
        place.write_text("")
    assert list(addresses(folder / ("x" * 120), make=True)) == []


@posix
def test_socket_then_only_its_owner_may_connect(running):
    """The data root itself may be open for others to read."""
    _, folder = running
    assert (folder / "app.socket").stat().st_mode & 0o077 == 0


# --- the end of the first app


def test_start_while_the_first_one_ends_then_it_waits_and_is_the_app(folder):
    """What it was asked is not lost in an app that goes away."""
    first = FirstApp(folder)

    class Second(SingleInstance):
        answers = []

        def hand_over(self, request):
            self.answers.append(super().hand_over(request))
            first.tell("end")  # only now, so it has waited
            return self.answers[-1]

    first.tell("deaf")
    assert first.line() == "deaf"
    assert not SingleInstance(folder).claim()
    second = Second(folder)
    assert second.take_place(Request()) is Place.FIRST
    assert second.answers[0] is Answer.GONE
    first.close()
    second.close()


@posix
def test_first_app_ends_with_a_request_unread_then_it_is_not_said_to_be_done(qtbot, folder):
    """Connected, written, and closing began: the start must hear that nothing was done."""
    first = SingleInstance(folder)
    assert first.claim()  # and does not answer yet
    asked = []
    first.asked.connect(lambda *told: asked.append(told))
    second = Asking(folder, encode(Request()))
    with qtbot.waitSignal(first._server.newConnection):
        pass
    first.stop_listening()
    assert second.heard() == b""
    assert asked == []
    first.close()


def test_first_app_dies_before_it_reads_then_the_second_is_the_app(folder):
    """It was written, and nobody has said that it was done."""
    first = FirstApp(folder, "mortal")
    second = SingleInstance(folder)
    assert second.take_place(Request(file="model.ftw")) is Place.FIRST
    assert first.process.wait(timeout=10) == 9
    first.close()
    second.close()


@posix
def test_first_app_ends_with_half_a_request_read_then_nothing_is_done(qtbot, folder):
    """The other half comes while it ends."""
    first = SingleInstance(folder)
    assert first.claim()
    first.answer()
    asked = []
    first.asked.connect(lambda *told: asked.append(told))
    with qtbot.waitSignal(first._server.newConnection):
        second = Asking(folder, b'{"page": ')
    first.stop_listening()
    second.write(b'"logs"}\n')
    qtbot.waitUntil(lambda: first.children() == [])
    assert second.heard() == b""
    assert asked == []
    first.close()


@posix
def test_request_while_the_first_one_starts_then_it_waits_for_the_answer(qtbot, folder):
    """What comes before the window is there is done later, not lost."""
    first = SingleInstance(folder)
    assert first.claim()
    second = Asking(folder, encode(Request("logs")))
    with qtbot.waitSignal(first._server.newConnection):
        pass
    with qtbot.waitSignal(first.asked) as told:
        first.answer()
    assert told.args == ["logs", ""]
    assert second.heard() == b"ok\n"
    first.close()


# --- locks nobody holds


@pytest.mark.parametrize("left", [OTHER, ""])
def test_lock_of_the_dead_then_taken_over(qtbot, folder, left):
    """Of another computer (a home on the network), or empty after a power cut."""
    folder.mkdir()
    (folder / "app.lock").write_text(left)
    start = SingleInstance(folder, SHORT)
    assert start.take_place(Request()) is Place.FIRST
    assert not SingleInstance(folder).claim()
    start.close()
    assert list(folder.iterdir()) == []


@posix
def test_lock_held_on_another_computer_then_taken_and_it_is_named(qtbot, folder):
    """The file system says that a process holds it."""
    import fcntl  # not on Windows

    folder.mkdir()
    with (folder / "app.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        lock.write(OTHER)
        lock.flush()
        start = SingleInstance(folder, SHORT)
        assert start.take_place(Request()) is Place.TAKEN
    assert start.holder() == (4242, "another-computer")
    assert (folder / "app.lock").exists()


# --- messages

BAD = [
    b"\n",
    b"\xff\xfe\n",
    b"models\n",
    b"[]\n",
    b'{"page": 3}\n',
    b'{"file": "a\\u0000b"}\n',
    b"[" * 60_000 + b"\n",
    b'{"page": "' + b"x" * 70_000 + b'"}\n',
    b"x" * 70_000,  # and no end
]


@posix
def test_malformed_then_left_out_and_the_app_goes_on(running):
    """Nothing is done, nothing is answered; the next request is heard."""
    first, folder = running
    for line in BAD:
        assert Asking(folder, line).heard() == b"", line[:20]
    assert SingleInstance(folder).hand_over(Request("chat")) is Answer.DONE
    assert first.told() == ["page", "chat", ""]


def test_request_then_one_line_that_gives_it_back():
    """Fields of a later version are left out."""
    request = Request("models", "/a\nb", "t")
    assert encode(request).count(b"\n") == 1
    assert decode(encode(request)) == request
    assert decode(b'{"page": "logs", "later": 1}\n') == Request("logs")
