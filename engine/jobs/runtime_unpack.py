"""Wheels to a folder that an interpreter can import from. No installer, no script is run.

A wheel is an archive whose root is what is imported; what lies under `*.data/` goes elsewhere in an
ordinary installation: `purelib` and `platlib` belong to the root too, scripts, headers and data
have no use here. Called by `engine.jobs.runtime`.
"""

import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path, PurePosixPath

from engine.protocol.errors import CorruptCheckpoint

_LIBRARIES = ("purelib", "platlib")
_BLOCK = 1 << 20


def unpack(
    wheel: Path, folder: Path, moved: Callable[[int], None], check: Callable[[], None]
) -> None:
    """Unpack a wheel into a folder that other wheels may share.

    Args:
        wheel: a file whose hash was right.
        folder: exists.
        moved: told how many bytes were written.
        check: called between files; raises to stop.

    Raises: CorruptCheckpoint for an archive that is none, or whose paths leave the folder;
        OSError if the disk does not take it.
    """
    try:
        with zipfile.ZipFile(wheel) as archive:
            for entry in archive.infolist():
                check()
                place = place_of(entry.filename)
                if entry.is_dir() or place is None:
                    continue
                _write(archive, entry, folder / place, moved)
    except (zipfile.BadZipFile, EOFError, NotImplementedError) as problem:
        raise CorruptCheckpoint(
            f"{wheel.name} cannot be unpacked: {problem}.", "Fetch it again."
        ) from problem


def place_of(name: str) -> PurePosixPath | None:
    """Return where an entry of a wheel goes, None = it is left out.

    Raises: CorruptCheckpoint for a path that leaves the folder.
    """
    path = PurePosixPath(name)
    parts = path.parts
    if path.is_absolute() or ".." in parts or "\\" in name or ":" in name or not parts:
        raise CorruptCheckpoint(f"An archive holds an unsafe path: {name!r}.")
    if not parts[0].endswith(".data"):
        return path
    if len(parts) > 2 and parts[1] in _LIBRARIES:
        return PurePosixPath(*parts[2:])
    return None


def _write(
    archive: zipfile.ZipFile, entry: zipfile.ZipInfo, path: Path, moved: Callable[[int], None]
) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with archive.open(entry) as source, path.open("wb") as target:
        shutil.copyfileobj(source, target, _BLOCK)
    if entry.external_attr >> 16 & 0o111:
        path.chmod(0o755)  # torch starts a helper of its own
    moved(entry.file_size)
