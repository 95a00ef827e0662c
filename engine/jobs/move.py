"""Job: copy models and downloads to another folder, verified; and, asked for apart, remove the old.

Spec: {"act": "copy" | "clean" | "drop", "source": folder, "target": folder, "id": str}; with "copy"
also "names": [folder] for some of them only, and "keep": true if the source stays whatever happens
(an import); a target that is "own_folder", the app's, is made. Result of "copy": path, num_bytes,
num_models, is_moved (the same disk: renamed, nothing is left to be removed), left (names that are
not ours). Of "clean": num_bytes, kept. Of "drop": {}.

"copy" never changes the source on another disk; what it has copied when it is stopped lies under
STAGE in the target and is compared, not copied again, by the next run. Everything gets its name at
the end, once all of it was read back. "clean" removes only what the target holds in full.
Stages of progress: "check", "copy", "verify"; "remove".
"""

import errno
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.checkpoint.files import (
    access_error,
    check_space,
    reading,
    rename,
    sync_folder,
)
from engine.jobs.convert import make_own, read_path
from engine.jobs.move_files import Copier, Watch, same_bytes
from engine.jobs.move_items import DOWNLOADS, Item, find_items, strangers
from engine.protocol.errors import CorruptCheckpoint, FileAccess, InvalidRequest
from engine.protocol.messages import Event, Progress

STAGE = ".moving"


@dataclass(frozen=True, slots=True)
class _Order:
    """What is to be done."""

    job_id: str
    source: Path
    target: Path
    names: tuple[str, ...]
    keep: bool

    @property
    def stage(self) -> Path:
        """Where things lie until all are there."""
        return self.target / STAGE


def run(
    spec: dict[str, Any], emit: Callable[[Event], None], cancelled: Callable[[], bool]
) -> dict[str, Any]:
    """Run the job.

    Raises: InvalidRequest, FileAccess, DiskFull (before the first byte, where it can be known),
        CorruptCheckpoint (the copy is not what was read), Cancelled. The source is untouched after
        any of them.
    """
    names = spec.get("names") or ()
    order = _Order(
        str(spec.get("id", "")),
        read_path(spec, "source"),
        read_path(spec, "target"),
        tuple(str(name) for name in names),
        spec.get("keep") is True,
    )
    acts = {"copy": _copy, "clean": _clean, "drop": _drop}
    act = acts.get(str(spec.get("act")))
    if act is None:
        raise InvalidRequest(f"The job's 'act' must be one of {', '.join(acts)}.")

    if act is _copy:
        make_own(spec, order.target)

    def tell(stage: str, done: int, total: int) -> None:
        emit(Progress(id=order.job_id, stage=stage, done_bytes=done, total_bytes=total))

    return act(order, Watch(tell, cancelled))


def _copy(order: _Order, watch: Watch) -> dict[str, Any]:
    watch.begin("check", 0)
    _check_places(order)
    with reading(order.source):
        items = find_items(order.source, order.names)
    if order.names and len(items) < len(order.names):
        raise FileAccess(f"{order.source} has no model {order.names[0]}.", "Choose its folder.")
    _check_free_names(order, items)
    is_moved = not order.keep and _try_rename(order, items)
    if not is_moved:
        _copy_items(order, items, watch)
    return {
        "path": str(order.target),
        "num_bytes": sum(item.num_bytes for item in items),
        "num_models": sum(not item.is_download for item in items),
        "is_moved": is_moved,
        "left": strangers(order.source, items) if not order.names else [],
    }


def _copy_items(order: _Order, items: tuple[Item, ...], watch: Watch) -> None:
    copier = Copier(watch)
    pairs = [(file, _place(order, item) / name) for item in items for name, file in item.files]
    total = sum(item.num_bytes for item in items)
    with reading(order.target):
        check_space(order.target, total - sum(_size(there) for _, there in pairs))
    watch.begin("copy", total)
    for file, there in pairs:
        copier.copy(file, there)
    watch.begin("verify", total)
    for file, there in pairs:
        if not same_bytes(file, there, watch):
            there.unlink()
            raise CorruptCheckpoint(
                f"{there.name} did not arrive at {order.target} as it was read.",
                "The old folder is untouched. The disk may be failing; try again.",
            )
    for item in items:
        _publish(order, item)
    shutil.rmtree(order.stage, ignore_errors=True)


def _check_places(order: _Order) -> None:
    source, target = order.source.resolve(), order.target.resolve()
    if not source.is_dir():
        raise FileAccess(f"The models folder {order.source} is not there.")
    if not target.is_dir():
        raise FileAccess(f"The folder {order.target} is not there.", "Choose another one.")
    if source == target or source in target.parents or target in source.parents:
        raise FileAccess(
            f"{order.target} and {order.source} lie in each other.", "Choose another folder."
        )


def _check_free_names(order: _Order, items: tuple[Item, ...]) -> None:
    """Raise FileAccess if the target has something else under one of the names."""
    for item in items:
        there = order.target / item.name
        if there.exists() and not _is_whole(item, there):
            raise FileAccess(
                f"{order.target} has another {item.name} already.",
                "Rename or delete one of the two, then try again.",
            )


def _try_rename(order: _Order, items: tuple[Item, ...]) -> bool:
    """Give all items their new place if that is the same disk; all of them, or none.

    Raises: FileAccess.
    """
    if order.source.stat().st_dev != order.target.stat().st_dev:
        return False
    done: list[Item] = []
    try:
        for item in items:
            there = order.target / item.name
            if not there.exists():  # else an earlier run was stopped in between
                there.parent.mkdir(parents=True, exist_ok=True)
                rename(order.source / item.name, there)
                done.append(item)
    except OSError as problem:
        for item in reversed(done):
            rename(order.target / item.name, order.source / item.name)
        if problem.errno == errno.EXDEV:
            return False
        raise access_error(problem, "move", order.source) from problem
    return True


def _place(order: _Order, item: Item) -> Path:
    """Return where an item lies: under its name if an earlier run came that far."""
    there = order.target / item.name
    return there if there.exists() else order.stage / item.name


def _publish(order: _Order, item: Item) -> None:
    there = order.target / item.name
    if there.exists():
        return
    try:
        there.parent.mkdir(parents=True, exist_ok=True)
        rename(order.stage / item.name, there)
        sync_folder(there.parent)
    except OSError as problem:
        raise access_error(problem, "write", there) from problem


def _clean(order: _Order, watch: Watch) -> dict[str, Any]:
    with reading(order.source):
        items = find_items(order.source, ())
    watch.begin("remove", sum(item.num_bytes for item in items))
    freed, kept = 0, []
    for item in items:
        watch.check()
        if _is_whole(item, order.target / item.name) and _remove(order.source / item.name):
            freed += item.num_bytes
            watch.add(item.num_bytes)
        else:
            kept.append(item.name)
    for empty in (*(order.source / DOWNLOADS).glob("*"), order.source / DOWNLOADS):
        with suppress(OSError):  # not empty, or no folder
            empty.rmdir()
    return {"num_bytes": freed, "kept": kept}


def _remove(folder: Path) -> bool:
    doomed = folder.with_name(f".{folder.name}.deleted")
    try:
        rename(folder, doomed)
    except OSError:
        return False
    shutil.rmtree(doomed, ignore_errors=True)
    return True


def _drop(order: _Order, watch: Watch) -> dict[str, Any]:
    watch.begin("remove", 0)
    shutil.rmtree(order.stage, ignore_errors=True)
    return {}


def _is_whole(item: Item, there: Path) -> bool:
    return all(_size(there / name) == file.stat().st_size for name, file in item.files)


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0
