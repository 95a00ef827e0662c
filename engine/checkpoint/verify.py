"""Reads a whole FTW folder and holds every byte that matters against its checksum.

Called at the end of a conversion, before the output gets its name, and by `engine.jobs.verify`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import xxhash

from engine.checkpoint.files import read_bytes
from engine.checkpoint.ftw import FtwReader
from engine.checkpoint.index import AGAIN
from engine.protocol.errors import Cancelled, CorruptCheckpoint


@dataclass(frozen=True, slots=True)
class Verified:
    """What was read and found right."""

    num_records: int
    num_tensors: int
    num_bytes: int


def verify_folder(
    folder: Path, progress: Callable[[int, int], None], cancelled: Callable[[], bool]
) -> Verified:
    """Check index, records, tensors and copied files; one chunk of memory.

    Units: progress(done_bytes, total_bytes).
    Raises: CorruptCheckpoint naming file and record or tensor; UnsupportedCheckpoint; FileAccess;
        Cancelled.
    """
    reader = FtwReader(folder)
    index = reader.index
    total = reader.pool_bytes + sum(extent.num_bytes for extent in index.tensors)
    reader.check_pool(lambda done, _: progress(done, total), cancelled)
    done = reader.pool_bytes
    for extent in index.tensors:
        if cancelled():
            raise Cancelled("Checking the model was cancelled.")
        reader.raw(extent.name)
        done += extent.num_bytes
        progress(done, total)
    for side in index.side_files:
        if xxhash.xxh3_64_hexdigest(read_bytes(folder / side.name)) != side.xxh3:
            raise CorruptCheckpoint(f"{side.name} in {folder} is not what was copied there.", AGAIN)
    return Verified(reader.num_records, len(index.tensors), done)
