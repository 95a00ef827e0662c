"""One app per data root: a second start asks the first one to show itself, and ends.

A QLockFile decides who is first (it survives a crash), a QLocalServer carries the request.
"""

import hashlib
from pathlib import Path
from urllib.parse import quote, unquote

from PySide6.QtCore import QLockFile, QObject, Signal
from PySide6.QtNetwork import QLocalServer, QLocalSocket

WAIT_MS = 1_000
MAX_MESSAGE = 65_536
OPEN = "open:"


class SingleInstance(QObject):
    """The first app of a data root.

    Args:
        folder: the data root; made when needed.

    Signals:
        asked(str): another start handed its page name over, "" = just show the window.
        opened(str): another start was given a file to open.
    """

    asked = Signal(str)
    opened = Signal(str)

    def __init__(self, folder: Path, parent: QObject | None = None) -> None:
        super().__init__(parent)
        digest = hashlib.sha256(str(folder).encode()).hexdigest()[:16]
        self._name = f"freetoken-desktop-{digest}"
        self._folder = folder
        self._lock: QLockFile | None = None
        self._server: QLocalServer | None = None

    def claim(self) -> bool:
        """Become the first one. False if another app of this data root runs.

        A folder that cannot be written has no lock: then this app is the first.
        """
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError:
            return True
        lock = QLockFile(str(self._folder / "app.lock"))
        lock.setStaleLockTime(0)  # only a dead process makes it stale
        if not lock.tryLock(0) and lock.error() == QLockFile.LockError.LockFailedError:
            return False
        self._lock = lock
        QLocalServer.removeServer(self._name)  # left over from a crash
        self._server = QLocalServer(self)
        self._server.setSocketOptions(QLocalServer.SocketOption.UserAccessOption)
        self._server.newConnection.connect(self._on_connection)
        self._server.listen(self._name)
        return True

    def hand_over(self, page: str = "", file: str = "") -> bool:
        """Ask the first app to show itself, or to open a file (an absolute path).

        Blocks up to a second. False if it does not hear.
        """
        socket = QLocalSocket()
        socket.connectToServer(self._name)
        if not socket.waitForConnected(WAIT_MS):
            return False
        message = f"{OPEN}{quote(file)}" if file else page
        socket.write(f"{message}\n".encode())
        heard = socket.waitForBytesWritten(WAIT_MS)
        socket.disconnectFromServer()
        return heard

    def close(self) -> None:
        """Let the next start be the first."""
        if self._server is not None:
            self._server.close()
            self._server = None
        if self._lock is not None:
            self._lock.unlock()
            self._lock = None

    def _on_connection(self) -> None:
        if self._server is None:
            return
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
        if not socket.canReadLine():
            return
        message = bytes(socket.readLine(MAX_MESSAGE).data()).decode().strip()
        if message.startswith(OPEN):
            self.opened.emit(unquote(message.removeprefix(OPEN)))
        else:
            self.asked.emit(message)
