"""Job: fetch a model's files from a hub into a local folder, resumably.

Spec: {"repo": "OWNER/NAME", "target": path, "id": str} and, where needed, "revision" (default
main), "endpoint" (a mirror), "room_at": folder in which the model will be converted (its room is
checked too, case D-08), which must be there, unless it is "own_folder", which is the app's and is
made; "recheck": true (whole files too are held against their hashes, and fetched again if they
differ), "hub_proxy", "hub_token". The last one comes from the environment, see `engine.jobs.run`.
Result: path, repo, commit, num_bytes, num_files.

Stages of its progress: "check" (listing, config, tokenizer), then "download" with the bytes of all
files; "retry" with a sentence as detail while a lost connection is awaited.
"""

import os
import re
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import msgspec

from engine.checkpoint.files import FileLock, check_space, reading, sync_file
from engine.checkpoint.origin import PIN_NAME, Origin, read_pin
from engine.checkpoint.source import CONFIG, INDEX, SIDE_FILES, SINGLE
from engine.jobs.convert import check_room, read_path
from engine.jobs.hub import Hub, HubFile, HubRepo, check_name
from engine.jobs.hub_file import PART, Hooks, fetch, is_whole, kept_bytes
from engine.models.registry import get_family
from engine.protocol.errors import (
    CorruptCheckpoint,
    FileAccess,
    InvalidRequest,
    NetworkError,
    UnsupportedCheckpoint,
)
from engine.protocol.messages import Event, Progress

LOCK_NAME = "download.lock"
REPORT_S = 0.25
_CONVERTED_SHARE = 1.03  # of the source: records are padded, the index is small
_LISTING_TRIES = 3
_INDEX_ENTRY = ".safetensors"
# No folders, no streams or devices of Windows, no control characters.
_PLAIN_NAME = re.compile(r"(?!(?i:con|prn|aux|nul|com\d|lpt\d)\.)[\w-][\w.+ -]*")


@dataclass(frozen=True, slots=True)
class _Order:
    """What is to be fetched, and where to."""

    job_id: str
    repo: str
    revision: str
    target: Path
    room_at: Path | None
    recheck: bool

    @classmethod
    def of(cls, spec: dict[str, Any]) -> "_Order":
        room = _text(spec, "room_at")
        repo = _text(spec, "repo")
        check_name(repo)
        return cls(
            _text(spec, "id"),
            repo,
            _text(spec, "revision") or "main",
            read_path(spec, "target"),
            Path(room) if room else None,
            spec.get("recheck") is True,
        )


def run(
    spec: dict[str, Any], emit: Callable[[Event], None], cancelled: Callable[[], bool]
) -> dict[str, Any]:
    """Run the job. A cancel leaves what was fetched, under temporary names, to be resumed.

    Raises: InvalidRequest, TokenNeeded, GatedModel, NotOnHub, NetworkError, DiskFull, FileAccess,
        CorruptCheckpoint, UnsupportedCheckpoint (before the weights are fetched), Cancelled.
    """
    order = _Order.of(spec)
    hub = Hub(_text(spec, "endpoint"), _text(spec, "hub_proxy"), _text(spec, "hub_token"))
    emit(Progress(id=order.job_id, stage="check", detail=order.repo))
    check_room(spec)
    try:
        order.target.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise FileAccess(f"Cannot make {order.target}: {problem.strerror}.") from problem
    lock = FileLock(order.target / LOCK_NAME)
    with reading(order.target):
        if not lock.acquire():
            raise FileAccess(f"{order.repo} is being fetched to {order.target} already.")
    try:
        return _fetch_all(hub, order, _Report(order.job_id, emit), cancelled)
    finally:
        _remove(order.target / LOCK_NAME)  # while it is held, so that nobody holds a removed one
        lock.release()
        _remove(order.target / LOCK_NAME)  # Windows removes no open file


def _fetch_all(
    hub: Hub, order: _Order, report: "_Report", cancelled: Callable[[], bool]
) -> dict[str, Any]:
    hooks = Hooks(report.moved, report.waiting, cancelled)
    repo = _listing(hub, order, hooks)
    small, weights = _wanted(repo)
    with reading(order.target):
        pinned = _pinned(order)
        if order.recheck or repo.commit != pinned:
            _distrust(order.target, (*small, *weights))
        if repo.commit != pinned:
            _pin(order, repo.commit)
    _check_room(order, (*small, *weights))
    for file in small:
        fetch(hub, repo, file, order.target, hooks)
    _check_family(order.target)
    weights = _named_by_index(order.target, weights)
    files = (*small, *weights)
    report.begin(sum(kept_bytes(f, order.target) for f in files), sum(f.size for f in files))
    for file in weights:
        if not is_whole(file, order.target):
            report.file(file.name)
            fetch(hub, repo, file, order.target, hooks)
    report.tell()
    return {
        "path": str(order.target),
        "repo": order.repo,
        "commit": repo.commit,
        "num_bytes": sum(f.size for f in files),
        "num_files": len(files),
    }


def _remove(path: Path) -> None:
    with suppress(OSError):
        path.unlink(missing_ok=True)


def _distrust(folder: Path, files: tuple[HubFile, ...]) -> None:
    """Make parts of files that may be damaged or of another commit: hashes decide what is kept."""
    for file in files:
        if (folder / file.name).is_file():
            (folder / file.name).replace(folder / (file.name + PART))


def _pin(order: _Order, commit: str) -> None:
    """Write down which commit the folder holds; never half, or the next run could mix two."""
    draft = order.target / (PIN_NAME + PART)
    with draft.open("wb") as out:
        out.write(msgspec.json.encode(Origin(order.repo, order.revision, commit)))
        sync_file(out)
    draft.replace(order.target / PIN_NAME)


class _Report:
    """Turns moved bytes into progress, a few times a second."""

    def __init__(self, job_id: str, emit: Callable[[Event], None]) -> None:
        self._id, self._emit = job_id, emit
        self._done = self._total = 0
        self._told_s = 0.0
        self._name = ""

    def begin(self, done: int, total: int) -> None:
        """Begin the stage that counts."""
        self._done, self._total = done, total
        self.tell()

    def file(self, name: str) -> None:
        """Begin the next file."""
        self._name = name
        self.tell()

    def moved(self, num_bytes: int) -> None:
        """Count; before `begin` only small files move, which are not shown."""
        if not self._total:
            return
        self._done += num_bytes
        if num_bytes < 0 or time.monotonic() - self._told_s >= REPORT_S:
            self.tell()

    def tell(self) -> None:
        """Send where it stands."""
        self._told_s = time.monotonic()
        self._send("download", self._name)

    def waiting(self, sentence: str) -> None:
        """Say why nothing moves."""
        self._send("retry", sentence)

    def _send(self, stage: str, detail: str) -> None:
        self._emit(
            Progress(
                id=self._id,
                stage=stage,
                done_bytes=self._done,
                total_bytes=self._total,
                detail=detail,
            )
        )


def _listing(hub: Hub, order: _Order, hooks: Hooks) -> HubRepo:
    """Return the files of the pinned commit; the first contact fails fast (case D-11)."""
    revision = _pinned(order) or order.revision
    for left in reversed(range(_LISTING_TRIES)):
        hooks.check()
        try:
            return hub.repo(order.repo, revision)
        except NetworkError as problem:
            if not left or problem.wait_s > 10 or not problem.is_busy:
                raise
            hooks.pause(problem.wait_s or 1.0)
    raise AssertionError  # pragma: no cover - the last try returns or raises


def _pinned(order: _Order) -> str:
    """Return the commit that the folder holds, so that a resumed download gets the same bytes."""
    pin = read_pin(order.target)
    if pin is None:
        return ""
    if pin.repo != order.repo:
        raise InvalidRequest(f"{order.target} holds a download of {pin.repo}.")
    return pin.commit if pin.revision == order.revision else ""


def _wanted(repo: HubRepo) -> tuple[tuple[HubFile, ...], tuple[HubFile, ...]]:
    """Return small files, config first, and weights; names that leave the folder are left out."""
    plain = [f for f in repo.files if _PLAIN_NAME.fullmatch(f.name)]
    small = [f for f in plain if f.name == INDEX or _matches(f.name, SIDE_FILES)]
    weights = [f for f in plain if f.name.endswith(_INDEX_ENTRY)]
    if not any(f.name == CONFIG for f in small) or not weights:
        raise UnsupportedCheckpoint(
            f"{repo.repo} holds no config.json with safetensors weights.",
            "Choose the model's safetensors version.",
        )
    if any(f.size < 0 or not (f.sha256 or f.blob_sha1) for f in (*small, *weights)):
        raise NetworkError(
            f"The hub does not say sizes and hashes of {repo.repo}, so nothing could be verified.",
            "Use another hub address; this mirror is incomplete.",
        )
    small.sort(key=lambda f: (f.name != CONFIG, f.name))
    return tuple(small), tuple(sorted(weights, key=lambda f: f.name))


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatch(name, pattern) for pattern in patterns)


def _check_room(order: _Order, files: tuple[HubFile, ...]) -> None:
    """Raise DiskFull before the first byte if download and conversion do not fit (case D-08)."""
    whole = sum(f.size for f in files)
    need = whole - sum(kept_bytes(f, order.target) for f in files)
    converted = round(whole * _CONVERTED_SHARE)
    with reading(order.target):
        if order.room_at is None:
            check_space(order.target, need)
        elif os.stat(order.room_at).st_dev == os.stat(order.target).st_dev:
            check_space(order.target, need + converted)
        else:
            check_space(order.target, need)
            check_space(order.room_at, converted)


def _check_family(folder: Path) -> None:
    """Refuse what could not be converted anyway, before the weights are fetched."""
    try:
        config = msgspec.json.decode((folder / CONFIG).read_bytes(), type=dict[str, Any])
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as problem:
        raise CorruptCheckpoint(f"{CONFIG} of the model is damaged: {problem}.") from problem
    get_family(str(config.get("model_type", ""))).read_config(config)


class _Index(msgspec.Struct):
    weight_map: dict[str, str] = {}


def _named_by_index(folder: Path, weights: tuple[HubFile, ...]) -> tuple[HubFile, ...]:
    """Leave out weights that the index does not name: some repositories hold them twice."""
    if not (folder / INDEX).is_file():
        single = tuple(f for f in weights if f.name == SINGLE)
        return single or weights
    try:
        index = msgspec.json.decode((folder / INDEX).read_bytes(), type=_Index)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as problem:
        raise CorruptCheckpoint(f"{INDEX} of the model is damaged: {problem}.") from problem
    named = set(index.weight_map.values())
    missing = sorted(named - {f.name for f in weights})
    if missing:
        raise CorruptCheckpoint(f"The hub lacks {missing[0]}, which {INDEX} names.")
    return tuple(f for f in weights if f.name in named)


def _text(spec: dict[str, Any], key: str) -> str:
    value = spec.get(key, "")
    if not isinstance(value, str):
        raise InvalidRequest(f"The job's '{key}' must be text.")
    return value
