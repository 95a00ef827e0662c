"""One app per data root: a second start asks the first one to show itself, and ends.

A QLockFile decides who is first (it survives a crash), a QLocalServer carries the request, and the
first one answers when it has done what was asked. An app that ends no longer listens but still has
the lock: a start in that time waits for it and becomes the first.
"""

import logging
import os
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from PySide6.QtCore import QDeadlineTimer, QLockFile, QObject, QSysInfo, Signal
from PySide6.QtNetwork import QLocalServer, QLocalSocket

from app.services.handing_over import MAX_MESSAGE, Request, addresses, decode, encode

LOCK_NAME = "app.lock"
DONE = b"ok"
_log = logging.getLogger("app")


class Place(Enum):
    """What a start of the program has become."""

    FIRST = "the app"
    HANDED_OVER = "the first app has done what was asked"
    TAKEN = "another app has the data root and does not answer"


class Answer(Enum):
    """What came of a request."""

    DONE = "done"
    GONE = "nobody listens, or whoever did has ended"
    SILENT = "somebody listens and does not answer"


@dataclass(frozen=True, slots=True)
class Limits:
    """How long a second start waits, in ms.

    Attributes:
        lock: for the lock of an app that ends; ending takes up to five seconds.
        answer: for the answer of an app that listens; it may still be starting on a slow disk.
        poll: for the lock, between two looks whether somebody listens.
    """

    lock: int = 8_000
    answer: int = 15_000
    poll: int = 200


class SingleInstance(QObject):
    """The first app of a data root, or a start that asks it.

    Args:
        folder: the data root; made when needed.
        limits: how long to wait.

    Signals:
        asked(str, str): another start wants the window, on a page ("" = the present one); with the
            token that lets it come to the front.
        opened(object, str): another start was given a file to open (a str; Qt's own would lose
            the bytes of a name that is no text); with its token.
    """

    asked = Signal(str, str)
    opened = Signal(object, str)

    def __init__(
        self, folder: Path, limits: Limits | None = None, parent: QObject | None = None
    ) -> None:
        super().__init__(parent)
        self._folder, self._limits = folder, limits or Limits()
        self._path = str(folder / LOCK_NAME)
        self._lock: QLockFile | None = None
        self._server: QLocalServer | None = None

    def take_place(self, request: Request) -> Place:
        """Become the first app, or hand the request to it. Blocks up to the limits.

        Waits while the lock is held and nobody listens: the first app is ending, or starting.
        """
        end = QDeadlineTimer(self._limits.lock)
        wait_ms = 0
        while not self.claim(wait_ms):
            answer = self.hand_over(request)
            if answer is not Answer.GONE:
                return Place.HANDED_OVER if answer is Answer.DONE else Place.TAKEN
            if end.hasExpired():
                return Place.FIRST if self._take_over() else Place.TAKEN
            wait_ms = self._limits.poll
        return Place.FIRST

    def claim(self, wait_ms: int = 0) -> bool:
        """Become the first one. False if another app of this data root runs.

        A folder that cannot be written has no lock: then this app is the first. Requests are
        taken in from now on, and answered after `answer`.
        """
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError:
            return True
        lock = self._new_lock()
        if not lock.tryLock(wait_ms) and lock.error() == QLockFile.LockError.LockFailedError:
            return False
        self._lock = lock
        self._listen()
        return True

    def hand_over(self, request: Request) -> Answer:
        """Ask the first app for something. Blocks until it has answered, or for the limit."""
        for address in addresses(self._folder):
            socket = QLocalSocket()
            socket.connectToServer(address)
            if not socket.waitForConnected(self._limits.poll):
                continue
            answer = self._ask(socket, request)
            socket.abort()
            if answer is not Answer.GONE:
                return answer
        return Answer.GONE

    def holder(self) -> tuple[int, str]:
        """Return process and computer of the first app; 0 = not known, "" = this computer."""
        process, host, _ = self._new_lock().getLockInfo()
        is_here = host.casefold() == QSysInfo.machineHostName().casefold()
        return max(process, 0), "" if is_here else host

    def answer(self) -> None:
        """Do what other starts ask from now on; those that ask already wait for it."""
        if self._server is not None:
            self._server.newConnection.connect(self._on_connection)
            self._on_connection()

    def stop_listening(self) -> None:
        """The app is ending: who asks now must not be told that it was done."""
        if self._server is None:
            return
        server, self._server = self._server, None
        server.close()
        server.deleteLater()  # and those who have not said all yet

    def close(self) -> None:
        """Let the next start be the first."""
        self.stop_listening()
        if self._lock is not None:
            self._lock.unlock()
            self._lock = None

    # --- the lock

    def _new_lock(self) -> QLockFile:
        lock = QLockFile(self._path)
        lock.setStaleLockTime(0)  # only a dead process makes it stale
        return lock

    def _take_over(self) -> bool:
        """Take a lock that no living process holds, where Qt cannot tell from what is written.

        So it is after a power cut (an empty file), when the number of a dead process is in use
        again, and in a home on the network when the app died on another computer. The file system
        knows who holds the file, on other computers too; only one that keeps its locks to itself
        cannot be told from a free one. Qt removes the file only if nobody holds it.
        """
        if not os.access(self._folder, os.W_OK):
            return True  # as in `claim`
        guard = QLockFile(f"{self._path}.rmlock")  # Qt's own: two starts must not both take it
        if not guard.tryLock(0):
            return False
        is_free = self._new_lock().removeStaleLockFile()
        guard.unlock()
        return is_free and self.claim()

    # --- the first app

    def _listen(self) -> None:
        server = QLocalServer(self)
        server.setSocketOptions(QLocalServer.SocketOption.UserAccessOption)
        for address in addresses(self._folder, make=True):
            QLocalServer.removeServer(address)  # left over from a crash
            if server.listen(address):
                self._server = server
                return
        _log.warning("no other start can reach this app: %s", server.errorString())
        server.deleteLater()

    def _on_connection(self) -> None:
        while self._server is not None and self._server.hasPendingConnections():
            socket = self._server.nextPendingConnection()
            socket.readyRead.connect(self._on_message)
            socket.disconnected.connect(socket.deleteLater)
            if socket.bytesAvailable():
                self._read(socket)

    def _on_message(self) -> None:
        socket = self.sender()
        if isinstance(socket, QLocalSocket):
            self._read(socket)

    def _read(self, socket: QLocalSocket) -> None:
        if not socket.canReadLine() and socket.bytesAvailable() <= MAX_MESSAGE:
            return  # the rest is coming
        request = decode(bytes(socket.readLine(MAX_MESSAGE + 1).data()))
        if request is None or self._server is None:
            socket.abort()
            return
        if request.file:
            self.opened.emit(request.file, request.token)
        else:
            self.asked.emit(request.page, request.token)
        socket.write(DONE + b"\n")
        socket.flush()

    # --- the second start

    def _ask(self, socket: QLocalSocket, request: Request) -> Answer:
        end = QDeadlineTimer(self._limits.answer)
        socket.write(encode(request))
        while not socket.canReadLine():
            if not socket.waitForReadyRead(max(end.remainingTime(), 0)):
                is_there = socket.state() == QLocalSocket.LocalSocketState.ConnectedState
                return Answer.SILENT if is_there else Answer.GONE
        said = bytes(socket.readLine(len(DONE) + 2).data())
        return Answer.DONE if said == DONE + b"\n" else Answer.GONE
