"""Commands to the engine and its events as Qt signals; keeps track of what is still open.

The one place of the app that encodes and decodes the protocol for the engine. Knows no widgets and
no wording of pages. Deltas pass as they come: view models gather them.
"""

import itertools
from collections.abc import Callable

from PySide6.QtCore import QObject, QTimer, Signal

from app.services.engine_process import EngineProcess
from app.services.loans import LOAN
from app.services.outcome import ProcessOutcome
from app.wording import tr
from engine.protocol import messages as m
from engine.protocol.errors import EngineError, ErrorCode, InvalidRequest

CLIENT_NAME = "freetoken-desktop"


class EngineClient(QObject):
    """The engine as seen from the window.

    Every request ends exactly once, whatever happens to the process: a Generate with `finished`
    (reason error if the engine died), everything else with its answer or `failed`.

    Signals: one per event, its struct as payload; `stopped(ProcessOutcome)` after all open requests
    were ended; `running_changed()`; `responding_changed(bool)`, False after 10 s of silence.
    """

    ready = Signal(object)
    heartbeat = Signal(object)
    state_changed = Signal(object)
    progress = Signal(object)
    loaded = Signal(object)
    unloaded = Signal(object)
    started = Signal(object)
    delta = Signal(object)
    tool_call = Signal(object)
    finished = Signal(object)
    stats = Signal(object)
    cache_map = Signal(object)
    resize_preview = Signal(object)
    resize_pending = Signal(object)
    resize_applied = Signal(object)
    resize_refused = Signal(object)
    status = Signal(object)
    token_count = Signal(object)
    notice = Signal(object)
    failed = Signal(object)
    stopped = Signal(object)
    running_changed = Signal()
    responding_changed = Signal(bool)

    def __init__(
        self,
        process: EngineProcess,
        log: Callable[[str], None] | None = None,
        parent: QObject | None = None,
    ) -> None:
        super().__init__(parent)
        self.process = process
        self._log = log
        self._numbers = itertools.count(1)
        self._open: dict[str, m.Command] = {}
        self._waiting: list[m.Command] = []  # until Ready
        self._is_ready = self._is_closed = False
        self._state = m.EngineState.IDLE
        self._model: m.ModelInfo | None = None
        self._last_status: m.Status | None = None
        self._devices: tuple[m.DeviceInfo, ...] = ()
        self._version = ""
        process.started.connect(self.running_changed)
        process.lines.connect(self._on_lines)
        process.stopped.connect(self._on_stopped)
        process.responding_changed.connect(self.responding_changed)
        self._routes: dict[type, Callable[[m.Event], None]] = {
            m.Ready: self._on_ready,
            m.StateChanged: self._on_state,
            m.Loaded: self._on_loaded,
            m.Unloaded: self._on_unloaded,
            m.Finished: self._on_finished,
            m.Status: self._on_status,
            m.Error: self._on_error,
            m.ResizePreview: self._answers(self.resize_preview),
            m.ResizeApplied: self._answers(self.resize_applied),
            m.ResizeRefused: self._answers(self.resize_refused),
            m.TokenCount: self._answers(self.token_count),
            m.Started: self._while_open(self.started),
            m.TokenDelta: self._while_open(self.delta),
            m.ToolCallDelta: self._while_open(self.tool_call),
            m.Heartbeat: self.heartbeat.emit,
            m.Progress: self.progress.emit,
            m.Stats: self.stats.emit,
            m.CacheMap: self.cache_map.emit,
            m.ResizePending: self.resize_pending.emit,
            m.Notice: self.notice.emit,
        }

    # --- facts

    @property
    def is_running(self) -> bool:
        """Whether the engine process exists and has not been asked to stop."""
        return self.process.is_running and not self.process.is_stopping

    @property
    def is_ready(self) -> bool:
        """Whether the engine has answered the hello."""
        return self._is_ready and self.is_running

    @property
    def is_responding(self) -> bool:
        """False after too long a silence of a running engine."""
        return self.process.is_responding

    @property
    def state(self) -> m.EngineState:
        """The engine's own word; IDLE without a process."""
        return self._state

    @property
    def model(self) -> m.ModelInfo | None:
        """The loaded model."""
        return self._model

    @property
    def last_status(self) -> m.Status | None:
        """The newest status frame of this engine process."""
        return self._last_status

    @property
    def devices(self) -> tuple[m.DeviceInfo, ...]:
        """Devices that the engine offers; known after `ready`."""
        return self._devices

    @property
    def version(self) -> str:
        """Version of the engine; known after `ready`."""
        return self._version

    @property
    def open_ids(self) -> tuple[str, ...]:
        """Ids of everything that has no answer yet."""
        return tuple(self._open)

    @property
    def open_replies(self) -> tuple[str, ...]:
        """Ids of the replies that are not finished."""
        return tuple(k for k, v in self._open.items() if isinstance(v, m.Generate))

    # --- commands

    def start(self) -> None:
        """Start the engine process; does nothing while one runs, or after `close`."""
        if self.process.is_running or self._is_closed:
            return
        self._is_ready = False
        self.process.start()
        self.process.write(m.encode(m.Hello(client=CLIENT_NAME)))

    def stop(self) -> None:
        """Ask the engine to stop; `stopped` follows within some seconds."""
        self.process.stop(m.encode(m.Shutdown()))
        self.running_changed.emit()

    def close(self) -> None:
        """Stop for good: the app ends, and nobody may start the engine again."""
        self._is_closed = True
        self.stop()

    def load(
        self,
        model: str,
        budget: m.Budget | None = None,
        devices: tuple[str, ...] = ("cpu",),
        policy: m.MissPolicy = m.MissPolicy.TWO_ENDED,
    ) -> str:
        """Load an FTW folder. Returns the id; `loaded` or `failed` follows."""
        return self._send(
            m.Load(id=self._id("load"), model=model, budget=budget, devices=devices, policy=policy)
        )

    def unload(self) -> str:
        """Free the model. Returns the id; `unloaded` follows."""
        return self._send(m.Unload(id=self._id("unload")))

    def generate(
        self,
        messages: tuple[m.ChatMessage, ...],
        sampling: m.Sampling,
        tools: tuple[m.Tool, ...] = (),
        continue_last: bool = False,
        template_args: dict[str, object] | None = None,
    ) -> str:
        """Answer a conversation. Returns the id; `finished` follows exactly once."""
        return self._send(
            m.Generate(
                id=self._id("reply"),
                messages=tuple(messages),
                sampling=sampling,
                tools=tuple(tools),
                continue_last=continue_last,
                template_args=template_args or {},
            )
        )

    def cancel(self, request_id: str) -> None:
        """End a reply or load at the next safe point; unknown ids are ignored."""
        waiting = next((c for c in self._waiting if getattr(c, "id", "") == request_id), None)
        if waiting is not None:
            self._waiting.remove(waiting)
            self._close(request_id, ErrorCode.CANCELLED, tr("Cancelled."))
        elif request_id in self._open:
            self._write(m.Cancel(id=request_id))

    def resize(
        self,
        kv_tokens: int | None = None,
        expert_slots: int | None = None,
        preview: bool = False,
        loan: bool = False,  # nobody's choice, for a while: see `is_loan`
    ) -> str:
        """Re-divide the memory. Returns the id; preview, pending, applied or refused follow."""
        return self._send(
            m.Resize(
                id=self._id(LOAN if loan else "resize"),
                kv_tokens=kv_tokens,
                expert_slots=expert_slots,
                preview=preview,
                loan=loan,
            )
        )

    def set_policy(self, policy: m.MissPolicy) -> str:
        """Choose how misses are served. Returns the id; `status` follows."""
        return self._send(m.SetPolicy(id=self._id("policy"), policy=policy))

    def count_tokens(self, messages: tuple[m.ChatMessage, ...]) -> str:
        """Count what a conversation costs. Returns the id; `token_count` or `failed` follows."""
        return self._send(m.CountTokens(id=self._id("count"), messages=tuple(messages)))

    def request_status(self) -> str:
        """Ask for a status now. Returns the id."""
        return self._send(m.GetStatus(id=self._id("status")))

    def _id(self, kind: str) -> str:
        return f"{kind}-{next(self._numbers)}"

    def _send(self, command: m.Command) -> str:
        """Write the command now, or after Ready; without an engine fail it after returning."""
        command_id = str(getattr(command, "id", ""))
        self._open[command_id] = command
        if not self.is_running:
            QTimer.singleShot(
                0,
                self,
                lambda: self._close(
                    command_id, ErrorCode.INTERNAL, tr("The engine is not running.")
                ),
            )
        elif self._is_ready:
            self._write(command)
        else:
            self._waiting.append(command)
        return command_id

    def _write(self, command: m.Command) -> None:
        self.process.write(m.encode(command))

    # --- events

    def _on_lines(self, lines: list[bytes | InvalidRequest]) -> None:
        for line in lines:
            try:
                if isinstance(line, InvalidRequest):
                    raise line
                event = m.decode_event(line)
            except EngineError as problem:
                self._note(f"ERROR not a message of the engine: {problem.message}")
                continue
            route = self._routes.get(type(event))
            if route is not None:
                route(event)

    def _note(self, text: str) -> None:
        if self._log is not None:
            self._log(text)

    def _answers(self, signal: object) -> Callable[[m.Event], None]:
        """Return a handler that closes the request and passes the event on."""

        def handle(event: m.Event) -> None:
            self._open.pop(getattr(event, "id", ""), None)
            signal.emit(event)  # type: ignore[attr-defined]

        return handle

    def _while_open(self, signal: object) -> Callable[[m.Event], None]:
        """Return a handler that drops what comes after the end of its request."""

        def handle(event: m.Event) -> None:
            if getattr(event, "id", "") in self._open:
                signal.emit(event)  # type: ignore[attr-defined]

        return handle

    def _on_ready(self, event: m.Event) -> None:
        assert isinstance(event, m.Ready)
        if event.protocol_version != m.PROTOCOL_VERSION:
            self.failed.emit(
                m.Error(
                    code=ErrorCode.PROTOCOL,
                    message=tr(
                        "The engine speaks protocol {theirs}, this app {ours}.",
                        theirs=event.protocol_version,
                        ours=m.PROTOCOL_VERSION,
                    ),
                    hint=tr("Install app and engine of the same version."),
                )
            )
            self.stop()
            return
        self._is_ready = True
        self._devices = event.devices
        self._version = event.engine_version
        self.ready.emit(event)
        waiting, self._waiting = self._waiting, []
        for command in waiting:
            self._write(command)

    def _on_state(self, event: m.Event) -> None:
        assert isinstance(event, m.StateChanged)
        self._state = event.state
        self.state_changed.emit(event)

    def _on_loaded(self, event: m.Event) -> None:
        assert isinstance(event, m.Loaded)
        self._model = event.model
        self._open.pop(event.id, None)
        self.loaded.emit(event)

    def _on_unloaded(self, event: m.Event) -> None:
        assert isinstance(event, m.Unloaded)
        self._model = None
        self._open.pop(event.id, None)
        self.unloaded.emit(event)

    def _on_finished(self, event: m.Event) -> None:
        assert isinstance(event, m.Finished)
        if self._open.pop(event.id, None) is not None:
            self.finished.emit(event)

    def _on_status(self, event: m.Event) -> None:
        assert isinstance(event, m.Status)
        self._last_status = event
        self._model = event.model
        self._open.pop(event.id, None)
        self.status.emit(event)

    def _on_error(self, event: m.Event) -> None:
        assert isinstance(event, m.Error)
        if not isinstance(self._open.get(event.id), m.Generate):
            self._open.pop(event.id, None)  # a Generate ends with its Finished
        self.failed.emit(event)

    # --- the end

    def _on_stopped(self, outcome: ProcessOutcome) -> None:
        self._is_ready = False
        self._state = m.EngineState.IDLE
        self._model = None
        self._last_status = None
        self._waiting.clear()
        outcome, error = outcome.explained(), outcome.error
        code = error.code if error is not None else ErrorCode.INTERNAL
        code = code if outcome.unexpected else ErrorCode.CANCELLED
        for request_id in tuple(self._open):
            self._close(request_id, code, outcome.sentence)
        self.running_changed.emit()
        self.stopped.emit(outcome)

    def _close(self, request_id: str, code: ErrorCode, sentence: str) -> None:
        """End one open request on our own account."""
        if (command := self._open.get(request_id)) is None:
            return
        cancelled = code is ErrorCode.CANCELLED
        if not (cancelled and isinstance(command, m.Generate)):
            self.failed.emit(m.Error(code=code, message=sentence, id=request_id))
        self._open.pop(request_id, None)
        if isinstance(command, m.Generate):
            reason = m.FinishReason.CANCELLED if cancelled else m.FinishReason.ERROR
            self.finished.emit(m.Finished(id=request_id, reason=reason))
