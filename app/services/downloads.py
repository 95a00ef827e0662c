"""Where downloads lie and how they go: a hidden folder beside the converted models, same disk.

`<models folder>/.downloads/OWNER/NAME`; only folders with the job's own pin file in them are ever
removed. Knows no job runner.
"""

import contextlib
import shutil
import threading
from dataclasses import dataclass
from pathlib import Path

import msgspec
from PySide6.QtCore import QObject, Qt, Signal

FOLDER = ".downloads"
PIN_NAME = "download.json"  # written by the engine's job
_DOOMED = ".deleted"


def download_folder(models: Path, repo: str) -> Path:
    """Return the folder of a repository's download; a model is called as its folder is."""
    owner, _, name = repo.partition("/")
    return models / FOLDER / owner / name


@dataclass(frozen=True, slots=True)
class Kept:
    """A download on disk: its folder, repository and bytes."""

    folder: Path
    repo: str
    num_bytes: int


class _Pin(msgspec.Struct):
    repo: str = ""


class Downloads(QObject):
    """Asks for free space and removes downloads, on threads: a share may block for ever.

    Signals:
        room(int): free bytes on the disk that was asked about, -1 = it is not there.
        found(tuple[Kept, ...]): what lies below a models folder.
        removed(str, int): a download is gone; its folder and the bytes.
    """

    room = Signal(object)  # int is 32 bits wide
    found = Signal(object)
    removed = Signal(str, object)
    _gone = Signal(str, object)

    def __init__(self) -> None:
        super().__init__()
        self._gone.connect(self.removed, Qt.ConnectionType.QueuedConnection)

    def ask_room(self, folder: Path) -> None:
        """Look how much is free; `room` follows."""

        def work() -> None:
            try:
                free = shutil.disk_usage(_existing(folder)).free
            except OSError:
                free = -1
            with contextlib.suppress(RuntimeError):  # the app has ended meanwhile
                self.room.emit(free)

        threading.Thread(target=work, name="disk-room", daemon=True).start()

    def look(self, models: Path) -> None:
        """Look what was fetched, whole or not; `found` follows."""

        def work() -> None:
            kept = _look(models)
            with contextlib.suppress(RuntimeError):
                self.found.emit(kept)

        threading.Thread(target=work, name="downloads", daemon=True).start()

    def sweep(self, models: Path) -> None:
        """Remove what a deletion left behind when the app or the machine ended in it."""
        threading.Thread(target=_sweep, args=(models,), name="sweep", daemon=True).start()

    def remove(self, folder: Path) -> None:
        """Remove a download, whole or not; anything else is left alone."""

        def work() -> None:
            size = _remove(folder)
            if size is not None:
                with contextlib.suppress(RuntimeError):
                    self._gone.emit(str(folder), size)

        threading.Thread(target=work, name="download-delete", daemon=True).start()


def is_download(folder: Path) -> bool:
    """Whether a folder is a download of ours."""
    is_ours = folder.parent.parent.name == FOLDER and not folder.is_symlink()
    return is_ours and (folder / PIN_NAME).is_file()


def _sweep(models: Path) -> None:
    """Remove half-deleted folders: downloads that were ours, and models."""
    with contextlib.suppress(OSError):
        for folder in (*(models / FOLDER).glob(f"*/*{_DOOMED}"), *models.glob(f".*{_DOOMED}")):
            if folder.is_dir() and not folder.is_symlink():
                shutil.rmtree(folder, ignore_errors=True)
        for owner in (*(models / FOLDER).glob("*"), models / FOLDER):
            with contextlib.suppress(OSError):  # not empty
                owner.rmdir()


def _look(models: Path) -> tuple[Kept, ...]:
    kept = []
    with contextlib.suppress(OSError):
        for pin in sorted((models / FOLDER).glob(f"*/*/{PIN_NAME}")):
            with contextlib.suppress(OSError, msgspec.MsgspecError, UnicodeDecodeError):
                repo = msgspec.json.decode(pin.read_bytes(), type=_Pin).repo
                if is_download(pin.parent) and not pin.parent.name.endswith(_DOOMED):
                    kept.append(Kept(pin.parent, repo, _size(pin.parent)))
    return tuple(kept)


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir() if path.is_file())


def _remove(folder: Path) -> int | None:
    """Remove a download and what is empty above it. Returns its bytes, None = it is none."""
    if folder.parent.parent.name != FOLDER:
        return None
    size = _remove_files(folder) if is_download(folder) else None
    for empty in (folder, folder.parent, folder.parent.parent):
        with contextlib.suppress(OSError):  # not empty, or gone
            empty.rmdir()
    return size


def _remove_files(folder: Path) -> int | None:
    try:
        size = _size(folder)
        doomed = folder.with_name(folder.name + _DOOMED)
        shutil.rmtree(doomed, ignore_errors=True)
        folder.rename(doomed)
    except OSError:
        return None
    shutil.rmtree(doomed, ignore_errors=True)
    return size


def _existing(folder: Path) -> Path:
    """Return the folder, or the nearest one above it that is there."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return folder
