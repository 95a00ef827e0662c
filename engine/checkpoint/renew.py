"""A converted model whose source has changed: made anew beside it, then put in its place.

Called by `engine.jobs.convert` and `engine.loader.locate`.
"""

import shutil
from pathlib import Path

from engine.checkpoint.files import access_error, rename
from engine.checkpoint.ftw import FtwReader
from engine.protocol.errors import EngineError
from engine.protocol.identity import content_id


def is_current(converted: Path, source: Path) -> bool:
    """Whether `converted` holds the bytes of `source`; False also if it cannot be read."""
    try:
        return FtwReader(converted).index.source.content == content_id(source)
    except (EngineError, OSError):
        return False


def fresh_folder(target: Path) -> Path:
    """Return where the new one is made, and see that nothing of an earlier try lies there."""
    fresh = target.with_name(f".{target.name}.new")
    shutil.rmtree(fresh, ignore_errors=True)
    return fresh


def put_in_place(fresh: Path, target: Path) -> None:
    """Give a verified model the name of the older one, which is removed after that.

    Raises: FileAccess; the older one is in its place again.
    """
    old = target.with_name(f".{target.name}.deleted")
    shutil.rmtree(old, ignore_errors=True)
    try:
        if target.exists():
            rename(target, old)
        rename(fresh, target)
    except OSError as problem:
        if old.exists() and not target.exists():
            rename(old, target)
        shutil.rmtree(fresh, ignore_errors=True)
        raise access_error(problem, "replace", target) from problem
    shutil.rmtree(old, ignore_errors=True)
