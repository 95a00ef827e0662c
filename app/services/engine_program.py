"""Which program is the engine, and how it is started. Starts nothing itself.

Asked by `EngineProcess` and `JobRunner`; the only place of the app that names `sys.executable`,
because in a frozen build that would open the window a second time.
"""

import sys
from dataclasses import dataclass, field
from pathlib import Path

from PySide6.QtCore import QProcess, QProcessEnvironment

from app.wording import tr
from engine.protocol.places import HOME_VARIABLE, DataRoot

ENGINE_NAME = "freetoken-engine"
THREADS_VARIABLE = "FREETOKEN_THREADS"  # read by engine.settings


@dataclass(frozen=True, slots=True)
class EngineProgram:
    """How to start the engine.

    Attributes:
        path: the executable.
        arguments: what comes before our own arguments.
        working_dir: folder to start in, or None for the present one.
        variables: environment entries on top of ours.
        origin: "override", "runtime", "bundled" or "python"; shown in the log.
    """

    path: str
    arguments: tuple[str, ...] = ()
    working_dir: Path | None = None
    variables: dict[str, str] = field(default_factory=dict)
    origin: str = "override"

    def prepare(self, process: QProcess, extra: tuple[str, ...] = ()) -> None:
        """Set program, arguments, folder and environment of a process that is not yet started."""
        environment = QProcessEnvironment.systemEnvironment()
        for name, value in self.variables.items():
            environment.insert(name, value)
        process.setProgram(self.path)
        process.setArguments([*self.arguments, *extra])
        process.setProcessEnvironment(environment)
        if self.working_dir is not None:
            process.setWorkingDirectory(str(self.working_dir))

    def start_problem(self, reason: str) -> str:
        """Return why a start failed, in words; a program that is gone is explained (case P-07)."""
        if self.origin in ("bundled", "runtime") and not Path(self.path).exists():
            return tr(
                "The engine program is missing: {path}. Security software may have removed it: "
                "restore it there, or install again.",
                path=self.path,
            )
        return tr("The engine could not be started: {reason}", reason=reason)


def find_program(override: str, root: DataRoot, threads: int = 0) -> EngineProgram:
    """Choose: `override`, an installed runtime, the bundled sibling, else this Python.

    Args:
        override: a program from the settings or the environment; "" = none. A `.py` file is run
            with this Python.
        root: the data root; the engine gets the same one.
        threads: CPU threads of the engine; 0 = its own choice.
    """
    variables = {HOME_VARIABLE: str(root.root), "PYTHONUTF8": "1", "PYTHONUNBUFFERED": "1"}
    if threads:
        variables[THREADS_VARIABLE] = str(threads)
    if override.endswith(".py"):
        return EngineProgram(sys.executable, (override,), None, variables)
    if override:
        return EngineProgram(override, (), None, variables)
    name = ENGINE_NAME + (".exe" if sys.platform == "win32" else "")
    installed = _newest(root.runtime, name)
    if installed is not None:
        return EngineProgram(str(installed), (), installed.parent, variables, "runtime")
    if getattr(sys, "frozen", False):
        # Also if it is missing: this executable is the window, it must not be started instead.
        bundled = Path(sys.executable).parent / name
        return EngineProgram(str(bundled), (), bundled.parent, variables, "bundled")
    checkout = Path(__file__).resolve().parents[2]
    return EngineProgram(sys.executable, ("-m", "engine"), checkout, variables, "python")


def _newest(runtime: Path, name: str) -> Path | None:
    """Return the engine of the runtime folder that was installed last."""
    try:
        found = [folder / name for folder in runtime.iterdir() if (folder / name).is_file()]
        return max(found, key=lambda path: path.stat().st_mtime, default=None)
    except OSError:
        return None
