"""The session: engine, model, and what stands in rail and top strip. QtCore only.

Brings the engine up and back, and says in words what went wrong. How a model gets loaded is in
`session_model`. Pages have their own view models; this one is shared by the window.
"""

from dataclasses import dataclass, replace
from pathlib import Path

from PySide6.QtCore import QObject, Signal

from app.services.engine_client import EngineClient
from app.services.gpu_meter import GpuMeter, MeterReading
from app.services.job_runner import JobRunner
from app.services.model_library import ModelLibrary
from app.services.outcome import ProcessOutcome
from app.services.power import WakeWatch
from app.services.settings import SettingsStore
from app.viewmodels.decode_window import DecodeWindow
from app.viewmodels.resilience import Resilience
from app.viewmodels.session_model import ModelLoader
from app.viewmodels.session_words import (
    ModelChoice,
    Problem,
    choice_of,
    engine_facts,
    refused_load,
    session_sentence,
    state_of,
)
from app.wording import tr
from engine.protocol import messages as m
from engine.protocol.errors import ErrorCode

_JOB_PAGES = {"profile": "profiler"}  # the rest is about models
SMALLER = 0.9  # "Restart with 10 % smaller cache"


@dataclass(frozen=True, slots=True)
class SessionState:
    """What the window shows everywhere.

    Attributes:
        state: what the engine does; LOADING also while it starts or a model is prepared.
        detail: words instead of the state's own, such as "Preparing 43 %", or "".
        share: done part of what LOADING means, None = not known.
        model_name, quant: of the loaded or coming model, "" = none.
        tok_s: decode rate while a reply is written, else 0; without prefill and waiting (G-20).
        can_stop: whether there is something to stop: replies, a load, a preparation.
        trouble: what went wrong, until it is mended or put away.
    """

    state: m.EngineState = m.EngineState.IDLE
    detail: str = ""
    share: float | None = None
    model_name: str = ""
    quant: str = ""
    tok_s: float = 0.0
    can_stop: bool = False
    trouble: Problem | None = None


class SessionViewModel(QObject):
    """See the module.

    Signals:
        changed(): any property differs.
        meters_changed(): `reading` or `status` differ.
        models_changed(): `models` or `job_shares` differ.
        notice(str, str): a sentence worth a toast, and its tone ("info", "warn").
    """

    changed = Signal()
    meters_changed = Signal()
    models_changed = Signal()
    notice = Signal(str, str)

    def __init__(
        self,
        client: EngineClient,
        library: ModelLibrary,
        jobs: JobRunner,
        settings: SettingsStore,
        meter: GpuMeter | None = None,
        wake: WakeWatch | None = None,
    ) -> None:
        super().__init__()
        self._client, self._library, self._jobs = client, library, jobs
        self._loader = ModelLoader(client, library, jobs, settings)
        self._resilience = Resilience(client, settings, wake)
        self._now = SessionState()
        self._reading: MeterReading | None = None
        self._slots: int | None = None
        self._is_restarting = False
        self._is_closing = False
        self._stats: m.Stats | None = None
        self._window, self._tok_s = DecodeWindow(), 0.0
        self._trouble: Problem | None = None
        self._connect(meter)

    def _connect(self, meter: GpuMeter | None) -> None:
        client, loader = self._client, self._loader
        for signal in (
            client.ready,
            client.running_changed,
            client.state_changed,
            client.unloaded,
            client.started,
            client.finished,
            loader.changed,
        ):
            signal.connect(self._update)
        client.loaded.connect(self._on_loaded)
        client.stats.connect(self._on_stats)
        client.status.connect(self._on_status)
        client.failed.connect(self._on_failed)
        client.stopped.connect(self._on_stopped)
        self._resilience.doubted.connect(self._on_doubted)
        self._resilience.said.connect(self.notice)
        client.notice.connect(self._on_notice)
        loader.refused.connect(self._on_refused)
        loader.noticed.connect(self._on_noticed)
        loader.warned.connect(self._on_warned)
        self._library.changed.connect(self._on_library)
        self._jobs.changed.connect(self.models_changed)
        if meter is not None:
            meter.reading.connect(self._on_reading)

    # --- facts

    @property
    def now(self) -> SessionState:
        """All facts of this moment."""
        return self._now

    @property
    def state(self) -> m.EngineState:
        """What the engine does; LOADING also while it starts or a model is prepared."""
        return self._now.state

    @property
    def state_detail(self) -> str:
        """Words instead of the state's own, or ""."""
        return self._now.detail

    @property
    def share(self) -> float | None:
        """Done part of what LOADING means, None = not known."""
        return self._now.share

    @property
    def model_name(self) -> str:
        """The loaded or coming model, "" = none."""
        return self._now.model_name

    @property
    def quant(self) -> str:
        """Its format."""
        return self._now.quant

    @property
    def tok_s(self) -> float:
        """Decode rate while a reply is written, else 0."""
        return self._now.tok_s

    @property
    def coming(self) -> Path | None:
        """Folder of the model that is being loaded, or waits for the engine; None = none."""
        return self._loader.target if self._client.model is None else None

    @property
    def can_stop(self) -> bool:
        """Whether there is something to stop."""
        return self._now.can_stop

    @property
    def trouble(self) -> Problem | None:
        """What went wrong, with all its parts."""
        return self._now.trouble

    @property
    def problem(self) -> str:
        """The same as one sentence, or ""."""
        trouble = self._now.trouble
        return f"{trouble.sentence} {trouble.hint}".strip() if trouble else ""

    @property
    def reading(self) -> MeterReading | None:
        """The newest reading of the driver."""
        return self._reading

    @property
    def status(self) -> m.Status | None:
        """The engine's own account of its memory; None without an engine."""
        return self._client.last_status

    @property
    def models(self) -> tuple[ModelChoice, ...]:
        """Models for the picker."""
        return tuple(choice_of(entry) for entry in self._library.entries())

    @property
    def job_shares(self) -> dict[str, float]:
        """Share of the running job by the page that shows it; no total yet = not there."""
        return {
            _JOB_PAGES.get(job.job, "models"): job.share
            for job in self._jobs.jobs()
            if job.phase == "running" and job.share is not None
        }

    @property
    def sentence(self) -> str:
        """State and model in one line, for the tray."""
        return session_sentence(self._now.state, self._now.detail, self._now.model_name)

    def engine_facts(self) -> tuple[tuple[str, str], ...]:
        """Return names and values for About: version, program, kernels."""
        return engine_facts(self._client)

    # --- intents

    def start(self) -> None:
        """Bring the engine up and see which model to load."""
        self._client.start()
        self._loader.choose_at_start()
        self._library.refresh()
        self._update()

    def load(self, path: str | Path) -> None:
        """Load a model; one that came with the app is prepared first. Starts the engine."""
        self._trouble = None
        self._loader.load(Path(path))
        self._update()

    def load_default(self) -> None:
        """Load the last model, else the built-in one: the button of an empty chat."""
        self._trouble = None
        self._client.start()
        self._loader.choose_now()
        self._update()

    def unload(self) -> None:
        """Free the model."""
        self._loader.unload()
        self._update()

    def rest(self) -> None:
        """Free the model because nobody has needed it for a while."""
        self._loader.rest()
        self._update()

    def wake(self) -> None:
        """A message waits: load what was freed while idle, if anything was."""
        self._loader.wake()
        self._update()

    def stop_reply(self) -> None:
        """Stop what runs: the replies, else the load, else the preparation (case G-10)."""
        replies = self._client.open_replies
        for reply in replies:
            self._client.cancel(reply)
        if not replies:
            self._loader.cancel()

    def restart_engine(self, smaller: bool = False) -> None:
        """Start the engine again with the same model; `smaller` = with 10 % fewer expert slots."""
        self._slots = self._fewer_slots() if smaller else None
        self._client.process.restarts.clear()
        self._trouble = None
        if self._client.process.is_running:
            self._is_restarting = True
            self._client.stop()  # the rest follows in _on_stopped
        else:
            self._start_again()
        self._update()

    def dismiss_problem(self) -> None:
        """Put the problem away."""
        self._trouble = None
        self._update()

    def close(self) -> None:
        """The app ends: what happens from now on is nobody's problem."""
        self._is_closing = True

    def _start_again(self) -> None:
        self._is_restarting = False
        self._loader.load_again(self._slots)
        self._client.start()

    def _fewer_slots(self) -> int | None:
        slots = self._loader.chosen_slots or self._loader.profile().expert_slots or 0
        return max(1, int(slots * SMALLER)) if slots else None

    # --- events

    def _on_loaded(self) -> None:
        self._trouble = None
        self._update()

    def _on_stats(self, event: m.Stats) -> None:
        self._stats = event
        frame = self._window.take(event)
        if frame is not None:
            self._tok_s = frame.decode_tokens_per_s
        elif not event.running:
            self._tok_s = 0.0
        self._update()

    def _on_status(self, event: m.Status) -> None:
        self.meters_changed.emit()
        self._update()

    def _on_failed(self, event: m.Error) -> None:
        if event.code is ErrorCode.PROTOCOL and not event.id:
            self._trouble = replace(refused_load(event), kind="stopped", can_restart=True)
        self._update()

    def _on_stopped(self, outcome: ProcessOutcome) -> None:
        self._stats = None
        if self._is_closing:
            return
        if self._is_restarting or (
            outcome.unexpected and self._resilience.restart_by_itself(outcome)
        ):
            self._start_again()
        elif outcome.unexpected:
            self._trouble = self._resilience.lost(outcome)
        self.meters_changed.emit()
        self._update()

    def _on_doubted(self, problem: Problem | None) -> None:
        is_over = problem is None and self._trouble is not None and self._trouble.kind == "silent"
        if problem is not None or is_over:
            self._trouble = problem
        self._update()

    def _on_notice(self, event: m.Notice) -> None:
        if event.level == "warning":
            self.notice.emit(event.message, "warn")

    def _on_noticed(self, sentence: str) -> None:
        self.notice.emit(sentence, "info")

    def _on_warned(self, sentence: str) -> None:
        self.notice.emit(sentence, "warn")

    def _on_refused(self, problem: Problem) -> None:
        self._trouble = problem
        self._update()

    def _on_library(self) -> None:
        self.models_changed.emit()
        self._update()

    def _on_reading(self, reading: MeterReading) -> None:
        self._reading = reading
        self.meters_changed.emit()

    # --- the state

    def _update(self, *_: object) -> None:
        new = self._make_state()
        if new != self._now:
            self._now = new
            self.changed.emit()

    def _make_state(self) -> SessionState:
        client, loader, model = self._client, self._loader, self._client.model
        job = loader.preparing
        engine, detail, share = state_of(client, job, loader.share if loader.is_loading else None)
        state = SessionState(
            state=engine,
            detail=detail,
            share=share,
            can_stop=bool(client.open_replies or loader.is_loading or job),
            trouble=self._trouble,
        )
        if model is not None:
            state = replace(state, model_name=model.name, quant=model.quant)
        elif job is not None:
            state = replace(state, model_name=str(job.spec.get("id", "")))
        elif loader.target is not None:
            entry = self._library.entry(loader.target)
            state = replace(
                state,
                model_name=entry.name if entry else loader.target.name,
                quant=entry.quant if entry else "",
            )
        elif loader.resting is not None and engine is m.EngineState.IDLE:
            name = loader.resting.name
            state = replace(state, model_name=name, detail=tr("Unloaded while idle"))
        if self._stats is not None and model is not None:
            state = replace(state, tok_s=self._tok_s if client.open_replies else 0.0)
        return state
