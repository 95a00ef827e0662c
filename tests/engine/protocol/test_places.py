"""One data root, and resources that are found in a checkout and in a frozen build."""

import sys
from pathlib import Path

import pytest

from engine.protocol.places import DataRoot, data_root, resources_dir


def test_data_root_when_overridden_then_everything_lies_below_it(tmp_path: Path) -> None:
    """FREETOKEN_HOME moves all of it; nothing is written elsewhere."""
    root = data_root(str(tmp_path / "home"))
    assert root.root == tmp_path / "home"
    places = [
        getattr(root, name) for name, value in vars(DataRoot).items() if isinstance(value, property)
    ]
    assert len(set(places)) == len(places) >= 7
    assert all(place.parent == root.root for place in places)
    assert not root.root.exists()


def test_data_root_when_override_is_short_then_it_is_made_absolute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`~` and relative paths mean the same from any folder afterwards."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert data_root("~/ft").root == data_root("ft").root == tmp_path / "ft"


@pytest.mark.parametrize("override", [None, ""])
def test_data_root_when_not_overridden_then_the_platforms_folder(override: str | None) -> None:
    """An empty variable is none."""
    root = data_root(override).root
    assert root.is_absolute()
    assert root.name == "FreeToken Desktop"


def test_resources_when_in_a_checkout_then_beside_the_packages() -> None:
    """The built-in model is there."""
    assert (resources_dir() / "models" / "tiny-moe-fp8" / "config.json").is_file()


def test_resources_when_frozen_then_in_the_bundle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A frozen program unpacks them beside itself."""
    monkeypatch.setattr(sys, "_MEIPASS", str(tmp_path), raising=False)
    assert resources_dir() == tmp_path / "resources"
