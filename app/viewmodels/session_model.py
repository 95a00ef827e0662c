"""Which model is loaded, and how it gets there: chosen at the start, prepared, loaded, remembered.

Part of the session view model; QtCore only. Knows no words of the window but its own sentences.
"""

from pathlib import Path

from msgspec.structs import replace
from PySide6.QtCore import QObject, Signal

from app.services.device_choice import CPU, DevicePicker
from app.services.engine_client import EngineClient
from app.services.job_runner import JobRunner
from app.services.job_state import JobState
from app.services.loans import is_loan
from app.services.model_library import ModelEntry, ModelLibrary, targets_of
from app.services.settings import ModelProfile, SettingsStore
from app.viewmodels.session_words import Problem, refused_load
from app.wording import tr
from engine.protocol import messages as m
from engine.protocol.errors import ErrorCode


class ModelLoader(QObject):
    """Brings a model in.

    Attributes:
        target: folder of the model that is or shall be loaded.
        share: done part of the running load, None = no load or not known.
        preparing: the job that converts a model that came with the app.
        resting: folder of the model that was unloaded while idle; the next message loads it.

    Signals:
        changed(): any of them differs.
        refused(Problem): a model could not be prepared or loaded.
        noticed(str): a sentence worth a toast.
        warned(str): the same, of something that a person should know.
    """

    changed = Signal()
    refused = Signal(object)
    noticed = Signal(str)
    warned = Signal(str)

    def __init__(
        self,
        client: EngineClient,
        library: ModelLibrary,
        jobs: JobRunner,
        settings: SettingsStore,
    ) -> None:
        super().__init__()
        self._client, self._library, self._jobs, self._settings = client, library, jobs, settings
        self._devices = DevicePicker(client, settings)
        self.target: Path | None = None
        self.share: float | None = None
        self.resting: Path | None = None
        self._load_id = ""
        self._budget: m.Budget | None = None
        self._job_id = ""
        self._older: Path | None = None  # of the model that is being made anew
        self._wants_model = False
        self._policy = m.MissPolicy.TWO_ENDED  # in force
        self._slots: int | None = None  # for one load, instead of the remembered ones
        self._held_slots = self._chosen_slots = 0  # of the loaded model; they differ while yielded
        for job in ("convert", "move"):
            jobs.set_extra(job, library.job_extra)
        client.ready.connect(self._on_ready)
        client.progress.connect(self._on_progress)
        client.loaded.connect(self._on_loaded)
        client.status.connect(self._on_status)
        client.resize_applied.connect(self._on_resized)
        client.failed.connect(self._on_failed)
        library.changed.connect(self._choose)
        jobs.done.connect(self._on_job_done)
        jobs.failed.connect(self._on_job_failed)
        jobs.changed.connect(self._on_jobs)

    @property
    def is_loading(self) -> bool:
        """Whether a load was sent and has not ended."""
        return bool(self._load_id)

    @property
    def chosen_slots(self) -> int:
        """Expert slots of the model loaded last, as chosen, not as yielded; 0 = not known."""
        return self._chosen_slots

    @property
    def preparing(self) -> JobState | None:
        """The open job that prepares the coming model."""
        job = self._jobs.job(self._job_id) if self._job_id else None
        return job if job is not None and job.is_open else None

    def choose_at_start(self) -> None:
        """Load the last model, else the built-in one, as soon as the library has looked."""
        self._wants_model = self._settings.value.load_last_model
        self._choose()

    def choose_now(self) -> None:
        """The same, because the person asks for it."""
        self._wants_model = True
        self._choose()

    def load(self, path: Path) -> None:
        """Load a model; what came with the app is prepared first, and anew with a newer app."""
        entry = self._library.entry(path)
        self._wants_model, self.resting = False, None
        if self._is_loaded(path):
            return
        if entry is not None and (entry.kind == "builtin_source" or entry.renew_from is not None):
            self._prepare(entry)
        else:
            self._load(path)

    def _load(self, path: Path) -> None:
        self.target = path
        if self._client.is_ready:
            self._send(remembered=True)
        elif not self._client.process.is_running:
            self._client.start()  # sent when ready
        self.changed.emit()

    def unload(self) -> None:
        """Free the model, and load none by itself."""
        self.target = self.resting = None
        self._wants_model = False
        if self._client.model is not None:
            self._client.unload()

    def rest(self) -> None:
        """Free the model until somebody needs it."""
        model = self._client.model
        if model is not None and not self.is_loading:
            self.unload()
            self.resting = Path(model.path)
            self.changed.emit()

    def wake(self) -> None:
        """Somebody needs the model that was freed while idle."""
        if self.resting is not None:
            self.load(self.resting)

    def load_again(self, slots: int | None) -> None:
        """After a restart: take the last model again, perhaps with other expert slots."""
        last = self._settings.value.last_model
        if self.target is None and last and Path(last).is_dir():
            self.target = Path(last)
        self._slots = slots

    def cancel(self) -> None:
        """Stop the load, else the preparation."""
        if self._load_id:
            self.target = None
            self._client.cancel(self._load_id)
        elif self._job_id:
            self._jobs.cancel(self._job_id)

    def _is_loaded(self, path: Path) -> bool:
        model = self._client.model
        return model is not None and Path(model.path) == path == self.target and not self.is_loading

    def profile(self) -> ModelProfile:
        """Return what is remembered for the coming model."""
        return self._settings.profile(self.target.name if self.target else "")

    # --- steps

    def _choose(self) -> None:
        if not self._wants_model or not self._library.is_scanned:
            return
        entries = self._library.entries()
        last = self._settings.value.last_model
        ready = [entry for entry in entries if entry.kind == "ftw"]
        choice = next((e for e in ready if last and str(e.path) == last), None)
        choice = choice or next((e for e in ready if e.is_builtin), None)
        choice = choice or next((e for e in entries if e.is_builtin), None)
        self._wants_model = False
        if choice is not None:
            self.load(choice.path)

    def _prepare(self, entry: ModelEntry) -> None:
        """Convert a model that came with the app, or take an interrupted conversion up again."""
        source, self._older = entry.path, None
        if entry.renew_from is not None:
            source, self._older = entry.renew_from, entry.path
        kept = next((j for j in self._jobs.jobs() if _converts(j, source)), None)
        if kept is not None and kept.phase != "done":
            self._job_id = kept.id
            self._jobs.resume(kept.id)
            self.changed.emit()
            return
        try:
            coming = targets_of(self._jobs.jobs())
            target = self._older or self._library.target_for(entry.name, coming)
        except OSError as problem:
            hint = tr("Choose a models folder in Settings.")
            self.refused.emit(Problem("load", str(problem), hint))
            return
        self._job_id = self._jobs.start(
            "convert",
            {
                "source": str(source),
                "target": str(target),
                "room_at": str(target.parent),
                "id": entry.name,
                **({"replace": True} if self._older is not None else {}),
            },
            tr("Preparing {model}", model=entry.name),
        )
        self.changed.emit()

    def _send(self, remembered: bool, device: str = "") -> None:
        """Load the target; `device` other than the picked one after a card gave way."""
        if self.target is None:
            return
        for reply in self._client.open_replies:
            self._client.cancel(reply)
        name = device or self._devices.pick()
        profile = self.profile() if remembered else ModelProfile()
        if profile.device != name:
            profile = replace(profile, kv_tokens=None, expert_slots=None)
        total = self._settings.value.budget_mib * 1024 * 1024
        self._budget = m.Budget(
            total_bytes=total or None,
            kv_tokens=profile.kv_tokens,
            expert_slots=self._slots or profile.expert_slots,
        )
        self._slots = self.share = None
        policy = self._policy = profile.policy or m.MissPolicy(self._settings.value.policy)
        self._load_id = self._client.load(str(self.target), self._budget, (name,), policy)

    # --- events

    def _on_ready(self) -> None:
        if notice := self._devices.take_notice():
            self.warned.emit(notice)
        self._send(remembered=True)
        self.changed.emit()

    def _on_progress(self, event: m.Progress) -> None:
        if event.id == self._load_id and event.total_bytes:
            self.share = min(1.0, event.done_bytes / event.total_bytes)
            self.changed.emit()

    def _on_loaded(self, event: m.Loaded) -> None:
        self._load_id, self.share = "", None
        status = self._client.last_status
        is_told = status is not None and status.model == event.model
        self._held_slots = self._chosen_slots = _slots_of(status) if status and is_told else 0
        self.target = Path(event.model.path)
        self._settings.set(last_model=event.model.path)
        self.changed.emit()

    def _on_status(self, event: m.Status) -> None:
        """Remember another policy than the one the model was loaded with."""
        if event.model is not None and event.policy != self._policy:
            self._policy = event.policy
            self._settings.set_profile(_key(event.model), policy=event.policy)
        if event.model is not None and not self._chosen_slots:
            self._held_slots = self._chosen_slots = _slots_of(event)

    def _on_resized(self, event: m.ResizeApplied) -> None:
        """Remember what the person chose; what was yielded for a while is no choice."""
        if event.taken_slots:  # nor is what a long chat made of it: the next load begins as chosen
            self._held_slots = event.expert_slots
            self._chosen_slots = max(0, self._chosen_slots - event.taken_slots)
            return
        if event.expert_slots != self._held_slots and not is_loan(event.id):
            self._chosen_slots = event.expert_slots
        self._held_slots = event.expert_slots
        model = self._client.model
        if model is not None and not is_loan(event.id):
            slots = self._chosen_slots or event.expert_slots
            self._settings.set_profile(
                _key(model),
                kv_tokens=event.kv_tokens,
                expert_slots=slots,
                device=next(iter(model.devices), CPU),
            )

    def _on_failed(self, event: m.Error) -> None:
        if not event.id or event.id != self._load_id:
            return
        self._load_id, self.share = "", None
        asked = self._budget and (self._budget.kv_tokens or self._budget.expert_slots)
        if event.code is ErrorCode.BUDGET and asked and self._client.is_ready:
            self.noticed.emit(tr("The remembered split does not fit; the engine chooses one."))
            self._send(remembered=False, device=self._devices.name)
        elif event.code is not ErrorCode.CANCELLED and self._client.is_running:
            self._refuse(event)
        self.changed.emit()

    def _refuse(self, event: m.Error) -> None:
        """Take another device where that is ours to decide, else tell the person."""
        device, sentence = self._devices.give_way(event)
        if device:
            self.warned.emit(sentence)
            self._send(remembered=True, device=device)
        else:
            self.target = None
            self.refused.emit(refused_load(event))

    def _on_job_done(self, job_id: str, event: m.JobDone) -> None:
        if event.job == "convert":
            self._library.refresh()
        if job_id != self._job_id:
            return
        self._job_id = ""
        job = self._jobs.job(job_id)
        target = event.result.get("path") or (job.spec.get("target") if job else None)
        if isinstance(target, str):
            self._load(Path(target))

    def _on_job_failed(self, job_id: str, event: m.Error) -> None:
        if job_id != self._job_id:
            return
        self._job_id = ""
        older, self._older = self._older, None
        if event.code is not ErrorCode.CANCELLED and older is not None:
            why = event.message
            self.noticed.emit(tr("The built-in model could not be renewed: {why}", why=why))
            self._load(older)
        elif event.code is not ErrorCode.CANCELLED:
            self.refused.emit(refused_load(event))
        self.changed.emit()

    def _on_jobs(self) -> None:
        if self._job_id:
            self.changed.emit()


def _key(model: m.ModelInfo) -> str:
    """Profiles are kept under the folder's name: it is there before the model is loaded."""
    return Path(model.path).name


def _slots_of(status: m.Status) -> int:
    pools = status.devices[0].pools if status.devices else ()
    return next((pool.units for pool in pools if pool.name == "experts"), 0)


def _converts(job: JobState, source: Path) -> bool:
    return job.job == "convert" and job.spec.get("source") == str(source)
