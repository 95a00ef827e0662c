"""What every platform's packages have in common: checksums and versions."""

import io
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from installers.common import pack


@pytest.fixture
def sums(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> bytes:
    """The checksums, written as Windows would: there, text gets CRLF unless told otherwise."""
    really_open = io.open

    def windows_open(
        file: Any, mode: str = "r", buffering: int = -1, encoding: str | None = None,
        errors: str | None = None, newline: str | None = None,
    ) -> Any:  # fmt: skip
        if newline is None and "b" not in mode and mode != "r":
            newline = "\r\n"
        return really_open(file, mode, buffering, encoding, errors, newline)

    for name in ("a.deb", "b c-setup.exe", "notes.txt"):
        (tmp_path / name).write_bytes(b"abc")
    monkeypatch.setattr("io.open", windows_open)
    monkeypatch.setattr("builtins.open", windows_open)
    (tmp_path / "probe").write_text("\n", encoding="utf-8")
    pack.write_sums(tmp_path)
    monkeypatch.undo()
    assert (tmp_path / "probe").read_bytes() == b"\r\n"
    return (tmp_path / "SHA256SUMS").read_bytes()


def test_sums_when_written_then_sha256sum_accepts_them(sums: bytes, tmp_path: Path) -> None:
    """P-07: hashes are published beside the files, in the form of the machine that publishes."""
    digest = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert sums.decode() == f"{digest}  a.deb\n{digest}  b c-setup.exe\n"
    if tool := shutil.which("sha256sum"):
        words = [tool, "--check", "--strict", "SHA256SUMS"]
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("version", "packaged"),
    [
        ("1.2.0", "1.2.0"),
        ("1.2.0rc3", "1.2.0~rc3"),
        ("1.2.0a1", "1.2.0~a1"),
        ("1.2.0b12", "1.2.0~b12"),
        ("1.2.0.dev4", "1.2.0~dev4"),
        ("1.2.0rc3.dev4", "1.2.0~rc3~dev4"),
        ("1.2.0.post1", "1.2.0.post1"),
    ],
)
def test_trial_version_when_packed_then_the_release_is_newer(version: str, packaged: str) -> None:
    """Packagers take `rc3` for something that comes after; with `~` it comes before."""
    assert pack.packager_version(version) == packaged
    if packaged != version and (tool := shutil.which("dpkg")):
        words = [tool, "--compare-versions", packaged, "lt", "1.2.0"]
        assert subprocess.run(words, check=False).returncode == 0
