"""Licences of everything that this program brings: name, version, licence, texts. No Qt.

A frozen build holds a list that `installers/common/notices.py` wrote; a checkout reads what is
installed. An engine runtime is read from its own folder, in both.
"""

from collections.abc import Iterable
from importlib.metadata import Distribution, distributions
from pathlib import Path

import msgspec

from engine.protocol.places import resources_dir

INDEX = "packages.json"
_WORDS = ("licen", "copying", "notice", "authors")
# Not Python packages, or without a text of their own: what lies in the licences folder.
_OURS = (
    ("FreeToken Desktop", "Apache-2.0", ("../../LICENSE", "../../NOTICE", "LICENSE", "NOTICE")),
    ("Qt, PySide6, Shiboken", "LGPL-3.0", ("Qt.md", "LGPL-3.0.txt", "GPL-3.0.txt")),
    ("Python", "PSF-2.0", ("Python.txt",)),
    ("Inter", "OFL-1.1", ("Inter-OFL.txt",)),
    ("JetBrains Mono", "OFL-1.1", ("JetBrainsMono-OFL.txt",)),
    ("nvidia-ml-py", "BSD-3-Clause", ("nvidia-ml-py.txt",)),
    ("nanobind, robin-map", "BSD-3-Clause, MIT", ("nanobind.txt",)),
    ("System libraries", "see text", ("system.md",)),
)
_TOOLS = {  # of a checkout, which never ship
    "pip", "setuptools", "wheel", "pytest", "ruff", "mypy", "hypothesis", "pyinstaller", "nanobind",
}  # fmt: skip


class Licence(msgspec.Struct, frozen=True):
    """One part.

    Attributes:
        name, version: of the part.
        licence: its short name, "" = see the text.
        texts: files to read.
    """

    name: str
    version: str = ""
    licence: str = ""
    texts: tuple[str, ...] = ()

    def read(self) -> str:
        """Return all texts; a file that cannot be read is named."""
        parts = []
        for text in self.texts:
            try:
                parts.append(Path(text).read_text("utf-8", "replace").strip("\n"))
            except OSError as problem:
                parts.append(f"{text}: {problem.strerror}")
        return "\n\n".join(parts)


def read_licences(
    runtime: Path | None = None, resources: Path | None = None
) -> tuple[Licence, ...]:
    """Return the licences of all parts, ours first, then by name.

    Args:
        runtime: folder of an installed engine runtime, None = there is none.
        resources: the shipped resources.
    """
    folder = (resources or resources_dir()) / "licences"
    found = {entry.name: entry for entry in licences_of(_paths(runtime))}
    listed = _listed(folder)
    packages = listed if listed is not None else licences_of(None)
    found |= {entry.name: entry for entry in packages}
    ours = tuple(_own(folder, *entry) for entry in _OURS)
    for entry in ours:
        found.pop(entry.name, None)
    others = sorted(found.values(), key=lambda entry: entry.name.lower())
    return (*(entry for entry in ours if entry.texts), *others)


def licences_of(places: list[str] | None) -> tuple[Licence, ...]:
    """Return the licences of packages installed in folders, None = where this Python looks."""
    found = distributions() if places is None else distributions(path=places)
    tools = _TOOLS if places is None else frozenset[str]()
    return tuple(_entry(p) for p in found if p.name and p.name.lower() not in tools)


def licence_name(package: Distribution) -> str:
    """Return the short name of a package's licence, "" if its metadata hold none."""
    facts = package.metadata
    given = [facts.get_all(key) or [""] for key in ("License-Expression", "License")]
    short = str(given[0][0] or given[1][0])
    if short and "\n" not in short and len(short) < 60:
        return short
    kinds = [c for c in facts.get_all("Classifier") or () if c.startswith("License ::")]
    return str(kinds[0]).rpartition(" :: ")[2] if kinds else ""


def text_files(package: Distribution) -> list[Path]:
    """Return the licence files that a package was installed with."""
    return [
        Path(str(package.locate_file(file)))
        for file in package.files or ()
        if ".dist-info" in file.parts[0]
        and any(word in part.lower() for part in file.parts[1:] for word in _WORDS)
    ]


def _entry(package: Distribution) -> Licence:
    texts = tuple(str(path) for path in text_files(package))
    return Licence(package.name, package.version, licence_name(package), texts)


def _paths(runtime: Path | None) -> list[str]:
    return [] if runtime is None else [str(runtime)]


def _listed(folder: Path) -> Iterable[Licence] | None:
    """Return what the freezer wrote down, None in a checkout."""
    try:
        entries = msgspec.json.decode((folder / INDEX).read_bytes(), type=list[Licence])
    except (OSError, msgspec.MsgspecError):
        return None
    return [
        msgspec.structs.replace(entry, texts=tuple(str(folder / text) for text in entry.texts))
        for entry in entries
    ]


def _own(folder: Path, name: str, licence: str, texts: tuple[str, ...]) -> Licence:
    there = tuple(str((folder / text).resolve()) for text in texts if (folder / text).is_file())
    return Licence(name, "", licence, there)
