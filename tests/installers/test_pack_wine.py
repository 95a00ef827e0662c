"""The Windows setup, run for real: it installs, updates and uninstalls under Wine.

Needs NSIS and 64-bit Wine. The program itself is a stand-in; what Windows alone can show is tried
by the release workflow.
"""

import os
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from installers.windows import setup
from tests.installers.test_windows import has_compiler, make_data_root

LISTED = r"HKCU\Software\Microsoft\Windows\CurrentVersion\Uninstall\FreeToken Desktop"
ABOUT = r"HKCU\Software\FreeToken Desktop"
FTW = r"HKCU\Software\Classes\.ftw"
KIND = r"HKCU\Software\Classes\FreeToken.Model"
TITLE = "FreeToken Desktop"
DROPS = ("StrCpy $DropChats 0", "StrCpy $DropModels 0")
# Writes credentials as the keyring does. The fields are CREDENTIALW's, on 64 bits.
TOKENS = """Unicode true
Target amd64-unicode
OutFile "{out}"
SilentInstall silent
RequestExecutionLevel user
Section
{calls}SectionEnd
"""
FIELDS = "i 0, i 1, w '{name}', p 0, i 0, i 0, i 0, i 0, p 0, i 2, i 0, p 0, p 0, w 'u'"
TOKEN = f"""System::Call "*({FIELDS}) p .r1"
System::Call "advapi32::CredWriteW(p r1, i 0) i .r0"
"""


pytestmark = [
    pytest.mark.linux,
    pytest.mark.slow,
    pytest.mark.skipif(not has_compiler(), reason="needs NSIS: apt-get install nsis"),
    pytest.mark.skipif(shutil.which("wine") is None, reason="needs Wine: apt-get install wine64"),
]


@dataclass
class Windows:
    """A Wine prefix."""

    folder: Path
    environment: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.environment = {
            "PATH": os.environ["PATH"], "HOME": str(self.folder / "home"), "USER": "someone",
            "WINEPREFIX": str(self.folder / "prefix"), "WINEDEBUG": "-all", "WINEARCH": "win64",
            "WINEDLLOVERRIDES": "winemenubuilder.exe,mscoree,mshtml=",
        }  # fmt: skip
        (self.folder / "home").mkdir(parents=True)

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a Windows program to its end.

        What it says goes to a file: Wine's services would hold a pipe open after its end.
        """
        said = self.folder / "said"
        with said.open("wb") as file:
            done = subprocess.run(
                ["wine", *words], env=self.environment, stdin=subprocess.DEVNULL, stdout=file,
                stderr=subprocess.DEVNULL, timeout=100, check=False,
            )  # fmt: skip
        text = said.read_bytes().decode("utf-8", "replace")
        return subprocess.CompletedProcess(words, done.returncode, text)

    def has_key(self, key: str) -> bool:
        return self.run("reg", "query", key).returncode == 0

    @property
    def drive(self) -> Path:
        return self.folder / "prefix" / "drive_c"

    @property
    def local(self) -> Path:
        """The person's LOCALAPPDATA."""
        return next((self.drive / "users").glob("*/AppData/Local"))

    @property
    def data(self) -> Path:
        return self.local / TITLE

    @property
    def usual(self) -> Path:
        """Where the program goes unless told otherwise."""
        return self.local / "Programs" / TITLE

    def uninstall(self, folder: Path) -> int:
        """Uninstall silently, waiting for the end. Returns the exit code."""
        place = "C:\\" + str(folder.relative_to(self.drive)).replace("/", "\\")
        words = f"_?={place}".split(" ")  # as one word it would get quotes, which it must not have
        return self.run(str(folder / "uninstall.exe"), "/S", *words).returncode


@pytest.fixture(scope="module")
def prefix(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Windows]:
    """Made once: it takes ten seconds."""
    windows = Windows(tmp_path_factory.mktemp("wine"))
    windows.run("wineboot", "--init")
    yield windows
    windows.run("wineboot", "--kill")


@pytest.fixture
def windows(prefix: Windows) -> Windows:
    """Without anything of ours."""
    keys = [key.replace("HKCU", "HKEY_CURRENT_USER") for key in (LISTED, ABOUT, FTW, KIND)]
    script = prefix.drive / "forget.reg"
    script.write_text("\r\n".join(["REGEDIT4", *(f"[-{key}]" for key in keys), ""]), newline="")
    prefix.run("regedit", "/S", r"C:\forget.reg")
    for folder in (prefix.data, prefix.usual, prefix.drive / "other"):
        shutil.rmtree(folder, ignore_errors=True)
    return prefix


def compiled(folder: Path) -> Path:
    """The setup over a stand-in."""
    build = folder / "build"
    resources = build / "_internal" / "resources"
    resources.mkdir(parents=True)
    (resources / "build.json").write_text("{}")
    inside = [f"_internal/{name}" for name in ("a.dll", *setup.RUNTIME)]
    for name in ("freetoken.exe", "freetoken-engine.exe", *inside):
        (build / name).write_bytes(b"MZ")
    target = folder / "FreeToken-Desktop-1.2.3-setup.exe"
    words = setup.command(build, target, "1.2.3", final=False, machine="amd64-unicode")
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    return target


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(compiled(tmp_path_factory.mktemp("setup")))


@pytest.fixture(scope="module")
def ticked(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A setup whose uninstaller acts as if both boxes were ticked."""
    folder = tmp_path_factory.mktemp("ticked")
    text = setup.SCRIPT.read_text(encoding="utf-8")
    for line in DROPS:
        assert text.count(line) == 1
        text = text.replace(line, line[:-1] + "1")
    script = folder / "ticked.nsi"
    script.write_text(text, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(setup, "SCRIPT", script)
        return str(compiled(folder))


def wait_until_written(file: Path) -> None:
    """Until `pause` has put its words there; another process, so there is no event."""
    tick = threading.Event()
    for _ in range(300):
        if file.stat().st_size > 2:
            return
        tick.wait(0.1)
    raise AssertionError(f"nobody holds {file}")


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()} if folder.exists() else set()


def test_silent_removal_then_data_stays_and_windows_forgets_us(
    windows: Windows, program: str
) -> None:
    """Only the libraries of the engine go, which can be fetched again."""
    assert windows.run(program, "/S").returncode == 0
    assert {"freetoken.exe", "freetoken-engine.exe", "uninstall.exe"} <= names(windows.usual)
    assert all(windows.has_key(key) for key in (LISTED, ABOUT, FTW, KIND))
    made = make_data_root(windows.data)
    assert windows.uninstall(windows.usual) == 0
    assert names(windows.usual) <= {"uninstall.exe"}  # it cannot remove itself while it runs
    assert not [key for key in (LISTED, ABOUT, FTW, KIND) if windows.has_key(key)]
    assert names(windows.data) == made - {"runtime"}


def test_removal_when_both_boxes_are_ticked_then_nothing_of_ours_is_left(
    windows: Windows, ticked: str, tmp_path: Path
) -> None:
    """Neither files nor tokens; those of others stay."""
    make_data_root(windows.data)
    ours = [TITLE, f"model hub@{TITLE}", f"remote engine http://host:1@{TITLE}"]
    other = [f"x{TITLE}", "somebody@else"]
    script, writer = tmp_path / "tokens.nsi", tmp_path / "tokens.exe"
    calls = "".join(TOKEN.format(name=name) for name in (*ours, *other))
    script.write_text(TOKENS.format(out=writer, calls=calls))
    subprocess.run([setup.compiler(), "-V1", str(script)], check=True)
    windows.run(str(writer))
    place = r"HKCU\Software\Wine\Credential Manager"
    before = windows.run("reg", "query", place).stdout
    assert all(f": {name}" in before for name in (*ours, *other)), before
    assert windows.run(ticked, "/S").returncode == 0
    assert windows.uninstall(windows.usual) == 0
    assert not windows.data.exists(), names(windows.data)
    after = windows.run("reg", "query", place).stdout
    assert sorted(re.findall(r": (.*?)\s*$", after, re.MULTILINE)) == sorted(other)


def test_removal_when_another_program_opens_such_files_then_it_still_does(
    windows: Windows, program: str
) -> None:
    """Its entry beside ours is not ours to remove."""
    windows.run(program, "/S")
    windows.run("reg", "add", FTW + r"\OpenWithProgids", "/v", "Other.Program")
    assert windows.uninstall(windows.usual) == 0
    said = windows.run("reg", "query", FTW + r"\OpenWithProgids").stdout
    assert "Other.Program" in said
    assert "FreeToken.Model" not in said


@pytest.mark.parametrize("marks", [(), ("uninstall.exe",)])
def test_folder_of_another_program_when_chosen_then_it_is_left_alone(
    windows: Windows, program: str, marks: tuple[str, ...]
) -> None:
    """Many programs have a folder of that name, and an uninstaller."""
    theirs = windows.drive / "other" / "_internal" / "their.dll"
    theirs.parent.mkdir(parents=True)
    theirs.touch()
    for mark in marks:
        (windows.drive / "other" / mark).touch()
    assert windows.run(program, "/S", r"/D=C:\other").returncode == 3
    assert theirs.exists()
    assert not windows.has_key(LISTED)


@pytest.mark.parametrize(
    "lost",
    [
        ["freetoken.exe"],
        ["freetoken.exe", "freetoken-engine.exe"],
        ["freetoken.exe", "freetoken-engine.exe", "uninstall.exe", "_internal/resources"],
    ],
)
def test_own_folder_when_parts_of_it_are_gone_then_the_setup_mends_it(
    windows: Windows, program: str, lost: list[str]
) -> None:
    """A virus scanner took them, or a removal ended half way (P-07)."""
    windows.run(program, "/S")
    for name in lost:
        path = windows.usual / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    stale = windows.usual / "_internal" / "stale.dll"
    stale.touch()
    assert windows.run(program, "/S").returncode == 0
    assert all((windows.usual / name).exists() for name in lost)
    assert not stale.exists()


def test_update_into_another_folder_then_the_old_copy_goes_and_all_data_stays(
    windows: Windows, program: str
) -> None:
    """Else it would stay for ever, without an entry in the list of programs."""
    windows.run(program, "/S")
    made = make_data_root(windows.data)
    (windows.usual / "mine.txt").touch()
    assert windows.run(program, "/S", r"/D=C:\other").returncode == 0
    assert names(windows.usual) == {"mine.txt"}
    assert (windows.drive / "other" / "freetoken.exe").exists()
    assert names(windows.data) == made
    assert r"C:\other" in windows.run("reg", "query", LISTED, "/v", "InstallLocation").stdout


@pytest.mark.parametrize(
    ("file", "code"), [("_internal/a.dll", 4), ("freetoken.exe", 2), ("freetoken-engine.exe", 2)]
)
def test_removal_when_a_file_is_in_use_then_it_can_be_tried_again(
    windows: Windows, program: str, file: str, code: int
) -> None:
    """Half a program without an uninstaller could not even be replaced."""
    windows.run(program, "/S")
    held = str(windows.usual.relative_to(windows.drive) / file).replace("/", "\\")
    (windows.drive / "hold.bat").write_text(f'@pause > "C:\\{held}"\r\n', newline="")
    words = ["wine", "cmd", "/c", r"C:\hold.bat"]
    with subprocess.Popen(
        words, env=windows.environment, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as holder:  # fmt: skip
        wait_until_written(windows.usual / file)
        codes = [windows.uninstall(windows.usual)]
        codes.append(windows.run(program, "/S", r"/D=C:\other").returncode)
        holder.communicate(b"\n")
    assert codes == [code, code]
    assert (windows.usual / "uninstall.exe").exists()
    assert windows.has_key(LISTED)
    assert windows.uninstall(windows.usual) == 0
    assert not (windows.usual / "_internal").exists()
