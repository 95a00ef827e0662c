"""Job: install the engine's libraries into the data root, as `runtime/<key of the lock>/`.

Spec: {"lock": path, "id": str} and where needed "bundle": path of an offline bundle (then "lock" is
not needed), "mirror": address of an index that has everything, "channels": {channel: address},
"repair": true (install again what is there), "hub_proxy"; or {"act": "clean", "keep": key}, which
removes runtimes that a newer one has replaced, and downloads but the kept one's.
Result: path, key, num_bytes.

Stages of its progress: "check", "download" ("retry" while a lost connection is awaited), "unpack",
"try". Wheels are kept in `caches/runtime/<key>/` until the end, so every stage can be killed and
taken up again. What is unpacked bears another name until the engine has answered with it, so
nothing half-installed is ever started, and the present runtime serves until then.
"""

import hashlib
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from engine.checkpoint.files import (
    FileLock,
    access_error,
    check_space,
    reading,
    rename,
    sync_file,
    write_error,
)
from engine.jobs.hub import HubFile, HubRepo
from engine.jobs.hub_file import CHUNK_BYTES, Hooks, fetch, kept_bytes
from engine.jobs.runtime_bundle import Bundle
from engine.jobs.runtime_check import check_engine
from engine.jobs.runtime_index import Indexes, WheelIndex
from engine.jobs.runtime_report import Report
from engine.jobs.runtime_unpack import unpack
from engine.protocol.errors import FileAccess, InvalidRequest
from engine.protocol.messages import Event
from engine.protocol.places import DataRoot
from engine.protocol.runtime_lock import (
    MANIFEST,
    RuntimeLock,
    Wheel,
    installed_lock,
    newest_runtime,
    read_lock,
    this_platform,
    this_python,
)

LOCK_NAME = "install.lock"
_DRAFT, _OLD = ".part", ".old"
_HOOKS = Hooks  # replaced in tests, which do not wait between tries


@dataclass(frozen=True, slots=True)
class _Order:
    """What is to be installed, from where and to where."""

    root: DataRoot
    lock: RuntimeLock
    bundle: Bundle | None
    indexes: Indexes
    repair: bool

    @property
    def target(self) -> Path:
        return self.root.runtime / self.lock.key

    @property
    def draft(self) -> Path:
        return self.root.runtime / f".{self.lock.key}{_DRAFT}"

    @property
    def downloads(self) -> Path:
        return self.root.caches / "runtime" / self.lock.key


def run(
    spec: dict[str, Any], emit: Callable[[Event], None], cancelled: Callable[[], bool]
) -> dict[str, Any]:
    """Run the job. A cancel keeps what was fetched.

    Raises: InvalidRequest (lock or bundle for another machine), DiskFull, NetworkError,
        FileAccess, CorruptCheckpoint (wrong bytes, or the engine does not run with them),
        Cancelled.
    """
    root = DataRoot(Path(_text(spec, "home")))
    report = Report(_text(spec, "id"), emit)
    hooks = _HOOKS(report.moved, report.waiting, cancelled)
    with reading(root.runtime):
        root.runtime.mkdir(parents=True, exist_ok=True)
    lock = FileLock(root.runtime / LOCK_NAME)
    with reading(root.runtime):
        if not lock.acquire():
            raise FileAccess("The engine runtime is being installed already.")
    try:
        if spec.get("act") == "clean":
            return _clean(root, _text(spec, "keep"))
        return _install(_order(spec, root), report, hooks)
    finally:
        lock.release()


def _install(order: _Order, report: Report, hooks: Hooks) -> dict[str, Any]:
    report.stage("check")
    is_there = installed_lock(order.target) == order.lock
    if order.repair or not is_there:
        _drop_damaged(order, hooks)
        _check_room(order)
        _fetch_all(order, report, hooks)
        try:
            _unpack_all(order, report, hooks)
            _try(order.draft, order, report, hooks)
            _put_in_place(order)
        finally:
            shutil.rmtree(order.draft, ignore_errors=True)
    else:
        _try(order.target, order, report, hooks)
        with reading(order.target):
            os.utime(order.target / MANIFEST)  # the newest one is started
    shutil.rmtree(order.downloads, ignore_errors=True)
    return {
        "path": str(order.target),
        "key": order.lock.key,
        "num_bytes": order.lock.unpacked_bytes,
    }


def _order(spec: dict[str, Any], root: DataRoot) -> _Order:
    archive = _text(spec, "bundle")
    bundle = Bundle(Path(archive)) if archive else None
    lock = bundle.lock if bundle else read_lock(Path(_text(spec, "lock")))
    here = (this_platform(), this_python())
    if (lock.platform, lock.python) != here:
        raise InvalidRequest(
            f"These libraries are for {lock.platform}, {lock.python}; "
            f"this program needs them for {here[0]}, {here[1]}.",
            "Get the ones for this version of the app.",
        )
    channels = spec.get("channels", {})
    if not isinstance(channels, dict):
        raise InvalidRequest("The job's 'channels' must be an object.")
    indexes = Indexes(_text(spec, "mirror"), channels, _text(spec, "hub_proxy"))
    return _Order(root, lock, bundle, indexes, spec.get("repair") is True)


def _drop_damaged(order: _Order, hooks: Hooks) -> None:
    """Remove wheels that an earlier run has left and that have changed since: they come again."""
    with reading(order.downloads):
        for wheel in order.lock.wheels:
            path = order.downloads / wheel.file
            if not path.is_file():
                continue
            digest = hashlib.sha256()
            with path.open("rb") as file:
                while data := file.read(CHUNK_BYTES):
                    hooks.check()
                    digest.update(data)
            if digest.hexdigest() != wheel.sha256:
                path.unlink()


def _check_room(order: _Order) -> None:
    """Raise DiskFull with both figures before the first byte."""
    with reading(order.downloads):
        order.downloads.mkdir(parents=True, exist_ok=True)
        left = sum(w.size - kept_bytes(_file(w), order.downloads) for w in order.lock.wheels)
        unpacked = order.lock.unpacked_bytes
        if os.stat(order.downloads).st_dev == os.stat(order.root.runtime).st_dev:
            check_space(order.root.runtime, left + unpacked)
        else:
            check_space(order.downloads, left)
            check_space(order.root.runtime, unpacked)


def _fetch_all(order: _Order, report: Report, hooks: Hooks) -> None:
    kept = sum(kept_bytes(_file(wheel), order.downloads) for wheel in order.lock.wheels)
    report.stage("download", kept, order.lock.download_bytes)
    known: dict[str, WheelIndex] = {}
    for wheel in order.lock.wheels:
        report.file(wheel.file)
        if order.bundle is not None:
            order.bundle.take(wheel, order.downloads, hooks)
            continue
        address = order.indexes.address(wheel)
        if address not in known:
            known[address] = WheelIndex(address, order.indexes.proxy)
        repo = HubRepo(wheel.name, wheel.version, ())
        fetch(known[address], repo, _file(wheel), order.downloads, hooks)


def _unpack_all(order: _Order, report: Report, hooks: Hooks) -> None:
    report.stage("unpack", 0, order.lock.unpacked_bytes)
    shutil.rmtree(order.draft, ignore_errors=True)
    try:
        order.draft.mkdir()
        for wheel in order.lock.wheels:
            report.file(wheel.file)
            unpack(order.downloads / wheel.file, order.draft, report.moved, hooks.check)
    except OSError as problem:
        raise write_error(
            problem, order.draft, report.done_bytes, order.lock.unpacked_bytes
        ) from problem


def _try(folder: Path, order: _Order, report: Report, hooks: Hooks) -> None:
    report.stage("try")
    check_engine(folder, order.root.root, hooks.check)


def _put_in_place(order: _Order) -> None:
    """Give the tried folder its name; a damaged one of that name goes."""
    old = order.root.runtime / f".{order.lock.key}{_OLD}"
    try:
        with (order.draft / MANIFEST).open("wb") as out:
            out.write(msgspec.json.encode(order.lock))
            sync_file(out)
        if hasattr(os, "sync"):
            os.sync()  # thousands of files: one call instead of one each
        shutil.rmtree(old, ignore_errors=True)
        if order.target.exists():
            rename(order.target, old)
        _rename_or_restore(order.draft, order.target, old)
    except OSError as problem:
        raise access_error(problem, "replace", order.target) from problem
    shutil.rmtree(old, ignore_errors=True)


def _rename_or_restore(draft: Path, target: Path, old: Path) -> None:
    try:
        rename(draft, target)
    except OSError:
        if old.exists():
            rename(old, target)
        raise


def _clean(root: DataRoot, keep: str) -> dict[str, Any]:
    """Remove what a newer runtime has replaced, and downloads but those of the key `keep`."""
    newest = newest_runtime(root.runtime)
    freed = 0
    for folder in root.runtime.iterdir():
        is_old = newest is not None and installed_lock(folder) is not None and folder != newest
        if folder.is_dir() and (is_old or folder.suffix in (_DRAFT, _OLD)):
            lock = installed_lock(folder)
            freed += lock.unpacked_bytes if lock is not None else 0
            shutil.rmtree(folder, ignore_errors=True)
    for folder in (root.caches / "runtime").glob("*"):
        if folder.name != keep:
            shutil.rmtree(folder, ignore_errors=True)
    return {"num_bytes": freed}


def _file(wheel: Wheel) -> HubFile:
    return HubFile(wheel.file, wheel.size, wheel.sha256)


def _text(spec: dict[str, Any], key: str) -> str:
    value = spec.get(key, "")
    if not isinstance(value, str):
        raise InvalidRequest(f"The job's '{key}' must be text.")
    return value
