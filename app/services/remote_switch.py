"""Who answers the chat: the local engine, or a remote one while the person wants that.

The seam of `EngineClient` as far as the chat needs it. Knows no widget.
"""

from PySide6.QtCore import QObject, Signal

from app.services.engine_client import EngineClient
from app.services.remote_client import RemoteClient
from engine.protocol import messages as m


class TalkClient(QObject):
    """The chat's engine.

    Replies end with whom they began. Everything else is heard from the one that answers now.

    Signals: as `EngineClient`; `switched()` when the other one answers from now on.
    """

    ready = Signal(object)
    state_changed = Signal(object)
    loaded = Signal(object)
    unloaded = Signal(object)
    started = Signal(object)
    delta = Signal(object)
    tool_call = Signal(object)
    finished = Signal(object)
    stats = Signal(object)
    status = Signal(object)
    token_count = Signal(object)
    failed = Signal(object)
    stopped = Signal(object)
    switched = Signal()

    def __init__(self, local: EngineClient, remote: RemoteClient) -> None:
        super().__init__()
        self._local, self._remote = local, remote
        self._is_on = False
        for name in ("started", "delta", "tool_call", "finished", "failed"):
            getattr(local, name).connect(getattr(self, name))
            getattr(remote, name).connect(getattr(self, name))
        for name in ("ready", "loaded", "unloaded", "state_changed"):
            getattr(local, name).connect(getattr(self, name))
        for name in ("stats", "status", "token_count", "stopped"):
            getattr(local, name).connect(_Gate(self, name))
        remote.changed.connect(self._on_remote)

    @property
    def is_remote(self) -> bool:
        """Whether messages leave this machine."""
        return self._is_on and self._remote.model is not None

    @property
    def is_running(self) -> bool:
        """Whether somebody is there to answer."""
        return self.is_remote or self._local.is_running

    @property
    def model(self) -> m.ModelInfo | None:
        """The model that answers."""
        return self._remote.model if self.is_remote else self._local.model

    @property
    def state(self) -> m.EngineState:
        """What it does."""
        if not self.is_remote:
            return self._local.state
        busy = bool(self._remote.open_replies)
        return m.EngineState.GENERATING if busy else m.EngineState.READY

    @property
    def open_replies(self) -> tuple[str, ...]:
        """Ids of the replies that are not finished, of both."""
        return (*self._local.open_replies, *self._remote.open_replies)

    def use_remote(self, on: bool) -> None:
        """Let the other one answer from the next message on."""
        if on != self._is_on:
            self._is_on = on
            self.switched.emit()
            self.state_changed.emit(m.StateChanged(state=self.state))

    def generate(
        self,
        messages: tuple[m.ChatMessage, ...],
        sampling: m.Sampling,
        tools: tuple[m.Tool, ...] = (),
        continue_last: bool = False,
        template_args: dict[str, object] | None = None,
    ) -> str:
        """Answer a conversation. Returns the id; `finished` follows exactly once."""
        who = self._remote if self.is_remote else self._local
        return who.generate(messages, sampling, tools, continue_last, template_args)

    def cancel(self, request_id: str) -> None:
        """End a reply, whoever writes it."""
        self._remote.cancel(request_id)
        self._local.cancel(request_id)

    def count_tokens(self, messages: tuple[m.ChatMessage, ...]) -> str:
        """Count what a conversation costs; a remote engine is not asked, and gives no answer."""
        return "" if self.is_remote else self._local.count_tokens(messages)

    def _on_remote(self) -> None:
        if self._is_on:
            self.switched.emit()
            self.state_changed.emit(m.StateChanged(state=self.state))


class _Gate:
    """Passes a signal of the local engine on while that one answers."""

    def __init__(self, talk: TalkClient, name: str) -> None:
        self._talk, self._name = talk, name

    def __call__(self, event: object) -> None:
        if not self._talk.is_remote:
            getattr(self._talk, self._name).emit(event)
