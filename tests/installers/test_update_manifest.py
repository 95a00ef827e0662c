"""The signed list of releases: what the app would refuse is not signed."""

import sys
from pathlib import Path

import pytest

from app.services.updates import Release, read_manifest
from installers.common import update_manifest

PAGE = "https://example.org/releases/v1.2.0"


@pytest.fixture
def key(tmp_path: Path) -> tuple[str, str]:
    """Path of a private key, and its public half."""
    path = tmp_path / "key.hex"
    return str(path), update_manifest.new_key(path)


def sign(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr(sys, "argv", ["update_manifest", "sign", *words])
    return update_manifest.main()


def test_list_when_signed_then_the_app_believes_it(
    key: tuple[str, str], monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    """The workflow's own words."""
    path, public = key
    assert sign(monkeypatch, path, "1.2.0", PAGE, "--public", f"{public}\n") == 0
    sys.stdout.flush()
    assert read_manifest(capfdbinary.readouterr().out, public) == Release("1.2.0", PAGE)


@pytest.mark.parametrize(
    ("version", "page", "public", "word"),
    [
        ("1.2.0rc3", PAGE, "", "numbers and dots"),
        ("v1.2.0", PAGE, "", "numbers and dots"),
        ("1.2.0", "http://example.org", "", "https"),
        ("1.2.0", PAGE, "00" * 32, "not the one"),
    ],
)
def test_list_when_the_app_would_refuse_it_then_it_is_not_signed(
    key: tuple[str, str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    version: str,
    page: str,
    public: str,
    word: str,
) -> None:
    """Found on the day of the release and not by everybody who asks."""
    assert sign(monkeypatch, key[0], version, page, "--public", public) == 1
    said = capsys.readouterr()
    assert word in said.err
    assert said.out == ""
