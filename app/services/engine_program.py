"""Which program is the engine, and how it is started. Starts nothing itself.

Asked by `EngineProcess` and `JobRunner`; the only place of the app that names `sys.executable`,
because in a frozen build that would open the window a second time.
"""

import sys
from dataclasses import dataclass, field, replace
from pathlib import Path

from PySide6.QtCore import QProcess, QProcessEnvironment

from app.services.runtime_build import is_frozen, read_build, runtime_in_use
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
        origin: "override", "runtime", "bundled", "python" or "none"; shown in the log.
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

    @property
    def is_missing(self) -> bool:
        """Whether there is a program but none of the libraries that it needs to serve."""
        return self.origin == "none"

    def start_problem(self, reason: str) -> str:
        """Return why a start failed, in words; a program that is gone is explained (case P-07)."""
        if self.is_missing:
            return tr(
                "The engine's libraries are not installed yet. Settings, About installs them."
            )
        if self.origin in ("bundled", "runtime") and not Path(self.path).exists():
            return tr(
                "The engine program is missing: {path}. Security software may have removed it: "
                "restore it there, or install again.",
                path=self.path,
            )
        return tr("The engine could not be started: {reason}", reason=reason)


def find_program(override: str, root: DataRoot, threads: int = 0) -> EngineProgram:
    """Choose: `override`, an installed runtime, what is bundled, else this Python.

    An installed runtime is a folder of libraries; the program is ours in any case. A shell without
    any gets the origin "none": its jobs run, the one that installs the runtime among them.

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
    own = _own_program(variables)
    installed = runtime_in_use(root.runtime, read_build().bundle)
    if installed is not None:
        arguments = (*own.arguments, "--runtime", str(installed))
        return replace(own, arguments=arguments, origin="runtime")
    return own


def _own_program(variables: dict[str, str]) -> EngineProgram:
    """Return the sibling of a frozen window, also if it is missing: never the window itself."""
    if is_frozen():
        name = ENGINE_NAME + (".exe" if sys.platform == "win32" else "")
        path = Path(sys.executable).parent / name
        origin = "none" if read_build().bundle == "shell" else "bundled"
        return EngineProgram(str(path), (), path.parent, variables, origin)
    checkout = Path(__file__).resolve().parents[2]
    return EngineProgram(sys.executable, ("-m", "engine"), checkout, variables, "python")
