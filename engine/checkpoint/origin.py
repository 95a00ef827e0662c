"""Where a checkpoint's folder came from: repository and commit, as far as the folder says.

A download of ours keeps them in a file; a hub cache has them in its path. Called by
`engine.checkpoint.source` and `engine.jobs.download`.
"""

from pathlib import Path

import msgspec

PIN_NAME = "download.json"


class Origin(msgspec.Struct, frozen=True):
    """What a folder is a copy of; empty = it does not say.

    Attributes:
        repo: OWNER/NAME on the hub.
        revision: what was asked for, such as "main".
        commit: what that was.
    """

    repo: str = ""
    revision: str = ""
    commit: str = ""


def read_pin(folder: Path) -> Origin | None:
    """Return what a download of ours wrote down; None if there is nothing, or it is damaged."""
    try:
        return msgspec.json.decode((folder / PIN_NAME).read_bytes(), type=Origin)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None


def origin_of(folder: Path) -> Origin:
    """Return where a folder came from: by its pin, else by its place in a hub cache."""
    pin = read_pin(folder)
    if pin is not None:
        return pin
    cache = folder.parents[1].name if folder.parent.name == "snapshots" else ""
    kind, _, rest = cache.partition("--")
    owner, _, name = rest.partition("--")
    if kind == "models" and name:
        return Origin(f"{owner}/{name}", "", folder.name)
    return Origin()
