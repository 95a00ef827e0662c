"""The Windows setup: what its script promises, and that it compiles where the compiler is."""

import json
import re
import struct
import subprocess
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from app.services.files import keep_aside
from app.services.settings import SettingsStore
from engine.protocol.places import DataRoot
from installers.windows import setup, sign
from tests.conftest import REPOSITORY

SCRIPT = setup.SCRIPT.read_text(encoding="utf-8")
SECTIONS = re.findall(r'^Section "(\w+)"\n(.*?)^SectionEnd', SCRIPT, re.MULTILINE | re.DOTALL)
UNINSTALL = dict(SECTIONS)["Uninstall"]
FORGET_CHATS = re.findall(r"^Function un.ForgetChats\n(.*?)^FunctionEnd", SCRIPT, re.M | re.S)[0]
# Who uses the data root as such and not one of its named places, and what for.
USES = {
    "app/__main__.py": "its lock",
    "app/parts.py": "files, see `own_files`",
    "app/services/engine_program.py": "tells the engine",
    "app/viewmodels/diagnostics.py": "asks for room on the disk",
    "app/viewmodels/settings.py": "shows it",
    "engine/jobs/run.py": "tells a job",
    "engine/jobs/runtime.py": "tells the engine",
}
AS_SUCH = re.compile(r"(?<![a-z])(?:root|home)\.root\b")


def has_compiler() -> bool:
    """Whether NSIS is here, on PATH or in its usual place."""
    try:
        setup.compiler()
    except setup.NotPackable:
        return False
    return True


def own_files(root: DataRoot) -> list[Path]:
    """The files that the app keeps at the top of its data root, by its source."""
    parts = (REPOSITORY / "app" / "parts.py").read_text("utf-8")
    lock = (REPOSITORY / "app" / "services" / "single_instance.py").read_text("utf-8")
    names = re.findall(r'root\.root / "([\w.]+)"', parts)
    names += re.findall(r'"(\w+\.lock)"', lock)
    return [root.settings_file, *(root.root / name for name in names)]


def make_data_root(folder: Path) -> set[str]:
    """Make a data root with all that the app may write, also after trouble. Returns the names."""
    root = DataRoot(folder)
    places = [getattr(root, name) for name, one in vars(DataRoot).items() if type(one) is property]
    for path in places:
        if not path.suffix:
            (path / "inside").mkdir(parents=True)
            (path / "inside" / "file").touch()
    newer = json.dumps({"version": 99})  # written by an app of the future
    for path in own_files(root):
        if path.suffix == ".json":
            path.with_name(f".{path.name}.a1_b2c3d").touch()  # of a write that a crash broke off
            path.write_text("{")
            keep_aside(path)
        path.write_text(newer)
    SettingsStore(root.settings_file)
    return {path.name for path in folder.iterdir()}


def removed(names: set[str], script: str) -> set[str]:
    """Which names at the top of the data root some lines of the script remove."""
    words = re.findall(r'(?:RMDir /r|Delete) "\$\{DATA\}\\(.*?)"', script)
    return {name for name in names if any(fnmatchcase(name, word) for word in words)}


@pytest.fixture
def build(tmp_path: Path) -> Path:
    """A stand-in for a frozen build."""
    folder = tmp_path / "build"
    (folder / "_internal").mkdir(parents=True)
    for name in ("freetoken.exe", "freetoken-engine.exe", *setup.RUNTIME):
        (folder / name).write_bytes(b"MZ")
    return folder


def test_setup_when_read_then_it_needs_no_administrator() -> None:
    """Installed for one person, below their own folder."""
    assert "RequestExecutionLevel user" in SCRIPT
    assert 'InstallDir "$LOCALAPPDATA\\Programs\\FreeToken Desktop"' in SCRIPT
    assert "ManifestLongPathAware true" in SCRIPT
    assert "HKLM" not in SCRIPT


def test_last_page_when_shown_then_it_names_the_chosen_folder() -> None:
    """P-10: the real path, not the default one."""
    for text in re.findall(r"^LangString DONE .*", SCRIPT, re.MULTILINE):
        assert "$INSTDIR" in text


def test_sentences_when_counted_then_each_is_there_in_both_languages() -> None:
    """No person sees an empty label, and each is shown somewhere."""
    found = re.findall(r"^LangString (\w+) \$\{LANG_(\w+)\}", SCRIPT, re.MULTILINE)
    names = {name for name, _ in found}
    assert set(found) == {(name, lang) for name in names for lang in ("ENGLISH", "SIMPCHINESE")}
    assert set(re.findall(r"\$\(([A-Z_]+)\)", SCRIPT)) == names


def test_data_root_when_used_as_such_then_it_is_known_what_for() -> None:
    """A new file beside the known ones needs a line in the uninstaller."""
    sources = [path for one in ("app", "engine") for path in (REPOSITORY / one).rglob("*.py")]
    texts = {path.relative_to(REPOSITORY).as_posix(): path.read_text("utf-8") for path in sources}
    assert {name for name, text in texts.items() if AS_SUCH.search(text)} == set(USES)
    parts = texts["app/parts.py"]
    assert len(AS_SUCH.findall(parts)) == len(re.findall(r'root\.root / "[\w.]+"', parts))


def test_uninstall_when_boxes_are_ticked_then_every_file_of_the_app_goes(tmp_path: Path) -> None:
    """By what app and data root name; `test_pack_wine.py` does it for real."""
    names = make_data_root(tmp_path / "data")
    assert {"presets.json.damaged", "settings.v99.json", "app.lock", "caches"} <= names
    chats = removed(names, FORGET_CHATS)
    branches = dict(re.findall(r"\{If\} \$(\w+) = \d\n(.*?)\$\{EndIf\}", UNINSTALL, re.S))
    assert branches["DropChats"].split() == ["Call", "un.ForgetChats"]
    assert removed(names, branches["DropModels"]) == {"models", "caches"}
    assert removed(names, branches["IsUpdate"]) == {"runtime"}
    assert names - chats == {"models", "caches", "runtime"}


def test_uninstall_when_nothing_is_ticked_then_chats_and_models_stay(tmp_path: Path) -> None:
    """Data goes only inside the question's branches; silent runs never ask, so never delete."""
    outside = re.sub(r"\$\{If\}.*?\$\{EndIf\}", "", UNINSTALL, flags=re.DOTALL)
    assert removed(make_data_root(tmp_path / "data"), outside) == set()
    assert "ForgetChats" not in outside
    assert "StrCpy $DropChats 0" in SCRIPT
    assert "StrCpy $DropModels 0" in SCRIPT


def test_uninstall_when_something_stays_then_it_is_listed() -> None:
    """The last page names it, after all removals."""
    assert UNINSTALL.rstrip().endswith("Call un.ListLeft")


def test_uninstall_when_the_folder_holds_other_files_then_they_stay() -> None:
    """A person may have chosen a whole disk: never the folder with all that is in it."""
    assert re.findall(r"RMDir /r (.*)", SCRIPT.replace("${DATA}", "DATA"))
    assert 'RMDir /r "$INSTDIR"' not in SCRIPT
    assert 'RMDir "$INSTDIR"' in UNINSTALL
    assert "DATA" not in re.findall(r'RMDir /r "(DATA)"', SCRIPT.replace("${DATA}", "DATA"))


def test_version_when_it_has_letters_then_windows_gets_four_numbers(
    build: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """VERSIONINFO takes numbers only."""
    monkeypatch.setattr(setup, "compiler", lambda: "makensis")
    words = setup.command(build, build / "x.exe", "1.2.0rc3", final=True)
    assert {"-DVERSION4=1.2.0.3", "-DVERSION=1.2.0rc3", "-DFINAL=1"} <= set(words)
    assert not [word for word in words if word.startswith("-DSIGN")]


def test_build_when_a_path_is_too_long_then_it_is_refused(build: Path) -> None:
    """Below a user's folder it would pass 260 characters."""
    deep = build / "_internal" / ("d" * 80) / ("e" * 90)
    deep.mkdir(parents=True)
    (deep / "f").touch()
    with pytest.raises(setup.NotPackable, match="characters"):
        setup.check(build, for_windows=True)


def test_build_when_the_runtime_library_is_missing_then_it_is_refused(build: Path) -> None:
    """P-05: on a clean Windows importing torch would fail without a word."""
    setup.check(build, for_windows=True)
    (build / "msvcp140.dll").unlink()
    with pytest.raises(setup.NotPackable, match="msvcp140"):
        setup.check(build, for_windows=True)


def test_build_when_it_is_too_large_for_a_setup_then_it_is_refused(
    build: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The compiler maps its output; beyond 2 GB it fails in the middle."""
    monkeypatch.setattr(setup, "LIMIT", 3)
    with pytest.raises(setup.NotPackable, match="GB"):
        setup.check(build, for_windows=True)


def test_signing_when_there_is_no_key_then_nothing_happens(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Everybody can build."""
    monkeypatch.delenv("FT_SIGN_PFX", raising=False)
    assert sign.sign(Path("nothing.exe")) == 0


@pytest.mark.skipif(not has_compiler(), reason="needs NSIS: apt-get install nsis")
@pytest.mark.parametrize("final", [False, True])
@pytest.mark.parametrize("machine", ["", "amd64-unicode"])
def test_script_when_compiled_then_without_a_warning(
    build: Path, tmp_path: Path, final: bool, machine: str
) -> None:
    """P-10: the whole script, over a stand-in, in every form; warnings count as errors."""
    target = tmp_path / "FreeToken-Desktop-1.2.3-setup.exe"
    words = setup.command(build, target, "1.2.3", final=final, machine=machine)
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")
    assert target.read_bytes()[:2] == b"MZ"


@pytest.mark.skipif(not has_compiler(), reason="needs NSIS: apt-get install nsis")
def test_script_when_it_has_an_unused_function_then_compiling_fails(
    build: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check above must be able to fail."""
    script = tmp_path / "odd.nsi"
    script.write_text(SCRIPT + "\nFunction Nobody\nFunctionEnd\n", encoding="utf-8")
    monkeypatch.setattr(setup, "SCRIPT", script)
    words = setup.command(build, tmp_path / "x.exe", "1.2.3", final=False)
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "Nobody" in done.stdout + done.stderr


def test_programs_when_they_start_others_then_only_through_qt() -> None:
    """P-13: QProcess hides the console of a child; a bare `subprocess` would flash one.

    The one exception asks Windows for no console.
    """
    found = [
        path.relative_to(REPOSITORY).as_posix()
        for package in ("app", "engine", "kernels")
        for path in (REPOSITORY / package).rglob("*.py")
        if re.search(r"^\s*(import|from) subprocess|os\.system\(", path.read_text("utf-8"), re.M)
        and path.parts[-2:] != ("cuda", "__main__.py")  # a tool of engineers, never run by the app
    ]
    assert found == ["engine/jobs/runtime_check.py"]
    text = (REPOSITORY / found[0]).read_text("utf-8")
    assert "CREATE_NO_WINDOW" in text
    assert text.count("subprocess.Popen(") == text.count("creationflags=_HIDDEN")


def test_kind_of_file_when_installed_then_a_double_click_opens_it_and_uninstall_forgets() -> None:
    """For this person only, and beside whatever else opens such files."""
    assert '"$INSTDIR\\${PROGRAM}" "%1"' in SCRIPT
    assert "OpenWithProgids" in SCRIPT
    assert 'DeleteRegKey HKCU "${KINDS}\\${KIND}"' in UNINSTALL
    assert 'DeleteRegKey /ifempty HKCU "${KINDS}\\.ftw"' in UNINSTALL


@pytest.mark.parametrize("section", ["Program", "Uninstall"])
def test_kind_of_file_when_it_changed_then_explorer_is_told(section: str) -> None:
    """Else it shows old icons until the next logon: after the last word about it."""
    before, _, after = dict(SECTIONS)[section].partition("${TELL}")
    assert "SHChangeNotify(i 0x08000000, i 0, p 0, p 0)" in SCRIPT
    assert "${KINDS}" in before
    assert "${KINDS}" not in after
    assert after


def test_icon_when_read_then_it_has_all_sizes() -> None:
    """Task bar, Explorer, setup: each takes another size."""
    data = (REPOSITORY / "resources" / "icons" / "app" / "freetoken.ico").read_bytes()
    _, kind, count = struct.unpack_from("<HHH", data)
    entries = [struct.unpack_from("<BBBBHHII", data, 6 + 16 * number) for number in range(count)]
    assert kind == 1
    assert [entry[0] or 256 for entry in entries] == [16, 24, 32, 48, 64, 256]
    for *_, size, offset in entries:
        assert data[offset : offset + 4] in (b"\x28\x00\x00\x00", b"\x89PNG")
        assert offset + size <= len(data)
