"""Licences: of all parts, in a checkout and in a build, with their texts."""

import json
from pathlib import Path

from app.services.licences import INDEX, read_licences
from app.services.model_open import model_folder
from app.views.about import LicenceDialog


def test_checkout_when_read_then_ours_first_and_every_dependency():
    """The texts come from what is installed."""
    entries = read_licences()
    names = {entry.name.lower() for entry in entries}
    assert entries[0].name == "FreeToken Desktop"
    assert "Apache License" in entries[0].read()
    assert {"torch", "numpy", "msgspec", "psutil", "keyring"} <= names
    numpy = next(entry for entry in entries if entry.name == "numpy")
    assert "BSD" in numpy.licence
    assert "NumPy Developers" in numpy.read()


def test_build_when_it_has_a_list_then_that_counts(tmp_path: Path):
    """A frozen window has no metadata of packages."""
    folder = tmp_path / "licences"
    (folder / "packages").mkdir(parents=True)
    (folder / "packages" / "x.txt").write_text("All rights given.")
    entry = {"name": "x", "version": "1", "licence": "MIT", "texts": ["packages/x.txt"]}
    (folder / INDEX).write_text(json.dumps([entry]))
    (found,) = read_licences(resources=tmp_path)
    assert (found.name, found.licence, found.read()) == ("x", "MIT", "All rights given.")


def test_runtime_when_installed_then_its_packages_are_listed_too(tmp_path: Path):
    info = tmp_path / "ftlib-1.0.dist-info"
    (info / "licenses").mkdir(parents=True)
    (info / "METADATA").write_text(
        "Metadata-Version: 2.4\nName: ftlib\nVersion: 1.0\nLicense-Expression: MIT\n"
    )
    (info / "RECORD").write_text("ftlib-1.0.dist-info/licenses/LICENSE,,\n")
    (info / "licenses" / "LICENSE").write_text("Do as you like.")
    entry = next(e for e in read_licences(tmp_path) if e.name == "ftlib")
    assert (entry.licence, entry.read()) == ("MIT", "Do as you like.")


def test_text_when_it_is_gone_then_its_path_is_shown(tmp_path: Path):
    folder = tmp_path / "licences"
    folder.mkdir()
    (folder / INDEX).write_text(json.dumps([{"name": "x", "texts": ["gone.txt"]}]))
    (found,) = read_licences(resources=tmp_path)
    assert "gone.txt" in found.read()


def test_dialog_when_another_part_is_chosen_then_its_text_is_shown(qtbot, looks):
    dialog = LicenceDialog(read_licences())
    qtbot.addWidget(dialog)
    names = [dialog.parts.itemText(index) for index in range(dialog.parts.count())]
    dialog.parts.activated.emit(names.index("msgspec"))
    assert "Jim Crist" in dialog.text.toPlainText()


def test_opened_file_when_it_is_an_index_or_its_folder_then_the_model(tmp_path: Path):
    """A double click hands over the file, a drop the folder."""
    folder = tmp_path / "modèl 語"
    folder.mkdir()
    (folder / "model.ftw").write_text("{}")
    (folder / "other.ftw").write_text("{}")
    assert model_folder(str(folder / "model.ftw")) == folder
    assert model_folder(str(folder)) == folder
    assert model_folder(str(folder / "other.ftw")) is None
    assert model_folder(str(tmp_path)) is None
    assert model_folder(str(tmp_path / "gone" / "model.ftw")) is None
