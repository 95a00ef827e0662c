"""The Windows setup: what its script promises, and that it compiles where the compiler is."""

import re
import shutil
import struct
import subprocess
from pathlib import Path

import pytest

from installers.windows import setup, sign
from tests.conftest import REPOSITORY

SCRIPT = setup.SCRIPT.read_text(encoding="utf-8")
SECTIONS = re.findall(r'^Section "(\w+)"\n(.*?)^SectionEnd', SCRIPT, re.MULTILINE | re.DOTALL)
UNINSTALL = dict(SECTIONS)["Uninstall"]


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
    """No person sees an empty label."""
    found = re.findall(r"^LangString (\w+) \$\{LANG_(\w+)\}", SCRIPT, re.MULTILINE)
    names = {name for name, _ in found}
    assert set(found) == {(name, lang) for name in names for lang in ("ENGLISH", "SIMPCHINESE")}
    assert set(re.findall(r"\$\(([A-Z_]+)\)", SCRIPT)) <= names


def test_uninstall_when_nothing_is_ticked_then_chats_and_models_stay() -> None:
    """Data goes only inside the question's branch; silent runs never ask, so never delete."""
    outside = re.sub(r"\$\{If\}.*?\$\{EndIf\}", "", UNINSTALL, flags=re.DOTALL)
    for word in ("chats", "models", "settings.json", "profiles"):
        assert word not in outside
        assert word in UNINSTALL
    assert "StrCpy $DropChats 0" in SCRIPT
    assert "StrCpy $DropModels 0" in SCRIPT


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


@pytest.mark.skipif(shutil.which("makensis") is None, reason="needs NSIS: apt-get install nsis")
def test_script_when_compiled_then_without_a_warning(build: Path, tmp_path: Path) -> None:
    """The whole script, over a stand-in for the Windows program."""
    target = tmp_path / "FreeToken-Desktop-1.2.3-setup.exe"
    words = setup.command(build, target, "1.2.3", final=False)
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")
    assert target.read_bytes()[:2] == b"MZ"


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
