"""The small text files of a model folder, or a sentence that names the one that is wrong.

Called by the modules of `engine.text`.
"""

import json
from pathlib import Path
from typing import Any

from engine.protocol.errors import CorruptCheckpoint, FileAccess


def read_text(path: Path) -> str:
    """Return a file's text. Raises: FileAccess, CorruptCheckpoint if it is not UTF-8."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as problem:
        raise FileAccess(
            f"{path} cannot be read: {problem.strerror}.",
            "Import the model again from its source folder.",
        ) from problem
    except UnicodeDecodeError as problem:
        raise damaged(path, problem) from problem


def read_json(path: Path) -> dict[str, Any]:
    """Return a file's JSON object, {} if there is no such file.

    Raises: FileAccess, CorruptCheckpoint if it holds anything else.
    """
    if not path.is_file():
        return {}
    try:
        facts = json.loads(read_text(path))
    except ValueError as problem:
        raise damaged(path, problem) from problem
    if not isinstance(facts, dict):
        raise damaged(path, "it holds no JSON object")
    return facts


def damaged(path: Path, problem: object) -> CorruptCheckpoint:
    """Return the error that names a file and what is wrong with it."""
    return CorruptCheckpoint(
        f"{path} is damaged: {str(problem).rstrip('.')}.", f"Download {path.name} again."
    )
