"""Linux packages: the files a desktop reads, and the libraries that the package asks for."""

import configparser
import json
import re
import shutil
import subprocess
import tarfile
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from installers.common import pack
from installers.linux import needs
from tests.conftest import REPOSITORY

LINUX = REPOSITORY / "installers" / "linux"
NAME = "freetoken-desktop"
NEEDS = needs.Needs(("libX11.so.6", "libxcb-cursor.so.0"), (2, 35), 11)

pytestmark = pytest.mark.linux


@pytest.fixture
def build(tmp_path: Path) -> Path:
    """A stand-in for a frozen build."""
    folder = tmp_path / "freetoken"
    stamp = folder / "_internal" / "resources" / "build.json"
    stamp.parent.mkdir(parents=True)
    stamp.write_text(json.dumps({"version": "1.2.3", "bundle": "full"}))
    (folder / "freetoken").touch(0o755)
    return folder


def desktop_entry() -> configparser.SectionProxy:
    parser = configparser.ConfigParser(interpolation=None)
    parser.optionxform = str
    parser.read(LINUX / f"{NAME}.desktop", encoding="utf-8")
    return parser["Desktop Entry"]


def test_desktop_file_when_read_then_it_fits_what_the_window_calls_itself() -> None:
    """Otherwise the taskbar shows a second, nameless icon."""
    source = (REPOSITORY / "app" / "application.py").read_text(encoding="utf-8")
    assert f'setDesktopFileName("{NAME}")' in source
    entry = desktop_entry()
    assert (entry["Exec"], entry["Icon"], entry["StartupWMClass"]) == ("freetoken %f", NAME, NAME)
    assert entry["MimeType"] == "application/x-freetoken-model;"


@pytest.mark.parametrize(
    ("tool", "words", "file"),
    [
        ("desktop-file-validate", (), f"{NAME}.desktop"),
        ("xmllint", ("--noout",), f"{NAME}.xml"),
    ],
)
def test_file_when_its_validator_reads_it_then_it_says_nothing(
    tool: str, words: tuple[str, ...], file: str
) -> None:
    """Checked by the tool of the people who defined the format, where it is installed."""
    if shutil.which(tool) is None:
        pytest.skip(f"{tool} is not installed")
    done = subprocess.run(
        [tool, *words, str(LINUX / file)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "")


def test_metainfo_when_written_then_it_has_version_and_menu_entry(
    build: Path, tmp_path: Path
) -> None:
    """The software centre shows both."""
    pack.recipe(build, tmp_path, NEEDS)
    path = tmp_path / f"{NAME}.metainfo.xml"
    root = ElementTree.parse(path).getroot()
    assert root.findtext("launchable") == f"{NAME}.desktop"
    assert root.find("releases/release").get("version") == "1.2.3"


@pytest.mark.skipif(shutil.which("appstreamcli") is None, reason="appstreamcli is not installed")
def test_metainfo_when_validated_then_only_our_missing_domain_is_noted(
    build: Path, tmp_path: Path
) -> None:
    """Without a domain the id cannot be a reversed one; nothing else may be odd."""
    pack.recipe(build, tmp_path, NEEDS)
    path = tmp_path / f"{NAME}.metainfo.xml"
    words = ["appstreamcli", "validate", "--no-net", "--no-color", str(path)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    found = re.findall(r"^[EW]: .*", done.stdout, re.MULTILINE)
    assert [line for line in found if "cid-desktopapp-is-not-rdns" not in line] == []


def test_mime_type_when_read_then_it_covers_the_model_file() -> None:
    """`model.ftw` is named and has our icon in file managers."""
    text = (LINUX / f"{NAME}.xml").read_text(encoding="utf-8")
    names = {"m": "http://www.freedesktop.org/standards/shared-mime-info"}
    kind = ElementTree.fromstring(text).find("m:mime-type", names)
    assert kind.get("type") == "application/x-freetoken-model"
    assert [glob.get("pattern") for glob in kind.findall("m:glob", names)] == ["*.ftw"]


def test_recipe_when_made_then_all_its_files_exist(build: Path, tmp_path: Path) -> None:
    """Program below /opt, one link on the path, everything a menu needs."""
    recipe = pack.recipe(build, tmp_path, NEEDS)
    places = {item["dst"]: item for item in recipe["contents"]}
    assert places["/usr/bin/freetoken"]["src"] == "/opt/freetoken/freetoken"
    assert f"/usr/share/applications/{NAME}.desktop" in places
    assert f"/usr/share/icons/hicolor/256x256/apps/{NAME}.png" in places
    for item in recipe["contents"]:
        assert item.get("type") == "symlink" or Path(item["src"]).exists(), item
    assert (recipe["version"], recipe["version_schema"]) == ("1.2.3", "none")
    assert recipe["conflicts"] == ["freetoken"]


def test_recipe_of_a_trial_version_then_a_release_is_newer(build: Path, tmp_path: Path) -> None:
    """Or nobody who tried it would be given the release."""
    stamp = build / "_internal" / "resources" / "build.json"
    stamp.write_text(json.dumps({"version": "1.2.0rc3", "bundle": "full"}))
    assert pack.recipe(build, tmp_path, NEEDS)["version"] == "1.2.0~rc3"
    assert 'version="1.2.0~rc3"' in (tmp_path / f"{NAME}.metainfo.xml").read_text("utf-8")


def test_dependencies_when_written_then_in_both_packagers_words() -> None:
    """P-03: the small xcb libraries are asked for, by package or by library."""
    assert NEEDS.deb()[:2] == ["libc6 (>= 2.35)", "libstdc++6 (>= 11)"]
    assert {"libxcb-cursor0", "libx11-6", "libegl1", "ca-certificates"} <= set(NEEDS.deb())
    assert {"libc.so.6(GLIBC_2.35)(64bit)", "libxcb-cursor.so.0()(64bit)"} <= set(NEEDS.rpm())


@pytest.mark.parametrize(
    ("dump", "message"),
    [("  NEEDED               libnew.so.7\n", r"libnew\.so\.7 \(wanted by thing\.so\)"), ("", "")],
)
def test_needs_when_a_library_is_unknown_then_packaging_stops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dump: str, message: str
) -> None:
    """P-03: a dependency is found by us, not by the person who installs."""
    (tmp_path / "thing.so").write_bytes(b"\x7fELF")
    (tmp_path / "libours.so.1").write_bytes(b"\x7fELF")
    text = (
        "  NEEDED               libours.so.1\n  NEEDED               libX11.so.6\n"
        "  NEEDED               libc.so.6\n 0x0 0x00 02 GLIBC_2.17\n 0x0 0x00 03 GLIBC_2.34\n"
        " 0x0 0x00 04 GLIBCXX_3.4.29\n" + dump
    )
    monkeypatch.setattr(needs, "_dumps", lambda files: [("thing.so", text)])
    if message:
        with pytest.raises(needs.UnknownLibrary, match=message):
            needs.needs_of(tmp_path)
    else:
        assert needs.needs_of(tmp_path) == needs.Needs(("libX11.so.6",), (2, 34), 11)


def test_qt_libraries_when_listed_for_engineers_and_packages_then_they_agree() -> None:
    """A library that `dev.py` tells people to install is one that the package asks for."""
    import dev

    packages = {name for words in needs.PROVIDERS.values() for name in words.split(" | ")}
    told = set(dev.QT_LIBRARIES.split()) - {"libopengl0", "libxcb-xinerama0"}
    assert told <= {*packages, *needs.ALSO}


@pytest.mark.parametrize("suffix", ["gz", "xz"])
def test_tarball_when_made_then_all_is_inside_and_belongs_to_nobody_here(
    build: Path, tmp_path: Path, suffix: str
) -> None:
    """The smallest form and the quick one hold the same; names of the builder stay out."""
    path = tmp_path / f"a.tar.{suffix}"
    pack._tarball(build, path)
    with tarfile.open(path, f"r:{suffix}") as archive:
        members = archive.getmembers()
    names = {member.name for member in members}
    assert {"freetoken/README", "freetoken/freetoken-desktop.desktop"} < names
    assert {f"freetoken/{one.relative_to(build)}" for one in build.rglob("*")} <= names
    assert {(member.uid, member.uname) for member in members} == {(0, "root")}


@pytest.mark.parametrize(("size", "is_said"), [(66_000_000, False), (66_000_001, True)])
def test_shell_when_larger_than_it_may_be_then_packaging_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], size: int, is_said: bool
) -> None:
    """It is what everybody fetches before the window is first seen."""
    path = tmp_path / "freetoken.deb"
    with path.open("wb") as file:
        file.truncate(size)
    pack.warn_of_size([path])
    assert ("too large: 66.0 of 66 MB" in capsys.readouterr().out) == is_said
