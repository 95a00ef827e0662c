"""The session: engine, model, and what stands in rail and top strip. QtCore only.

Brings the engine up, prepares and loads a model at the start, keeps each model's split, and says in
words what went wrong. Pages have their own view models; this one is shared by the window.
"""

from dataclasses import dataclass, replace
from pathlib import Path

from PySide6.QtCore import QObject, Signal

from app.services.engine_client import EngineClient
from app.services.gpu_meter import GpuMeter, MeterReading
from app.services.job_runner import JobRunner
from app.services.job_state import JobState
from app.services.model_library import ModelEntry, ModelLibrary
from app.services.outcome import ProcessOutcome
from app.services.settings import ModelProfile, SettingsStore
from app.viewmodels.session_words import (
    Pill,
    Problem,
    lost_engine,
    pill_of,
    refused_load,
    silent_engine,
)
from app.wording import tr
from engine.protocol import messages as m
from engine.protocol.errors import ErrorCode

SMALLER = 0.9  # "Restart with 10 % smaller cache"


@dataclass(frozen=True, slots=True)
class SessionState:
    """What the window shows everywhere.

    Attributes:
        pill: state, words and share of the state pill.
        model_name, model_format: of the loaded or coming model, "" = none.
        model_path: its folder, None = none.
        tokens_per_s: decode rate while a reply is written, else None.
        context_used, context_capacity: tokens; capacity 0 = no model.
        can_stop: whether a Stop button makes sense.
        is_loaded: whether a model answers.
        problem: what went wrong, until it is mended.
    """

    pill: Pill = Pill("off")
    model_name: str = ""
    model_format: str = ""
    model_path: Path | None = None
    tokens_per_s: float | None = None
    context_used: int = 0
    context_capacity: int = 0
    can_stop: bool = False
    is_loaded: bool = False
    problem: Problem | None = None


class SessionViewModel(QObject):
    """See the module.

    Signals:
        changed(): `state` differs.
        meters_changed(): `reading` or `device` differ.
        models_changed(): `models` differs.
        notice(str): a sentence worth a toast.
    """

    changed = Signal()
    meters_changed = Signal()
    models_changed = Signal()
    notice = Signal(str)

    def __init__(
        self,
        client: EngineClient,
        library: ModelLibrary,
        jobs: JobRunner,
        settings: SettingsStore,
        meter: GpuMeter | None = None,
    ) -> None:
        super().__init__()
        self._client, self._library, self._jobs, self._settings = client, library, jobs, settings
        self._state = SessionState()
        self._reading: MeterReading | None = None
        self._target: Path | None = None  # the model that is to be loaded
        self._load_id = ""
        self._load_share: float | None = None
        self._budget: m.Budget | None = None
        self._preparing = ""  # id of the job that converts the built-in model
        self._wants_model = False
        self._restart_slots: int | None = None
        self._is_restarting = False
        self._is_closing = False
        self._stats: m.Stats | None = None
        self._problem: Problem | None = None
        self._connect(meter)

    def _connect(self, meter: GpuMeter | None) -> None:
        client = self._client
        client.ready.connect(self._on_ready)
        client.running_changed.connect(self._update)
        client.state_changed.connect(self._on_state)
        client.progress.connect(self._on_progress)
        client.loaded.connect(self._on_loaded)
        client.unloaded.connect(self._update)
        client.started.connect(self._update)
        client.finished.connect(self._update)
        client.stats.connect(self._on_stats)
        client.status.connect(self._on_status)
        client.resize_applied.connect(self._on_resized)
        client.failed.connect(self._on_failed)
        client.stopped.connect(self._on_stopped)
        client.responding_changed.connect(self._on_responding)
        client.notice.connect(self._on_notice)
        self._library.changed.connect(self._on_library)
        self._jobs.done.connect(self._on_job_done)
        self._jobs.failed.connect(self._on_job_failed)
        self._jobs.changed.connect(self._on_jobs)
        if meter is not None:
            meter.reading.connect(self._on_reading)

    # --- facts

    @property
    def state(self) -> SessionState:
        """What is shown now."""
        return self._state

    @property
    def reading(self) -> MeterReading | None:
        """The newest reading of the driver."""
        return self._reading

    @property
    def device(self) -> m.DeviceStatus | None:
        """The engine's own account of its first device, for the bar in the rail."""
        status = self._client.last_status
        return status.devices[0] if status and status.devices else None

    @property
    def models(self) -> tuple[ModelEntry, ...]:
        """Models for the picker."""
        return self._library.entries()

    @property
    def job_share(self) -> float | None:
        """Share of the running job, for the badge on Models; None = no job, or no total yet."""
        running = next((job for job in self._jobs.jobs() if job.phase == "running"), None)
        return running.share if running else None

    # --- intents

    def start(self) -> None:
        """Bring the engine up and see which model to load."""
        self._wants_model = self._settings.value.load_last_model
        self._client.start()
        self._library.refresh()
        self._update()

    def load(self, path: str | Path) -> None:
        """Load a model; one that came with the app is prepared first. Starts the engine if needed."""
        entry = self._library.entry(path)
        self._problem = None
        if entry is not None and entry.kind == "builtin_source":
            self._prepare(entry)
        else:
            self._load(Path(path), remembered=True)
        self._update()

    def unload(self) -> None:
        """Free the model."""
        self._target = None
        self._wants_model = False
        if self._client.model is not None:
            self._client.unload()

    def stop(self) -> None:
        """Stop what runs: the replies, else the load, else the preparation (case G-10)."""
        replies = self._client.open_replies
        if replies:
            for reply in replies:
                self._client.cancel(reply)
        elif self._load_id:
            self._target = None
            self._client.cancel(self._load_id)
        elif self._preparing:
            self._jobs.cancel(self._preparing)

    def restart(self, smaller: bool = False) -> None:
        """Start the engine again with the same model; `smaller` = with 10 % fewer expert slots."""
        status = self.device
        if smaller and status is not None:
            experts = next((p for p in status.pools if p.name == "experts"), None)
            self._restart_slots = self._fewer(experts.units) if experts else None
        elif smaller:
            slots = self._profile().expert_slots
            self._restart_slots = self._fewer(slots) if slots else None
        self._client.process.restarts.clear()
        self._problem = None
        self._is_restarting = True
        if self._client.process.is_running:
            self._client.stop()  # the rest follows in _on_stopped
        else:
            self._start_again()
        self._update()

    def dismiss_problem(self) -> None:
        """Take the problem from the screen."""
        self._problem = None
        self._update()

    def close(self) -> None:
        """The app ends: what happens from now on is no problem of anybody."""
        self._is_closing = True

    # --- loading

    def _load(self, path: Path, remembered: bool) -> None:
        self._target = path
        self._wants_model = False
        self._problem = None
        if not self._client.is_running:
            if not self._client.process.is_running:
                self._client.start()
            return  # sent in _on_ready
        if self._client.is_ready:
            self._send_load(remembered)

    def _send_load(self, remembered: bool) -> None:
        assert self._target is not None
        for reply in self._client.open_replies:
            self._client.cancel(reply)
        profile = self._profile() if remembered else ModelProfile()
        slots = self._restart_slots or profile.expert_slots
        total = self._settings.value.budget_mib * 1024 * 1024
        self._budget = m.Budget(
            total_bytes=total or None, kv_tokens=profile.kv_tokens, expert_slots=slots
        )
        self._restart_slots = None
        self._load_share = None
        self._load_id = self._client.load(
            str(self._target),
            self._budget,
            policy=profile.policy or m.MissPolicy.SPLIT,
        )

    def _prepare(self, entry: ModelEntry) -> None:
        """Convert a model that came with the app, or take an interrupted conversion up again."""
        self._wants_model = False
        kept = next((j for j in self._jobs.jobs() if _converts(j, entry.path)), None)
        if kept is not None and kept.phase != "done":
            self._preparing = kept.id
            self._jobs.resume(kept.id)
            return
        try:
            target = self._library.target_for(entry.name)
        except OSError as problem:
            self._problem = Problem("load", str(problem), tr("Choose a models folder in Settings."))
            return
        self._preparing = self._jobs.start(
            "convert",
            {"source": str(entry.path), "target": str(target), "id": entry.name},
            tr("Preparing {model}", model=entry.name),
        )

    def _choose(self) -> None:
        """At the start: the last model, else the built-in one."""
        if not self._wants_model or not self._library.is_scanned:
            return
        entries = self._library.entries()
        last = self._settings.value.last_model
        ready = [e for e in entries if e.kind == "ftw"]
        choice = next((e for e in ready if last and str(e.path) == last), None)
        choice = choice or next((e for e in ready if e.is_builtin), None)
        choice = choice or next((e for e in entries if e.is_builtin), None)
        self._wants_model = False
        if choice is not None:
            self.load(choice.path)

    def _start_again(self) -> None:
        self._is_restarting = False
        last = self._settings.value.last_model
        if self._target is None and last and Path(last).is_dir():
            self._target = Path(last)
        self._client.start()

    def _profile(self) -> ModelProfile:
        return self._settings.profile(self._target.name if self._target else "")

    def _fewer(self, slots: int) -> int:
        return max(1, int(slots * SMALLER))

    # --- events of the engine

    def _on_ready(self) -> None:
        if self._target is not None:
            self._send_load(remembered=True)
        self._update()

    def _on_state(self) -> None:
        self._update()

    def _on_progress(self, event: m.Progress) -> None:
        if event.id == self._load_id and event.total_bytes:
            self._load_share = min(1.0, event.done_bytes / event.total_bytes)
            self._update()

    def _on_loaded(self, event: m.Loaded) -> None:
        self._load_id, self._load_share = "", None
        self._problem = None
        self._target = Path(event.model.path)
        self._settings.set(last_model=event.model.path)
        self._update()

    def _on_stats(self, event: m.Stats) -> None:
        self._stats = event
        self._update()

    def _on_status(self, event: m.Status) -> None:
        if event.model is not None and event.policy != (
            self._settings.profile(_key(event.model)).policy or m.MissPolicy.SPLIT
        ):
            self._settings.set_profile(_key(event.model), policy=event.policy)
        self.meters_changed.emit()
        self._update()

    def _on_resized(self, event: m.ResizeApplied) -> None:
        model = self._client.model
        if model is not None:
            self._settings.set_profile(
                _key(model), kv_tokens=event.kv_tokens, expert_slots=event.expert_slots
            )

    def _on_failed(self, event: m.Error) -> None:
        if event.id and event.id == self._load_id:
            self._load_id, self._load_share = "", None
            asked = self._budget and (self._budget.kv_tokens or self._budget.expert_slots)
            if event.code is ErrorCode.BUDGET and asked and self._client.is_ready:
                self.notice.emit(tr("The remembered split does not fit; the engine chooses one."))
                self._send_load(remembered=False)
            elif event.code is not ErrorCode.CANCELLED and self._client.is_running:
                self._problem = refused_load(event)
        elif event.code is ErrorCode.PROTOCOL and not event.id:
            self._problem = refused_load(event)
        self._update()

    def _on_stopped(self, outcome: ProcessOutcome) -> None:
        self._load_id, self._load_share, self._stats = "", None, None
        if self._is_restarting:
            self._start_again()
        elif outcome.unexpected and not self._is_closing:
            self._problem = lost_engine(outcome, self._client.process.restarts.is_reached)
        self._update()

    def _on_responding(self, responding: bool) -> None:
        if not responding:
            self._problem = silent_engine()
        elif self._problem is not None and self._problem.kind == "silent":
            self._problem = None
        self._update()

    def _on_notice(self, event: m.Notice) -> None:
        if event.level == "warning":
            self.notice.emit(event.message)

    # --- events of library, jobs and meter

    def _on_library(self) -> None:
        self.models_changed.emit()
        self._choose()
        self._update()

    def _on_job_done(self, job_id: str, event: m.JobDone) -> None:
        if event.job == "convert":
            self._library.refresh()
        if job_id != self._preparing:
            return
        self._preparing = ""
        job = self._jobs.job(job_id)
        target = event.result.get("path") or (job.spec.get("target") if job else None)
        if isinstance(target, str):
            self._load(Path(target), remembered=True)
        self._update()

    def _on_job_failed(self, job_id: str, event: m.Error) -> None:
        if job_id == self._preparing:
            self._preparing = ""
            if event.code is not ErrorCode.CANCELLED:
                self._problem = refused_load(event)
            self._update()

    def _on_jobs(self) -> None:
        if self._preparing:
            self._update()
        self.models_changed.emit()

    def _on_reading(self, reading: MeterReading) -> None:
        self._reading = reading
        self.meters_changed.emit()

    # --- the state

    def _update(self, *_: object) -> None:
        new = self._make_state()
        if new != self._state:
            self._state = new
            self.changed.emit()

    def _make_state(self) -> SessionState:
        client, model = self._client, self._client.model
        job = self._jobs.job(self._preparing) if self._preparing else None
        pill = pill_of(client, self._problem, job, self._load_share if self._load_id else None)
        state = SessionState(
            pill=pill,
            can_stop=bool(client.open_replies or self._load_id or self._preparing),
            is_loaded=model is not None,
            problem=self._problem,
        )
        if model is not None:
            state = replace(
                state,
                model_name=model.name,
                model_format=model.quant,
                model_path=Path(model.path),
            )
        elif self._target is not None or job is not None:
            entry = self._library.entry(self._target) if self._target else None
            name = entry.name if entry else self._target.name if self._target else ""
            coming = str(job.spec.get("id", "")) if job else name
            state = replace(
                state,
                model_name=coming,
                model_format=entry.quant if entry else "",
                model_path=self._target,
            )
        if self._stats is not None and model is not None:
            state = replace(
                state,
                tokens_per_s=self._stats.decode_tokens_per_s if client.open_replies else None,
                context_used=self._stats.context_used_tokens,
                context_capacity=self._stats.context_capacity_tokens,
            )
        return state


def _key(model: m.ModelInfo) -> str:
    """Profiles are kept under the folder's name: it is there before the model is loaded."""
    return Path(model.path).name


def _converts(job: JobState, source: Path) -> bool:
    return job.job == "convert" and job.spec.get("source") == str(source)
