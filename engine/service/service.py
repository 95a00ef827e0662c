"""The engine's face: commands in from any thread, events out, one thread that works.

`handle` answers at once what needs no model (Hello, GetStatus, Cancel, Shutdown) and queues the
rest; `run` executes the queue in order and steps the scheduler in between. Knows no stream and no
HTTP. Called by `engine.pipe.host` and `engine.cli`.
"""

import logging
import os
import secrets
import time
from collections.abc import Callable
from functools import singledispatchmethod

import msgspec

from engine.loader.parts import LoadedModel, LoadWatch, OpenModel
from engine.protocol.errors import (
    Cancelled,
    DeviceError,
    EngineError,
    InternalError,
    InvalidRequest,
)
from engine.protocol.messages import (
    Cancel,
    Command,
    CountTokens,
    DeviceInfo,
    EngineState,
    Event,
    Finished,
    FinishReason,
    Generate,
    GetStatus,
    Hello,
    Load,
    Loaded,
    Progress,
    Ready,
    Resize,
    ResizeApplied,
    ResizePending,
    ResizeRefused,
    SetPolicy,
    Shutdown,
    StateChanged,
    Status,
    TokenCount,
    Unload,
    Unloaded,
    error_event,
)
from engine.scheduler.request import Request
from engine.scheduler.tally import Timing
from engine.service.devices import bare_status, find_devices
from engine.service.inbox import Arrived, Inbox
from engine.service.replies import Replies
from engine.service.session import Session
from engine.service.stats import ProgressPace, StatsFeed, load_notice
from engine.settings import ENGINE_VERSION, EngineSettings
from engine.system import trim_heap

PROMPT_TAIL_CHARS = 256  # what a dialect looks at to see inside which mark a reply begins
_log = logging.getLogger(__name__)


class EngineService:
    """One engine: at most one model, many requests.

    Args:
        emit: takes events; called from several threads, must not block.
        settings: of the process.
        open_model: loads a model; default `engine.loader.any_way.open_any_way`.
        devices: lists devices; default NVML and the CPU.
    """

    def __init__(
        self,
        emit: Callable[[Event], None],
        settings: EngineSettings,
        open_model: OpenModel | None = None,
        devices: Callable[[], tuple[DeviceInfo, ...]] = find_devices,
    ) -> None:
        self._emit = emit
        self._settings = settings
        self._open_model = open_model or _load
        self._find_devices = devices
        self._inbox = Inbox()
        self._replies = Replies(emit)
        self._session: Session | None = None
        self._feed: StatsFeed | None = None
        self._state = EngineState.IDLE
        self._cancelled: set[str] = set()  # of those being executed
        self._fatal: EngineError | None = None
        self._arrived_s = 0.0  # of the command being executed

    # --- any thread --------------------------------------------------------------------------

    def handle(self, command: Command) -> None:
        """Take a command; thread-safe, never blocks. Answers come as events."""
        match command:
            case Hello():
                self._hello()
            case GetStatus():
                self._emit(msgspec.structs.replace(self._snapshot(), id=command.id))
            case Cancel():
                self._cancel(command.id)
            case Shutdown():
                self._inbox.stop()
            case Resize() if not command.preview and self._session is not None:
                busy = self._state is EngineState.GENERATING
                self._emit(
                    ResizePending(id=command.id, waiting_for="the running step" if busy else "")
                )
                self._inbox.put(command)
            case _:
                self._inbox.put(command)

    def end_of_commands(self) -> None:
        """No command will come any more: accepted work is finished, then `run` returns."""
        self._inbox.end()

    def stop(self) -> None:
        """Stop now; the same as Shutdown."""
        self.handle(Shutdown())

    def fail(self, problem: EngineError) -> None:
        """Stop now; `run` raises `problem`."""
        self._fatal = problem
        self.stop()

    def _hello(self) -> None:
        self._emit(
            Ready(engine_version=ENGINE_VERSION, pid=os.getpid(), devices=self._find_devices())
        )

    def _cancel(self, command_id: str) -> None:
        """End a command wherever it is: waiting, loading, or running (case G-10)."""
        waiting = self._inbox.take_back(command_id)
        if isinstance(waiting, Generate):
            self._emit(Finished(id=command_id, reason=FinishReason.CANCELLED))
            return
        if waiting is not None:
            self._emit(error_event(Cancelled("Cancelled before it began."), command_id))
            return
        if command_id == self._inbox.current_id:
            self._cancelled.add(command_id)  # a load asks for it
        if (session := self._session) is not None:
            session.scheduler.safepoint.cancel(command_id)
            self._inbox.poke()

    # --- the loop ----------------------------------------------------------------------------

    def run(self) -> None:
        """Work until Shutdown, `stop`, or the end of commands and of the work they brought.

        Raises: DeviceError, InternalError (fatal), or what `fail` was given.
        """
        try:
            while not self._is_over():
                while (arrived := self._inbox.take()) is not None:
                    self._execute(arrived)
                self._step()
        except EngineError as problem:
            self._fatal = problem
        self._wind_up()
        if self._fatal is not None:
            raise self._fatal

    def _is_over(self) -> bool:
        if self._inbox.is_stopping:
            return True
        if not self._inbox.has_ended:
            return False
        if self._inbox.ended_for_s > self._settings.drain_s:
            _log.warning("open work is not done %.0f s after the end", self._settings.drain_s)
            return True
        session = self._session
        return self._inbox.is_empty and not (session is not None and session.scheduler.has_work)

    def _step(self) -> None:
        """One step of the session, or a sleep until something happens."""
        session, feed = self._session, self._feed
        if session is None or feed is None:
            self._sleep(None)
            return
        self._show_work(session)
        worked = session.step()
        self._show_work(session)
        feed.tick(time.monotonic())
        if not worked:
            self._sleep(feed.wait_s(time.monotonic()))

    def _show_work(self, session: Session) -> None:
        busy = session.scheduler.is_busy
        self._set_state(EngineState.GENERATING if busy else EngineState.READY)

    def _sleep(self, timeout_s: float | None) -> None:
        if not self._inbox.has_ended:
            self._inbox.wait(timeout_s)

    def _wind_up(self) -> None:
        """Every open command gets its end; then the memory is freed."""
        self._set_state(EngineState.STOPPING)
        fatal = self._fatal
        reason = FinishReason.CANCELLED if fatal is None else FinishReason.ERROR
        for command in self._inbox.rest():
            if isinstance(command, Generate):
                self._emit(Finished(id=command.id, reason=reason))
        if self._session is not None:
            self._session.scheduler.end_all(reason, fatal)
            if not isinstance(fatal, DeviceError):  # a lost device may never answer a free
                self._session.close()
        self._session = self._feed = None

    def _execute(self, arrived: Arrived) -> None:
        """Execute one command; what it raises is its answer. The second half of the pipe's door."""
        command, self._arrived_s = arrived.command, arrived.at_s
        is_twin = isinstance(command, Generate) and command.id in self._replies
        try:
            self._do(command)
        except EngineError as problem:
            self._refuse(command, problem, is_twin)
            if isinstance(problem, DeviceError) and not isinstance(command, Load):
                raise
        except Exception as problem:  # noqa: BLE001  one command must not end the engine
            _log.error("a command failed", exc_info=problem)
            self._refuse(command, InternalError(f"The command failed: {problem!r}."), is_twin)
        if isinstance(command, Load | Unload):
            trim_heap()  # only now does nothing point to what was freed

    def _refuse(self, command: Command, problem: EngineError, is_twin: bool) -> None:
        """Answer with the error; a request also gets its end, unless another has its name."""
        self._emit(error_event(problem, getattr(command, "id", "")))
        if isinstance(command, Generate) and not is_twin:
            self._replies.drop(command.id)
            self._emit(Finished(id=command.id, reason=FinishReason.ERROR))

    # --- commands ----------------------------------------------------------------------------

    @singledispatchmethod
    def _do(self, command: object) -> None:
        raise InternalError(f"There is no handler for {type(command).__name__}.")

    @_do.register
    def _do_load(self, command: Load) -> None:
        self._close_session()
        self._set_state(EngineState.LOADING, command.model)
        try:
            model = self._open_model(command, self._settings, self._watch(command))
        except BaseException:
            self._set_state(EngineState.IDLE)
            raise
        finally:
            self._cancelled.discard(command.id)
        self._begin(model)
        for code, sentence in model.notices:
            self._emit(load_notice(code, sentence))
        self._emit(Loaded(id=command.id, model=model.info))
        self._say_status()
        if self._feed is not None:
            self._feed.say_map()

    @_do.register
    def _do_unload(self, command: Unload) -> None:
        self._close_session()
        self._set_state(EngineState.IDLE)
        self._emit(Unloaded(id=command.id))
        self._say_status()

    @_do.register
    def _do_generate(self, command: Generate) -> None:
        if command.id in self._replies:
            raise InvalidRequest(f"A request {command.id!r} is already open.")
        self._submit(command)

    @_do.register
    def _do_resize(self, command: Resize) -> None:
        session = self._loaded_session()
        if command.preview:
            self._emit(session.preview(command))
            return
        asked_s = self._arrived_s
        session.scheduler.safepoint.do(lambda: self._apply(session, command, asked_s))

    @_do.register
    def _do_set_policy(self, command: SetPolicy) -> None:
        session = self._loaded_session()

        def apply() -> None:
            session.set_policy(command.policy)
            self._say_status(command.id)

        session.scheduler.safepoint.do(apply)

    @_do.register
    def _do_count(self, command: CountTokens) -> None:
        chat = self._loaded_session().model.chat
        ids = chat.tokenizer.encode(chat.prompt(command.messages))
        self._emit(TokenCount(id=command.id, num_tokens=len(ids)))

    def _submit(self, command: Generate) -> None:
        session = self._loaded_session()
        sampling = command.sampling
        sampling.check()
        chat = session.model.chat
        prompt = chat.prompt(
            command.messages, command.tools, command.continue_last, command.template_args
        )
        request = Request(
            id=command.id,
            prompt=tuple(chat.tokenizer.encode(prompt)),
            sampling=sampling,
            seed=secrets.randbits(62) if sampling.seed is None else sampling.seed,
            timing=Timing(submitted_s=self._arrived_s),
        )
        tail = prompt[-PROMPT_TAIL_CHARS:]
        self._replies.open(command.id, chat.reply(sampling.stop, sampling.ignore_eos, tail))
        session.scheduler.submit(request)

    def _loaded_session(self) -> Session:
        if self._session is None:
            raise InvalidRequest("No model is loaded.", "Load a model first.")
        return self._session

    def _apply(self, session: Session, command: Resize, asked_s: float) -> None:
        """Resize at the safe point."""
        before = self._state
        self._set_state(EngineState.MOVING)
        outcome = session.resize(command, asked_s)
        self._set_state(before)
        self._say_sizes(outcome)

    def _say_sizes(self, outcome: ResizeApplied | ResizeRefused) -> None:
        """Tell of a change of the sizes, asked for or not, and what holds now."""
        self._emit(outcome)
        if not isinstance(outcome, ResizeRefused) and self._feed is not None:
            self._feed.say_map()
        self._say_status()

    def _begin(self, model: LoadedModel) -> None:
        self._session = Session(model, self._settings, self._replies, self._emit, self._say_sizes)
        self._feed = StatsFeed(self._session, self._settings, self._emit, time.monotonic())
        self._set_state(EngineState.READY)

    def _close_session(self) -> None:
        session, self._session, self._feed = self._session, None, None
        if session is not None:
            try:
                session.scheduler.end_all(FinishReason.CANCELLED)
            finally:
                session.close()
            del session
            trim_heap()  # before another model counts what is free

    def _watch(self, command: Load) -> LoadWatch:
        pace = ProgressPace()

        def progress(stage: str, done_bytes: int, total_bytes: int) -> None:
            if not pace.is_due(stage, done_bytes == total_bytes, time.monotonic()):
                return
            self._emit(
                Progress(id=command.id, stage=stage, done_bytes=done_bytes, total_bytes=total_bytes)
            )

        def cancelled() -> bool:
            too_late = self._inbox.ended_for_s > self._settings.drain_s
            return command.id in self._cancelled or self._inbox.is_stopping or too_late

        return LoadWatch(progress, cancelled)

    # --- state and status --------------------------------------------------------------------

    def _set_state(self, state: EngineState, detail: str = "") -> None:
        if state is not self._state:
            self._state = state
            self._emit(StateChanged(state=state, detail=detail))

    def _say_status(self, status_id: str = "") -> None:
        self._emit(msgspec.structs.replace(self._snapshot(), id=status_id))

    def _snapshot(self) -> Status:
        """Return the status now. Reads only, so any thread may ask."""
        session = self._session
        if session is None:
            return Status(state=self._state, devices=bare_status(self._find_devices()))
        return Status(
            state=self._state,
            devices=(session.device_status(),),
            model=session.model.info,
            policy=session.policy,
            kernels=session.model.kernels,
        )


def _load(command: Load, settings: EngineSettings, watch: LoadWatch) -> LoadedModel:
    from engine.loader.any_way import open_any_way  # torch takes a second; Hello comes first

    return open_any_way(command, settings, watch)
