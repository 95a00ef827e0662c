"""The access token of the model hub: in the system's keyring where there is one, else in memory.

The keyring may ask the person, or hang: it is read and written on a thread, and only once a
download is wanted. Never logged, never in a file of ours.
"""

import contextlib
import threading
from collections.abc import Callable
from typing import Protocol

from PySide6.QtCore import QObject, Qt, QTimer, Signal

SERVICE, ENTRY = "FreeToken Desktop", "model hub"
LIMIT_MS = 3_000


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

    Signals:
        changed(): `token` or `is_kept` differ.
    """

    changed = Signal()
    _found = Signal(object, bool)

    def __init__(self, find: Callable[[], Keyring | None] = system_keyring) -> None:
        super().__init__()
        self._find = find
        self._token = ""
        self._is_loaded = self._is_loading = False
        self._waiting: list[Callable[[], None]] = []
        self.is_kept = False
        self._found.connect(self._take, Qt.ConnectionType.QueuedConnection)

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
            self._on_thread(self._load)
            QTimer.singleShot(LIMIT_MS, self, self._go_on)

    def remember(self, token: str) -> None:
        """Use a token from now on, and keep it in the keyring if there is one."""
        self._token, self.is_kept = token.strip(), False
        self._is_loaded = True
        self._on_thread(self._save)
        self.changed.emit()

    def _load(self) -> None:
        token = None
        with contextlib.suppress(Exception):  # backends raise what they like, also while sought
            ring = self._find()
            token = ring.get_password(SERVICE, ENTRY) if ring is not None else None
        self._tell(token or "", bool(token))

    def _save(self) -> None:
        token, kept = self._token, False
        with contextlib.suppress(Exception):
            ring = self._find()
            if ring is not None and token:
                ring.set_password(SERVICE, ENTRY, token)
                kept = True
        self._tell(token, kept)

    def _tell(self, token: str, kept: bool) -> None:
        with contextlib.suppress(RuntimeError):  # the app has ended meanwhile
            self._found.emit(token, kept)

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

    def _on_thread(self, work: Callable[[], None]) -> None:
        threading.Thread(target=work, name="keyring", daemon=True).start()
