"""What a report of trouble says: program, machine, engine, model, settings, jobs, last log lines.

In English whatever language is in use, so that whoever helps can read it. Names, keys and addresses
are hidden before anybody sees the text: what is shown is what is copied. QtCore only.
"""

import getpass
import platform
import socket
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from PySide6.QtCore import QObject, Signal, qVersion

from app.predict import amounts
from app.services.engine_client import EngineClient
from app.services.files import replace_file
from app.services.job_runner import JobRunner
from app.services.log_ring import LogRing, line_text
from app.services.machine_facts import MachineFacts, MachineReader
from app.services.redaction import Redacted, redact
from app.services.settings import SettingsStore, fields
from app.wording import tr
from engine.protocol.messages import PROTOCOL_VERSION, Pool
from engine.protocol.places import DataRoot

LAST_LINES = 300
Section = tuple[str, Sequence[tuple[str, str]]]


@dataclass(frozen=True, slots=True)
class DiagnosticSources:
    """Where the facts come from.

    Attributes:
        version: of the app.
        problem: what is wrong with the engine now, "" = nothing.
    """

    version: str
    root: DataRoot
    client: EngineClient
    settings: SettingsStore
    jobs: JobRunner
    ring: LogRing
    machine: MachineReader
    problem: Callable[[], str]


class DiagnosticsViewModel(QObject):
    """See the module.

    Signals:
        changed(): the report differs: facts of the machine arrived.
    """

    changed = Signal()

    def __init__(self, sources: DiagnosticSources) -> None:
        super().__init__()
        self._from = sources
        self._machine: MachineFacts | None = None
        sources.machine.known.connect(self._on_machine)

    def begin(self) -> None:
        """Ask for facts of the machine; `changed` follows where they can be read."""
        self._from.machine.ask(self._from.root.root)

    def report(self) -> Redacted:
        """Return the report of now."""
        sections: tuple[Section, ...] = (
            ("Program", self._program()),
            ("Machine", self._machine_lines()),
            ("Engine", self._engine()),
            ("Settings that differ", self._settings()),
            ("Jobs", self._jobs()),
        )
        parts = ["FreeToken Desktop: diagnostics"]
        for head, rows in sections:
            parts.append(f"\n[{head}]")
            parts += [f"{name}: {value}" for name, value in rows]
        lines = self._from.ring.lines()[-LAST_LINES:]
        parts.append(f"\n[Last {len(lines)} lines of the log]")
        return redact("\n".join([*parts, *map(line_text, lines)]) + "\n", own_names())

    def save(self, path: Path, text: str) -> str:
        """Write what was shown. Returns "" or a sentence that says why it was not written."""
        try:
            replace_file(path, text.encode())
        except OSError as problem:
            return tr("The report could not be written: {reason}.", reason=problem.strerror or "")
        return ""

    # --- sections ---------------------------------------------------------------------------

    def _program(self) -> list[tuple[str, str]]:
        return [
            ("Version", self._from.version),
            ("Protocol", str(PROTOCOL_VERSION)),
            ("Python, Qt", f"{platform.python_version()}, {qVersion()}"),
            ("System", platform.platform()),
        ]

    def _machine_lines(self) -> list[tuple[str, str]]:
        facts = self._machine
        if facts is None:
            return [("Facts", "not read yet")]
        rows = [("RAM", f"{_size(facts.ram_total)}, {_size(facts.ram_free)} free")]
        if facts.disk_free >= 0:
            rows.append(("Disk of the data folder", f"{_size(facts.disk_free)} free"))
        gpu = facts.gpu
        if gpu is None:
            return [*rows, ("GPU", "no driver answers")]
        link = f"generation {gpu.link_generation} x{gpu.link_width}"
        best = f"at best generation {gpu.best_generation} x{gpu.best_width}"
        return [
            *rows,
            ("GPU", f"{gpu.name}, {_size(gpu.vram_total)}"),
            ("Driver", gpu.driver),
            ("Link", f"{link}, {best}"),
        ]

    def _engine(self) -> list[tuple[str, str]]:
        client = self._from.client
        rows = [("Version", client.version or "unknown"), ("State", str(client.state))]
        rows.append(("Program", client.process.program.origin))
        problem = self._from.problem()
        rows += [("Problem", problem)] if problem else []
        rows += [("Device", f"{d.name}, {d.title}, {_size(d.total_bytes)}") for d in client.devices]
        status = client.last_status
        if status is None:
            return rows
        if status.model is not None:
            model = status.model
            rows.append(("Model", f"{model.name}, {model.model_type}, {model.quant}"))
            rows.append(("Missing experts", str(status.policy)))
        for device in status.devices:
            rows += [(f"Memory, {pool.name}", _pool(pool)) for pool in device.pools]
        return rows + [(f"Kernel for {op}", why) for op, why in sorted(status.kernels.items())]

    def _settings(self) -> list[tuple[str, str]]:
        """Only switches, choices and numbers are told; of a text only that there is one."""
        value = self._from.settings.value
        differing = [f for f in fields() if getattr(value, f.key) != f.default]
        rows = [(f.key, _value(getattr(value, f.key), f.kind)) for f in differing]
        return [*rows, ("remote_on", "True")] if value.remote_on else rows

    def _jobs(self) -> list[tuple[str, str]]:
        rows = []
        for job in self._from.jobs.jobs():
            error = f", {job.error.code}: {job.error.message}" if job.error is not None else ""
            rows.append((f"{job.job} {job.title}".strip(), f"{job.phase}{error}"))
        return rows

    def _on_machine(self, facts: MachineFacts) -> None:
        self._machine = facts
        self.changed.emit()


def _value(value: object, kind: str) -> str:
    return "set" if kind in ("text", "folder", "file") else str(value)


def _pool(pool: Pool) -> str:
    size = _size(pool.used_bytes)
    bounds = f"{pool.units:,} units of {pool.min_units:,} to {pool.max_units:,}"
    return f"{size}, {bounds}" if pool.max_units > pool.min_units else size


def _size(num_bytes: int) -> str:
    return str(amounts.memory(num_bytes))


def own_names() -> tuple[str, ...]:
    """Return the names of the person's account and of this computer."""

    def found() -> Iterable[str]:
        for ask in (getpass.getuser, socket.gethostname, lambda: Path.home().name):
            try:
                yield ask()
            except (OSError, KeyError, RuntimeError):  # no such account, or no home folder
                continue

    return tuple(dict.fromkeys(name for name in found() if name))
