"""How much the models folder holds and how much room is beside it; asked on a thread.

A folder on a dead share may block for ever, so nothing waits for the answer. Knows no job.
"""

import contextlib
import threading
from dataclasses import dataclass
from pathlib import Path

from PySide6.QtCore import QObject, Signal

from app.services.downloads import FOLDER
from app.services.folder_check import free_bytes
from app.services.model_scan import INDEX_NAME, MAX_ENTRIES


@dataclass(frozen=True, slots=True)
class StoreFacts:
    """What one look found; -1 = not known, the folder may be away."""

    folder: Path
    num_models: int = 0
    num_bytes: int = -1
    free_bytes: int = -1


class ModelStore(QObject):
    """Measures folders.

    Signals:
        measured(StoreFacts): the answer to `measure`.
    """

    measured = Signal(object)

    def measure(self, folder: Path) -> None:
        """Look; `measured` follows, if the disk answers."""

        def work() -> None:
            facts = look(folder)
            with contextlib.suppress(RuntimeError):  # the app has ended meanwhile
                self.measured.emit(facts)

        threading.Thread(target=work, name="model-store", daemon=True).start()


def look(folder: Path) -> StoreFacts:
    """Return the facts of a folder: models and downloads, not what else lies there. Blocking."""
    free = free_bytes(folder)
    free = -1 if free is None else free
    try:
        models = [path.parent for path in list(folder.glob(f"*/{INDEX_NAME}"))[:MAX_ENTRIES]]
        size = sum(_size(model) for model in models)
        size += _size(folder / FOLDER)
    except OSError:
        return StoreFacts(folder, free_bytes=free)
    if not folder.is_dir():
        return StoreFacts(folder, free_bytes=free)
    return StoreFacts(folder, len(models), size, free)


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
