"""The smoke test itself: it must fail when the build does not work."""

import json
import os
import subprocess
import sys
import types
from pathlib import Path

import pytest
from PySide6.QtCore import QObject, Signal
from PySide6.QtNetwork import QSslSocket

from app.services.engine_program import EngineProgram
from app.smoke import Smoke
from app.smoke_tls import speak_tls
from installers.common import hardships
from installers.common.smoke import ODD, Hardship, Place
from tests.conftest import REPOSITORY

pytestmark = pytest.mark.linux

ENGINE = """#!/bin/sh
case "$*" in *--job*) exit 5;; esac
read line
[ -z "$PATH" ] || exit 3
echo '{"type":"ready","engine_version":"9"}'
"""
WINDOW = """#!/bin/sh
[ "$(umask)" = 0077 ] || exit 3
: > "$2/smoke.json" || exit 4
echo '{"startup_ms": 7, "tls": "some"}' > "$2/smoke.json"
"""


def open_to_nobody(folder: Path) -> None:
    """Let the programs come to a folder, which run as nobody where the tests run as root."""
    for parent in (folder, *list(folder.parents)[:3]):
        if os.geteuid() == 0 and parent.stat().st_uid == 0 and parent != Path("/"):
            parent.chmod(parent.stat().st_mode | 0o011)


def smoke(folder: Path, **programs: str) -> tuple[int, str]:
    build = folder / "freetoken"
    build.mkdir(exist_ok=True)
    for name, text in programs.items():
        path = build / name.replace("_", "-")
        path.write_text(text)
        path.chmod(0o755)
    open_to_nobody(folder)
    done = subprocess.run(
        [sys.executable, str(REPOSITORY / "installers/common/smoke.py"), str(build),
         "--out", str(folder / "out")],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert list(folder.glob("try-*")) == []
    return done.returncode, done.stdout


def test_smoke_when_all_is_well_then_facts_are_printed(tmp_path: Path) -> None:
    """Empty PATH, files for their owner alone, odd names (P-11); pictures are kept."""
    code, said = smoke(tmp_path, freetoken=WINDOW, freetoken_engine=ENGINE)
    assert code == 0, said
    assert "startup_ms 7, tls some" in said
    assert json.loads((tmp_path / "out" / "smoke.json").read_text())["startup_ms"] == 7


PROBE = """#!/bin/sh
given=$PATH
PATH=/usr/bin:/bin
cd "${0%/*}" && here=$PWD
say() { printf '"%s": "%s", ' "$1" "$2"; }
can() { (: > "$1/probe") 2>/dev/null && rm -f "$1/probe" && echo yes || echo no; }
printf '{'
say where "$here"; say temp "$TMPDIR"; say given "$given"; say mask "$(umask)"
say program "$(can .)"; say home "$(can "$HOME")"
say usual "$(can "$HOME/.local/share/FreeToken Desktop")"
printf '"end": 0}'
"""


@pytest.mark.parametrize("hardship", [*hardships.HARDSHIPS], ids=lambda one: one.title)
def test_hardship_when_alone_then_only_it_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hardship: Hardship
) -> None:
    """P-11 and its kin: what a program finds is the trouble that is named, and no other."""
    build = tmp_path / "build"
    build.mkdir()
    (build / "freetoken-engine").write_text(PROBE)
    (build / "freetoken-engine").chmod(0o755)
    monkeypatch.setenv("PATH", "/somewhere/bin")
    open_to_nobody(tmp_path)
    (tmp_path / "base").mkdir()
    place = Place(build, tmp_path / "base", hardship)
    try:
        done = place.start("freetoken-engine", text="", limit=30)
    finally:
        place.release()
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    odd = ODD in seen["where"], ODD in seen["temp"], ODD in str(place.root)
    assert odd == (hardship.odd_names,) * 3
    assert (seen["given"] == "") == hardship.no_path
    assert int(seen["mask"], 8) == hardship.umask
    assert (seen["program"] == "no") == hardship.read_only
    assert (seen["home"] == "no") == hardship.closed_home
    assert (seen["usual"] == "yes") == hardship.root_in_home


def test_smoke_when_the_engine_is_missing_then_security_software_is_named(tmp_path: Path) -> None:
    """P-07: an executable that vanished is the first suspicion."""
    code, said = smoke(tmp_path, freetoken=WINDOW)
    assert code == 1
    assert "security software" in said


@pytest.mark.parametrize(
    ("engine", "window", "word"),
    [
        ("#!/bin/sh\nexit 4\n", WINDOW, "engine: exit code 4"),
        (ENGINE.replace("exit 5", "exit 4"), WINDOW, "job: exit code 4"),
        (ENGINE, "#!/bin/sh\nexit 0\n", "window: exit code 0"),
        (ENGINE, WINDOW.replace('"tls"', '"other"'), "window: its smoke run did not try"),
        (ENGINE, "#!/bin/sh\n: > litter\n" + WINDOW[10:], "outside of the data root"),
    ],
)
def test_smoke_when_a_part_fails_then_it_is_named(
    tmp_path: Path, engine: str, window: str, word: str
) -> None:
    """Exit code 1 and a sentence; P-14: files left behind count as a failure too."""
    code, said = smoke(tmp_path, freetoken=window, freetoken_engine=engine)
    assert code == 1
    assert word in said


def test_smoke_when_the_program_writes_beside_itself_then_it_cannot(tmp_path: Path) -> None:
    """The folder that it is installed in is read-only, for root's copy too."""
    greedy = '#!/bin/sh\n(: > "${0%/*}/mine") 2>/dev/null && exit 9\n' + WINDOW[10:]
    code, said = smoke(tmp_path, freetoken=greedy, freetoken_engine=ENGINE)
    assert code == 0, said


SHELL = """#!/bin/sh
case "$*" in *selftest*) echo "%s"; exit 1;; esac
read line
echo '{"type":"ready","engine_version":"9"}'
"""


@pytest.mark.parametrize(
    ("words", "window", "code"),
    [
        ("No module named 'torch'", WINDOW, 0),
        ("Segmentation fault", WINDOW, 1),
        ("No module named 'torch'", "#!/bin/sh\nexit 1\n", 1),
    ],
)
def test_shell_when_it_has_no_libraries_then_it_must_say_so(
    tmp_path: Path, words: str, window: str, code: int
) -> None:
    """No model yet: the engine answers and names what it lacks, and the window comes up."""
    stamp = tmp_path / "freetoken" / "_internal" / "resources" / "build.json"
    stamp.parent.mkdir(parents=True)
    stamp.write_text('{"bundle": "shell"}')
    engine = SHELL.replace("%s", words)
    found, said = smoke(tmp_path, freetoken=window, freetoken_engine=engine)
    assert found == code, said
    assert ("shell" if window == WINDOW else "window: exit code 1") in said


class Client(QObject):
    """An engine that never ends."""

    stopped = Signal(object)
    failed = Signal(object)
    model = process = None


@pytest.mark.usefixtures("qapp")
def test_tls_when_it_is_there_then_it_spoke_and_says_by_which_library() -> None:
    """A conversation with a listener of its own: no network, no certificate."""
    facts = speak_tls()
    assert facts["backend"] == QSslSocket.activeBackend()
    assert "OpenSSL" in facts["library"]


NO_PLUGINS = """
from PySide6.QtCore import QCoreApplication
from app.smoke_tls import speak_tls
from app.smoke_wait import StepFailed
QCoreApplication.setLibraryPaths([])
app = QCoreApplication([])
try:
    speak_tls()
except StepFailed as problem:
    print(problem)
"""


def test_tls_when_the_plugins_are_not_in_the_build_then_the_step_says_so() -> None:
    """As packages were once: everything started, and no https address was ever reached."""
    done = subprocess.run(
        [sys.executable, "-c", NO_PLUGINS],
        capture_output=True, text=True, check=False, timeout=60, cwd=REPOSITORY,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Qt has no TLS, so https addresses cannot be reached.")
    assert "backends: none." in done.stdout


@pytest.mark.parametrize("has_engine", [True, False])
def test_steps_when_the_engines_libraries_are_missing_then_the_window_alone_is_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_engine: bool
) -> None:
    """A shell's window can be tried before anything is installed; what was not tried is said."""
    done: list[str] = []
    steps = ("_show_window", "_speak_tls", "_load_model", "_profile", "_pictures", "_quit")
    for step in steps:
        monkeypatch.setattr(Smoke, step, lambda _, step=step: done.append(step))
    client = Client()
    program = EngineProgram("", origin="bundled" if has_engine else "none")
    client.process = types.SimpleNamespace(program=program)
    run = Smoke(types.SimpleNamespace(services=types.SimpleNamespace(client=client)), tmp_path)
    run.run()
    alone = [step for step in steps if step not in ("_load_model", "_profile")]
    assert done == (list(steps) if has_engine else alone)
    assert len(run.failures) == (4 if has_engine else 0)  # here no model came, there none can
    assert len(run.facts.get("not_tried", ())) == (0 if has_engine else 6)
