"""The smoke test itself: it must fail when the build does not work."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

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
echo '{"startup_ms": 7}' > "$2/smoke.json"
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
    assert "startup_ms 7" in said
    assert json.loads((tmp_path / "out" / "smoke.json").read_text()) == {"startup_ms": 7}


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
    ("words", "code"), [("No module named 'torch'", 0), ("Segmentation fault", 1)]
)
def test_shell_when_it_has_no_libraries_then_it_must_say_so(
    tmp_path: Path, words: str, code: int
) -> None:
    """No window and no model yet: the engine answers, and names what it lacks."""
    stamp = tmp_path / "freetoken" / "_internal" / "resources" / "build.json"
    stamp.parent.mkdir(parents=True)
    stamp.write_text('{"bundle": "shell"}')
    engine = SHELL.replace("%s", words)
    found, said = smoke(tmp_path, freetoken=WINDOW, freetoken_engine=engine)
    assert found == code, said
    assert "shell" in said
