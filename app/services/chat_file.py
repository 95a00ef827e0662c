"""The file behind the chat store: open, mend, and go on in memory while the disk refuses.

Knows SQLite and file names, not chats. A damaged file is set aside, never deleted; a file that a
newer version wrote is left alone. When a write fails because of the disk (full, read-only, gone),
everything moves into memory, and back to the file as soon as it takes writes again.
"""

import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from app.services import chat_schema
from app.services.chat_records import StoreNotice

T = TypeVar("T")
Rows = list[tuple[Any, ...]]

FILE_NAME = "chats.db"
RETRY_S = 5.0  # between two tries to leave memory
QUICK_CHECK_BYTES = 32 * 2**20  # larger files are checked by use only: the window must not wait

_DISK_TROUBLE = {
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_PERM,
}


class ChatFile:
    """One open database. Every method must be called from the thread that made it."""

    def __init__(
        self,
        folder: Path,
        notify: Callable[[StoreNotice], None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._folder = folder
        self._notify = notify
        self._clock = clock
        self._path = folder / FILE_NAME
        self._disk: sqlite3.Connection | None = None
        self._disk_version = 0
        self._retry_at = 0.0
        try:
            self._disk = self._open_or_mend()
            self._db = self._disk
        except (OSError, sqlite3.Error) as problem:
            self._db = _connect(":memory:")
            chat_schema.migrate(self._db)
            self._enter_memory(str(problem))

    @property
    def path(self) -> Path:
        """The file that is used, or would be if the disk took it."""
        return self._path

    @property
    def in_memory(self) -> bool:
        """Whether the disk refuses and text lives in memory only."""
        return self._db is not self._disk

    def read(self, sql: str, values: tuple[object, ...] = ()) -> Rows:
        """Return all rows of a query."""
        return self._db.execute(sql, values).fetchall()

    def write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run `work` in one transaction and return its result; on disk trouble, in memory."""
        if self.in_memory:
            self.try_home()
        try:
            return _transaction(self._db, work)
        except sqlite3.OperationalError as problem:
            if self.in_memory or not _is_disk_trouble(problem):
                raise
            self._move_to_memory(problem)
            return _transaction(self._db, work)

    def try_home(self, at_once: bool = False) -> bool:
        """Write memory back to the disk if it takes it. Returns whether all is on disk."""
        if not self.in_memory:
            return True
        if not at_once and self._clock() < self._retry_at:
            return False
        self._retry_at = self._clock() + RETRY_S
        try:
            disk, code = self._home()
            self._db.backup(disk)
        except (OSError, sqlite3.Error):
            return False
        self._db.close()
        self._db = self._disk = disk
        self._notify(StoreNotice(code, self._path))
        return True

    def close(self) -> None:
        """Save what can be saved, and close."""
        self.try_home(at_once=True)
        self._db.close()
        if self._disk is not None and self._disk is not self._db:
            self._disk.close()

    # --- opening --------------------------------------------------------------------------------

    def _open_or_mend(self) -> sqlite3.Connection:
        self._folder.mkdir(parents=True, exist_ok=True)
        db: sqlite3.Connection | None = None
        try:
            db = _connect(self._path)
            if chat_schema.version_of(db) > chat_schema.VERSION:
                db.close()
                return self._open_beside_newer()
            _check(db, self._path)
            _prepare(db)
        except sqlite3.DatabaseError as problem:
            if db is not None:
                db.close()
            if _is_disk_trouble(problem):
                raise
            aside = self._set_aside()
            self._notify(StoreNotice("damaged", aside, str(problem)))
            db = _connect(self._path)
            _prepare(db)
        return db

    def _open_beside_newer(self) -> sqlite3.Connection:
        self._notify(StoreNotice("newer", self._path))
        self._path = self._folder / f"chats-v{chat_schema.VERSION}.db"
        return self._open_or_mend()

    def _set_aside(self) -> Path:
        """Rename the damaged file and its journals; the name says when."""
        stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime(self._clock()))
        name, number = f"{self._path.stem}.damaged-{stamp}", 1
        while (self._folder / f"{name}.db").exists():
            number += 1
            name = f"{self._path.stem}.damaged-{stamp}-{number}"
        for suffix in ("-wal", "-shm", ""):
            journal = self._path.with_name(self._path.name + suffix)
            if journal.exists():
                journal.rename(self._folder / f"{name}.db{suffix}")
        return self._folder / f"{name}.db"

    # --- memory while the disk refuses ----------------------------------------------------------

    def _move_to_memory(self, problem: sqlite3.Error) -> None:
        memory = _connect(":memory:")
        self._db.backup(memory)
        self._disk_version = _data_version(self._db)
        self._db = memory
        self._enter_memory(str(problem))

    def _enter_memory(self, detail: str) -> None:
        self._retry_at = self._clock() + RETRY_S
        self._notify(StoreNotice("memory", self._path, detail))

    def _home(self) -> tuple[sqlite3.Connection, Any]:
        """Return where memory goes: the file, or one beside it if another program changed it."""
        if self._disk is not None and _data_version(self._disk) == self._disk_version:
            return self._disk, "saved"
        self._folder.mkdir(parents=True, exist_ok=True)
        if self._path.exists():
            stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime(self._clock()))
            self._path = self._folder / f"chats-rescued-{stamp}.db"
            return _connect(self._path), "rescued"
        return _connect(self._path), "saved"


def _connect(path: Path | str) -> sqlite3.Connection:
    db = sqlite3.connect(path, timeout=2.0, isolation_level=None)  # autocommit: ours to BEGIN
    db.execute("PRAGMA foreign_keys = ON")
    return db


def _prepare(db: sqlite3.Connection) -> None:
    """Make the file ours: write-ahead journal, present schema. Not before its version is known."""
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = NORMAL")  # survives kill -9 without an fsync per second
    chat_schema.migrate(db)


def _check(db: sqlite3.Connection, path: Path) -> None:
    if path.stat().st_size <= QUICK_CHECK_BYTES:
        verdict = db.execute("PRAGMA quick_check(1)").fetchone()[0]
        if verdict != "ok":
            raise sqlite3.DatabaseError(verdict)
    db.execute("SELECT count(*) FROM sqlite_master").fetchone()


def _transaction(db: sqlite3.Connection, work: Callable[[sqlite3.Connection], T]) -> T:
    db.execute("BEGIN IMMEDIATE")
    try:
        result = work(db)
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise
    return result


def _data_version(db: sqlite3.Connection) -> int:
    return int(db.execute("PRAGMA data_version").fetchone()[0])


def _is_disk_trouble(problem: sqlite3.Error) -> bool:
    return (getattr(problem, "sqlite_errorcode", 0) or 0) & 0xFF in _DISK_TROUBLE
