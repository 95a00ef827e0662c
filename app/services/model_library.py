"""The models on this machine: looked for on a thread, listed as entries, deleted on request.

Knows no engine: what the engine thinks of a model is heard when it is loaded.
"""

import contextlib
import hashlib
import itertools
import os
import shutil
import threading
from collections.abc import Collection, Iterable
from dataclasses import replace
from pathlib import Path

from PySide6.QtCore import QObject, Qt, Signal, SignalInstance

from app.services.job_state import JobExtra, JobState
from app.services.model_scan import (
    DELETED_SUFFIX,
    ModelEntry,
    Scan,
    SkipNote,
    key_of,
    read_ftw,
    scan,
)
from app.wording import tr

__all__ = ["ModelEntry", "ModelLibrary", "SkipNote", "targets_of"]


class ModelLibrary(QObject):
    """Entries of the models folders, newest look.

    Args:
        folder: the app's own models folder; made by the job that writes there first.
        sources: folder with the sources that came with the app.
        extra: the folder from the settings, None = none.

    Signals:
        changed(): entries, notes or missing folders may differ.
        deleted(ModelEntry, int): a model is gone; the bytes that become free.
        not_deleted(Path, str): it is still there, and in the list again; why.
    """

    changed = Signal()
    deleted = Signal(object, object)  # int is 32 bits wide
    not_deleted = Signal(object, str)
    _scanned = Signal(int, object)
    _removed = Signal(object, object)
    _refused = Signal(object, str)

    def __init__(
        self,
        folder: Path,
        sources: Path,
        extra: Path | None = None,
        parent: QObject | None = None,
    ) -> None:
        super().__init__(parent)
        self._own = folder
        self._sources = sources
        self._extra = extra
        self._scan = Scan()
        self._round = 0
        self._closed = False
        self._is_scanned = False
        self._going: set[Path] = set()  # they are being deleted: nobody shall load them now
        self._scanned.connect(self._take, Qt.ConnectionType.QueuedConnection)
        self._removed.connect(self._take_removed, Qt.ConnectionType.QueuedConnection)
        self._refused.connect(self._take_refused, Qt.ConnectionType.QueuedConnection)

    # --- facts

    def entries(self) -> tuple[ModelEntry, ...]:
        """Return all models, those that can be loaded first."""
        return tuple(e for e in self._scan.entries if e.path not in self._going)

    @property
    def notes(self) -> tuple[SkipNote, ...]:
        """What was left out of the list, and why."""
        return self._scan.notes

    @property
    def missing(self) -> tuple[Path, ...]:
        """Chosen models folders that are not there now; their models come back with them."""
        return tuple(path for path in self._scan.missing if path != self._own)

    @property
    def is_scanned(self) -> bool:
        """Whether the first look is over."""
        return self._is_scanned

    @property
    def folders(self) -> tuple[Path, ...]:
        """The models folders that are looked at."""
        return (self._own,) if self._extra is None else (self._own, self._extra)

    @property
    def target_folder(self) -> Path:
        """Where new models go: the chosen folder, else the app's own."""
        return self._extra or self._own

    def entry(self, path: str | Path) -> ModelEntry | None:
        """Return the entry with this folder."""
        return next((e for e in self.entries() if e.path == Path(path)), None)

    def job_extra(self) -> JobExtra:
        """Return what a job that writes models is told at its start: which folder it may make."""
        return JobExtra({"own_folder": str(self._own)})

    def target_for(self, name: str, coming: Collection[str] = ()) -> Path:
        """Return a folder for a new model that was not there at the last look.

        Waits for no disk, which may be a share that is gone; the job that writes asks it again.

        Args:
            name: of the folder, if that is free.
            coming: folders that will be there; see `targets_of`.

        Raises:
            OSError: the chosen folder was not there; nothing is written elsewhere (case D-17). A
                new look begins, for the next try.
        """
        base = self.target_folder
        if base != self._own and base in self._scan.missing:
            self.refresh()
            raise FileNotFoundError(tr("The models folder {path} is not there.", path=base))
        target, number = name, 2
        while self.is_taken(target) or key_of(base / target) in coming:
            target = f"{name}-{number}"
            number += 1
        return base / target

    def is_taken(self, name: str) -> bool:
        """Whether something of this name lay where new models go, at the last look."""
        return key_of(self.target_folder / name) in self._scan.taken

    # --- actions

    def set_extra(self, folder: Path | None) -> None:
        """Look into another chosen folder from now on."""
        if folder != self._extra:
            self._extra = folder
            self.refresh()

    def refresh(self) -> None:
        """Look again; `changed` follows. A newer look makes an older one worthless."""
        self._round += 1
        number, folders = self._round, self.folders
        sources = self._sources

        def work() -> None:
            try:
                found = scan(folders, tuple(sorted(sources.iterdir())))
            except OSError:
                found = scan(folders, ())
            self._emit(self._scanned, number, found)

        # A daemon: a folder on a dead share may block for ever, and must not keep the app alive.
        threading.Thread(target=work, name="model-library", daemon=True).start()

    def delete(self, path: str | Path) -> None:
        """Remove an FTW folder directly inside a models folder, on a thread.

        It leaves the list at once, and the disk later. `deleted` or `not_deleted` follows.
        """
        folder, folders = Path(path), self.folders
        if folder in self._going:
            return

        def work() -> None:
            try:
                entry, num_bytes, doomed = _doom(folder, folders)
            except (OSError, ValueError) as problem:
                why = problem.strerror if isinstance(problem, OSError) else str(problem)
                self._emit(self._refused, folder, why or "")
                return
            self._emit(self._removed, entry, num_bytes)
            shutil.rmtree(doomed, ignore_errors=True)  # what stays is swept at the next start

        self._going.add(folder)
        self.changed.emit()
        threading.Thread(target=work, name="model-delete", daemon=True).start()

    def close(self) -> None:
        """Take no results any more."""
        self._closed = True

    def _emit(self, signal: SignalInstance, *values: object) -> None:
        """Tell the window's thread something, from another one."""
        if not self._closed:
            with contextlib.suppress(RuntimeError):  # the app has ended meanwhile
                signal.emit(*values)

    def _take(self, number: int, found: Scan) -> None:
        if number != self._round or self._closed:
            return
        self._scan = self._without_done(found)
        self._is_scanned = True
        self.changed.emit()

    def _without_done(self, found: Scan) -> Scan:
        """Hide sources that are converted already; mark conversions of an older source."""
        sources = {e.name: e for e in found.entries if e.kind == "builtin_source"}
        done = {e.name for e in found.entries if e.kind == "ftw" and e.is_builtin}
        shown = []
        for entry in found.entries:
            source = sources.get(entry.name)
            if entry is source and entry.name in done:
                continue
            is_old = entry.is_builtin and source is not None and entry.content != source.content
            shown.append(replace(entry, renew_from=source.path) if source and is_old else entry)
        return replace(found, entries=tuple(shown))

    def _take_removed(self, entry: ModelEntry, num_bytes: int) -> None:
        if self._closed:
            return
        self._going.discard(entry.path)
        kept = tuple(e for e in self._scan.entries if e.path != entry.path)
        taken = self._scan.taken - {key_of(entry.path)}
        self._scan = replace(self._scan, entries=kept, taken=taken)
        self.changed.emit()
        self.deleted.emit(entry, num_bytes)
        self.refresh()

    def _take_refused(self, folder: Path, why: str) -> None:
        if self._closed:
            return
        self._going.discard(folder)
        self.changed.emit()
        self.not_deleted.emit(folder, why)


def _doom(folder: Path, folders: Collection[Path]) -> tuple[ModelEntry, int, Path]:
    """Give a model's folder the name of one that nobody wants, in one step.

    Returns: what it was, its bytes, where it lies now.

    Raises:
        ValueError: it is not an FTW folder directly inside one of `folders`.
        OSError: it cannot be renamed.
    """
    entry = read_ftw(folder)
    if folder.parent not in folders or folder.is_symlink():
        raise ValueError(tr("{path} does not lie in a models folder.", path=folder))
    num_bytes = sum(file.stat().st_size for file in folder.iterdir() if file.is_file())
    # Not its own name: that may be too long with more behind it, or be taken by an earlier run.
    key = hashlib.sha256(os.fsencode(folder.name)).hexdigest()[:16]
    names = (f".{key}-{number}{DELETED_SUFFIX}" for number in itertools.count())
    doomed = next(p for p in map(folder.with_name, names) if not os.path.lexists(p))
    folder.rename(doomed)
    return entry, num_bytes, doomed


def targets_of(jobs: Iterable[JobState]) -> frozenset[str]:
    """Return the folders that open conversions will make, as `key_of` has them."""
    targets = (job.spec.get("target") for job in jobs if job.is_open and job.job == "convert")
    return frozenset(key_of(Path(target)) for target in targets if isinstance(target, str))
