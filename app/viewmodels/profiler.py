"""The Profiler page's state: a running measurement with its live curves, or a stored one.

Starts the job "profile"; the engine's program measures and stores, this only listens and reads.
QtCore only.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import msgspec
from PySide6.QtCore import QObject, Signal

from app.predict.diagnosis import Finding, diagnose
from app.predict.profiles import STALE_DAYS, Conditions, Profile, best_profile
from app.predict.runs import RunLine, run_lines
from app.services.engine_client import EngineClient
from app.services.files import replace_file
from app.services.job_runner import JobRunner
from app.services.job_state import JobState
from app.services.machine_facts import MachineFacts, MachineReader
from app.viewmodels.profile_export import Kind, as_csv, as_json, as_text
from app.viewmodels.profile_shelf import ProfileShelf
from app.wording import figures, tr
from engine.protocol import messages as m
from engine.protocol.errors import ErrorCode

Mode = Literal["quick", "full"]
Phase = Literal["empty", "running", "done", "failed"]
Points = tuple[tuple[float, float], ...]


class ProfilerViewModel(QObject):
    """See the module.

    Signals:
        changed(): phase, progress, profile, history or a sentence differ.
        curves_changed(): a point was measured, or another profile is shown.
        measured(): a run ended well; the profile of this machine is another now.
    """

    changed = Signal()
    curves_changed = Signal()
    measured = Signal()

    def __init__(
        self,
        jobs: JobRunner,
        client: EngineClient,
        profiles: Path,
        clock: Callable[[], float] = time.time,
        reader: MachineReader | None = None,
    ) -> None:
        super().__init__()
        self._jobs, self._client, self._clock, self._reader = jobs, client, clock, reader
        self._around: Conditions | None = None  # of the running measurement
        self._shelf = ProfileShelf(profiles)
        self._job_id = ""
        self._format = ""
        self._live: dict[str, dict[str, dict[float, float]]] = {}  # format, link, size -> GB/s
        self.error: m.Error | None = None
        self.history: tuple[Profile, ...] = ()
        self._shown: Profile | None = None
        jobs.progress.connect(self._on_progress)
        jobs.point.connect(self._on_point)
        jobs.done.connect(self._on_done)
        jobs.failed.connect(self._on_failed)
        jobs.changed.connect(self._on_jobs)
        client.loaded.connect(self._on_model)
        client.unloaded.connect(self._on_model)
        client.state_changed.connect(self._tell)
        if reader is not None:
            reader.known.connect(self._on_facts)
        self._read()

    # --- facts ------------------------------------------------------------------------------

    @property
    def phase(self) -> Phase:
        """What the page shows first of all."""
        if self._job_id:
            return "running"
        if self.error is not None:
            return "failed"
        return "done" if self._shown is not None else "empty"

    @property
    def job(self) -> JobState | None:
        """The running measurement."""
        return self._jobs.job(self._job_id) if self._job_id else None

    @property
    def profile(self) -> Profile | None:
        """The measurement that is shown; None while none was ever made."""
        return self._shown

    @property
    def selected(self) -> int:
        """Index of the shown measurement in `history`; -1 = none."""
        return self.history.index(self._shown) if self._shown in self.history else -1

    @property
    def is_emulated(self) -> bool:
        """Whether fills are copies from memory to memory on this machine."""
        if self._shown is not None and not self._job_id:
            return self._shown.emulated
        devices = self._client.devices
        return not devices or all(device.emulated for device in devices)

    def curve(self, link: str) -> Points:
        """Points (bytes, GB/s) of a link: live ones while measuring, else stored ones."""
        if self._job_id:
            return tuple(sorted(self._live.get(self._format, {}).get(link, {}).items()))
        return self._shown.curve(link) if self._shown is not None else ()

    @property
    def working_point(self) -> int:
        """Bytes of one expert of the model in use, else of the one that was measured; 0 = none."""
        model = self._client.model
        if model is not None:
            return model.record_bytes
        return self._shown.record_bytes if self._shown is not None else 0

    @property
    def stale(self) -> str:
        """Why the shown measurement may not hold for the present use, or ""."""
        profile, model = self._shown, self._client.model
        if profile is None or self._job_id:
            return ""
        days = profile.age_days(self._clock())
        if days > STALE_DAYS:
            return tr("Measured {days} days ago: the figures may be out of date.", days=days)
        if model is not None and model.quant != profile.format:
            return tr(
                "Measured for {old}; the loaded model uses {new}.",
                old=figures.weight_format(profile.format),
                new=figures.weight_format(model.quant),
            )
        if model is not None and model.record_bytes != profile.record_bytes:
            return tr("Measured for experts of another size than those of the loaded model.")
        return ""

    @property
    def busy(self) -> str:
        """What disturbs a measurement now, or ""."""
        if self._client.state is m.EngineState.GENERATING:
            return tr("A reply is being written: figures would come out too low.")
        return ""

    def lines(self) -> tuple[RunLine, ...]:
        """Return the history, newest first, each run beside the one before it."""
        return run_lines(self.history)

    def findings(self) -> tuple[Finding, ...]:
        """Return what the shown measurement means."""
        if self._shown is None:
            return ()
        return diagnose(self._shown, self._shelf.conditions(self._shown), self.history)

    def text(self) -> str:
        """Return the shown measurement for the clipboard."""
        return as_text(self._shown) if self._shown is not None else ""

    # --- intents ----------------------------------------------------------------------------

    def save(self, path: Path, kind: Kind) -> str:
        """Write the shown measurement. Returns "" or why it could not be written."""
        if self._shown is None:
            return ""
        noted = self._shelf.conditions(self._shown)
        data = as_csv(self._shown) if kind == "csv" else as_json(self._shown, noted)
        try:
            replace_file(path, data)
        except OSError as problem:
            return tr("It could not be written: {reason}.", reason=problem.strerror or "")
        return ""

    def run(self, mode: Mode, typical: bool = False) -> None:
        """Measure; does nothing while a measurement runs.

        Args:
            mode: how long.
            typical: measure typical experts of each format, not those of the loaded model.
        """
        if self._job_id:
            return
        model = None if typical else self._client.model
        spec: dict[str, object] = {
            "mode": mode,
            "model": model.path if model is not None else None,
            "device": self._device(),
            "output": str(self._shelf.folder),
        }
        self.error = None
        self._live.clear()
        self._format, self._around = "", None
        self._look()
        self._job_id = self._jobs.start("profile", spec, tr("Measure bandwidths"))
        self.changed.emit()
        self.curves_changed.emit()

    def cancel(self) -> None:
        """End the measurement; what was stored before stays."""
        if self._job_id:
            self._jobs.cancel(self._job_id)

    def dismiss(self) -> None:
        """Take the error from the page."""
        self.error = None
        self.changed.emit()

    def select(self, index: int) -> None:
        """Show another run of the history."""
        if 0 <= index < len(self.history):
            self._shown = self.history[index]
            self.changed.emit()
            self.curves_changed.emit()

    # --- events -----------------------------------------------------------------------------

    def _on_progress(self, job_id: str, event: m.Progress) -> None:
        if job_id == self._job_id:
            head, colon, _ = event.detail.partition(":")
            if colon and head != self._format:
                self._format = head
                self.curves_changed.emit()
            self.changed.emit()

    def _on_point(self, job_id: str, event: m.ProfilePoint) -> None:
        if job_id == self._job_id:
            link = self._live.setdefault(self._format, {}).setdefault(event.link, {})
            link[float(event.size_bytes)] = event.gbps
            self._look()
            self.curves_changed.emit()

    def _on_done(self, job_id: str, event: m.JobDone) -> None:
        if job_id != self._job_id:
            return
        self._job_id = ""
        paths = event.result.get("paths") or [event.result.get("path")]
        for path in paths:
            if isinstance(path, str) and path:
                self._shelf.keep(Path(path), self._around)
        self._read()
        self.measured.emit()

    def _on_failed(self, job_id: str, event: m.Error) -> None:
        if job_id == self._job_id:
            self._job_id = ""
            self.error = None if event.code is ErrorCode.CANCELLED else event
            self._tell()
            self.curves_changed.emit()

    def _on_jobs(self) -> None:
        if self._job_id:
            self.changed.emit()

    def _on_model(self, *_: object) -> None:
        self._choose()

    def _on_facts(self, facts: MachineFacts) -> None:
        """Note what is so: before the run, and under its load."""
        if self._job_id:
            now = conditions_of(facts)
            self._around = now if self._around is None else self._around.and_then(now)

    # --- parts ------------------------------------------------------------------------------

    def _look(self) -> None:
        if self._reader is not None:
            self._reader.ask(self._shelf.folder)

    def _read(self) -> None:
        self._shelf.refresh()
        self.history = self._shelf.earlier()
        self._choose()

    def _choose(self) -> None:
        """Show what suits the model in use, else the newest."""
        model = self._client.model
        if model is not None:
            self._shown = best_profile(self._shelf.profiles, model.quant, model.record_bytes)
        else:
            self._shown = self._shelf.profiles[0] if self._shelf.profiles else None
        self._tell()
        self.curves_changed.emit()

    def _device(self) -> str:
        model = self._client.model
        if model is not None and model.devices:
            return model.devices[0]
        real = [device.name for device in self._client.devices if not device.emulated]
        return real[0] if real else "cpu"

    def _tell(self, *_: object) -> None:
        self.changed.emit()


def conditions_of(facts: MachineFacts) -> Conditions:
    """Return what matters of the machine for a measurement."""
    gpu, modules = facts.gpu, facts.modules
    plain = Conditions(
        modules=modules.count, memory_mts=modules.speed_mts, on_battery=facts.on_battery
    )
    if gpu is None:
        return plain
    return msgspec.structs.replace(
        plain,
        link_generation=gpu.link_generation,
        link_width=gpu.link_width,
        best_width=gpu.best_width,
        gpu_busy=gpu.busy_share,
        temperature=gpu.temperature,
        is_throttled=gpu.is_throttled,
    )
