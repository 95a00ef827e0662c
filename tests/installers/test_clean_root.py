"""The packed full build on a system without Python, compilers and Qt libraries; see the module.

Needs a .deb in `dist` (`python3 dev.py package`), root, mmdebstrap, Xvfb and apt's sources.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from installers.linux import clean_root
from tests.conftest import REPOSITORY

PACKAGES = sorted((REPOSITORY / "dist").glob("freetoken-full-*.deb"))
MISSING = [tool for tool in ("mmdebstrap", "Xvfb", "unshare") if not shutil.which(tool)]

pytestmark = pytest.mark.linux


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.skipif(not PACKAGES, reason="no package: python3 dev.py package")
@pytest.mark.skipif(bool(MISSING), reason=f"needs {', '.join(MISSING)}")
@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="needs root")
@pytest.mark.skipif(not clean_root.SOURCES.exists(), reason="needs Debian's apt sources")
def test_package_on_a_bare_system_is_used_removed_and_found_again() -> None:
    """P-03: nothing but what the package declares, and it starts; removal leaves the data root."""
    words = [sys.executable, "-m", "installers.linux.clean_root", str(PACKAGES[-1])]
    done = subprocess.run(words, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:]
    assert "found again" in done.stdout


class FakeRoot(clean_root.CleanRoot):
    """A root whose commands only do what the test says."""

    def __init__(self, folder: Path, after_purge: str) -> None:
        super().__init__(folder)
        self._after_purge = after_purge
        self.purged = ""
        self.data = folder / clean_root.DATA[1:]

    def make(self) -> int:
        (self.folder / "tmp").mkdir(parents=True)
        return 1

    def run(self, *words: str, person: int = 0, **variables: str) -> str:
        if "freetoken" in words:
            out = self.folder / words[2][1:]
            out.mkdir(parents=True)
            (out / "smoke.json").write_text('{"ok": true}')
            (self.data / "models" / "m").mkdir(parents=True, exist_ok=True)
            (self.data / "models" / "m" / "model.ftw").write_text("1")
        if words[0] == "dpkg-deb":
            assert (self.folder / words[2][1:]).exists()
            return "freetoken-full\n"
        if "purge" in words:
            self.purged = words[-1]
            if self._after_purge == "data":
                (self.data / "models" / "m" / "model.ftw").write_text("2")
            elif self._after_purge:
                place = self.folder / self._after_purge
                place.parent.mkdir(parents=True)
                place.write_text("")
        return ""


@pytest.mark.parametrize("left", ["", "data", "usr/bin/freetoken", "opt/freetoken/x"])
def test_removal_when_it_touches_data_or_leaves_the_program_then_it_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left: str
) -> None:
    """The check itself must be able to fail."""
    package = tmp_path / "freetoken-full-2.0.0-linux.deb"
    package.write_bytes(b"")
    monkeypatch.setattr(clean_root, "chats_of", lambda root: {1: 2})
    root = FakeRoot(tmp_path / "root", left)
    if not left:
        clean_root.go_through(root, package, ":9")
        assert root.purged == "freetoken-full"
        return
    with pytest.raises(clean_root.Failed, match="Removing left"):
        clean_root.go_through(root, package, ":9")
