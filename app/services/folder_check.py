"""Whether a folder can hold models; asked before a setting is changed (case D-21). No Qt."""

import os
import shutil
import tempfile
from pathlib import Path

from app.wording import tr


def folder_problem(folder: Path) -> str:
    """Return "" if models can be kept in `folder`, else a sentence. Looks at nothing inside."""
    if not folder.is_absolute():
        return tr("{path} is no full path.", path=folder)
    if not folder.is_dir():
        return tr("{path} is not there, or is no folder.", path=folder)
    try:
        handle, name = tempfile.mkstemp(prefix=".freetoken-", dir=folder)
        os.close(handle)
        os.unlink(name)
    except OSError as problem:
        reason = problem.strerror or ""
        return tr("{path} cannot be written to: {reason}.", path=folder, reason=reason)
    return ""


def free_bytes(folder: Path) -> int | None:
    """Return the free bytes of the disk that holds `folder` or its parent; None = unknown."""
    for place in (folder, *folder.parents):
        try:
            return shutil.disk_usage(place).free
        except OSError:
            continue
    return None
