"""An access token, of the model hub or of a remote engine.

It lies in the system's keyring where there is one, else in memory.
The keyring may ask the person, or hang: it is read and written on a thread, and only once a
download is wanted. Never logged, never in a file of ours.
"""

import contextlib
import queue
import threading
from collections.abc import Callable
from functools import partial
from typing import Protocol

from PySide6.QtCore import QObject, QTimer, Signal

SERVICE, ENTRY = "FreeToken Desktop", "model hub"
LIMIT_MS = 3_000
POLL_MS = 20


class Keyring(Protocol):
    """The part of the `keyring` package that is used."""

    def get_password(self, service_name: str, username: str, /) -> str | None:
        """Return what is kept, None = nothing."""
        ...

    def set_password(self, service_name: str, username: str, password: str, /) -> None:
        """Keep something."""
        ...


def system_keyring() -> Keyring | None:
    """Return the system's keyring; None if the package is missing or finds none. May be slow."""
    try:
        import keyring  # optional: the app works without it
    except ImportError:
        return None
    priority = getattr(keyring.get_keyring(), "priority", 0)
    return keyring if priority and priority > 0 else None


class SecretStore(QObject):
    """Knows the token of this session.

    Args:
        find: finds the keyring; called on a thread.
        entry: under which name it keeps the token.

    Signals:
        changed(): `token` or `is_kept` differ.
    """

    changed = Signal()

    def __init__(
        self, find: Callable[[], Keyring | None] = system_keyring, entry: str = ENTRY
    ) -> None:
        super().__init__()
        self._find, self._entry = find, entry
        self._token = ""
        self._is_loaded = self._is_loading = False
        self._waiting: list[Callable[[], None]] = []
        self.is_kept = False
        # Threads know no Qt object: the last reference to one must not end on a thread.
        self._answers: queue.SimpleQueue[tuple[str, bool]] = queue.SimpleQueue()
        self._poll = QTimer(self)
        self._poll.setInterval(POLL_MS)
        self._poll.timeout.connect(self._look)

    @property
    def token(self) -> str:
        """The token; "" = none, or not read yet."""
        return self._token

    def when_loaded(self, then: Callable[[], None]) -> None:
        """Call back once the keyring has answered, or took too long; at once if it has before."""
        if self._is_loaded:
            then()
            return
        self._waiting.append(then)
        if not self._is_loading:
            self._is_loading = True
            self._on_thread(partial(_load, self._find, self._entry))
            QTimer.singleShot(LIMIT_MS, self, self._go_on)

    def remember(self, token: str) -> None:
        """Use a token from now on, and keep it in the keyring if there is one."""
        self._token, self.is_kept = token.strip(), False
        self._is_loaded = True
        self._on_thread(partial(_save, self._find, self._entry, self._token))
        self.changed.emit()

    def _look(self) -> None:
        """Take the answer of the latest thread, once it is there."""
        with contextlib.suppress(queue.Empty):
            answer = self._answers.get_nowait()
            self._poll.stop()
            self._take(*answer)

    def _take(self, token: str, kept: bool) -> None:
        if not self._token or self._token == token:
            self._token, self.is_kept = token, kept
            self.changed.emit()
        self._go_on()

    def _go_on(self) -> None:
        self._is_loaded = True
        waiting, self._waiting = self._waiting, []
        for then in waiting:
            then()

    def _on_thread(self, work: Callable[[], tuple[str, bool]]) -> None:
        answers = self._answers = queue.SimpleQueue()
        threading.Thread(target=lambda: answers.put(work()), name="keyring", daemon=True).start()
        self._poll.start()


def _load(find: Callable[[], Keyring | None], entry: str) -> tuple[str, bool]:
    """Return (token, is it kept). Runs on a thread."""
    token = None
    with contextlib.suppress(Exception):  # backends raise what they like, also while sought
        ring = find()
        token = ring.get_password(SERVICE, entry) if ring is not None else None
    return token or "", bool(token)


def _save(find: Callable[[], Keyring | None], entry: str, token: str) -> tuple[str, bool]:
    """Keep the token; return (token, was it kept). Runs on a thread."""
    kept = False
    with contextlib.suppress(Exception):
        ring = find()
        if ring is not None and token:
            ring.set_password(SERVICE, entry, token)
            kept = True
    return token, kept
