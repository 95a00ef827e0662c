"""Frees the model's memory when nobody has needed it for a while, if the person wants that.

Typing counts as need: the draft's tokens are counted then. QtCore only.
"""

from PySide6.QtCore import QObject, QTimer

from app.services.engine_client import EngineClient
from app.services.settings import Settings, SettingsStore
from app.viewmodels.session import SessionViewModel

MINUTE_MS = 60_000


class IdleUnloader(QObject):
    """See the module.

    Args:
        client: what is done with the model.
        settings: after how many minutes; 0 = never.
        session: frees it.
        minute_ms: shorter in tests.
    """

    def __init__(
        self,
        client: EngineClient,
        settings: SettingsStore,
        session: SessionViewModel,
        minute_ms: int = MINUTE_MS,
    ) -> None:
        super().__init__()
        self._client, self._session, self._minute_ms = client, session, minute_ms
        self._minutes = settings.value.idle_unload_min
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        self._timer.timeout.connect(self._rest)
        for signal in (client.loaded, client.started, client.finished, client.token_count):
            signal.connect(self._again)
        for signal in (client.unloaded, client.stopped):
            signal.connect(self._timer.stop)
        settings.changed.connect(self._on_settings)
        self._again()

    @property
    def is_counting(self) -> bool:
        """Whether the model is going to be freed."""
        return self._timer.isActive()

    def _on_settings(self, settings: Settings) -> None:
        if settings.idle_unload_min != self._minutes:
            self._minutes = settings.idle_unload_min
            self._again()

    def _again(self) -> None:
        """Count from now on; not while a reply is written."""
        self._timer.stop()
        if self._minutes and self._client.model is not None and not self._client.open_replies:
            self._timer.start(self._minutes * self._minute_ms)

    def _rest(self) -> None:
        self._session.rest()
