"""A search on the hub: asked by the person, done by a child process, one at a time. QtCore only."""

import msgspec
from PySide6.QtCore import QObject, Signal

from app.services.catalog import CatalogEntry
from app.services.job_runner import JobRunner
from app.services.secrets import SecretStore
from engine.protocol import messages as m
from engine.protocol.errors import ErrorCode

JOB = "search"


class HubSearch(QObject):
    """See the module.

    Args:
        jobs: runs the question; its surroundings (hub, proxy, token) are set elsewhere.
        secrets: the token is read before the question goes out.

    Attributes:
        asked: what was asked last, "" = nothing.
        entries: what the hub has of it that the engine can serve, popular first.
        left_out: how many more it has that the engine cannot serve.
        problem: why there is no answer, None = there is one, or it is awaited.

    Signals:
        changed(): any of them differs.
    """

    changed = Signal()

    def __init__(self, jobs: JobRunner, secrets: SecretStore) -> None:
        super().__init__()
        self._jobs, self._secrets = jobs, secrets
        self._job_id = ""
        self._is_waiting = False  # for the keyring
        self.asked = ""
        self.entries: tuple[CatalogEntry, ...] = ()
        self.left_out = 0
        self.problem: m.Error | None = None
        jobs.done.connect(self._on_done)
        jobs.failed.connect(self._on_failed)

    @property
    def is_busy(self) -> bool:
        """Whether an answer is awaited."""
        return bool(self._job_id) or self._is_waiting

    @property
    def is_answered(self) -> bool:
        """Whether `entries` is what the hub said to `asked`."""
        return bool(self.asked) and not self.is_busy and self.problem is None

    def ask(self, query: str) -> None:
        """Ask the hub; an older question is dropped."""
        self.stop()
        self.asked, self.entries, self.left_out, self.problem = query.strip(), (), 0, None
        if self.asked:
            self._is_waiting = True
            self._secrets.when_loaded(self._start)
        self.changed.emit()

    def stop(self) -> None:
        """Await no answer any more."""
        if not self.is_busy:
            return
        job_id, self._job_id, self._is_waiting, self.asked = self._job_id, "", False, ""
        if job_id:
            self._jobs.cancel(job_id)
        self.changed.emit()

    def _start(self) -> None:
        if self._is_waiting:  # not stopped meanwhile
            self._is_waiting = False
            self._job_id = self._jobs.start(JOB, {"query": self.asked, "id": JOB})
            self.changed.emit()

    def _on_done(self, job_id: str, event: m.JobDone) -> None:
        if job_id != self._job_id:
            return
        self._job_id = ""
        self.entries = _entries(event.result.get("models"))
        left_out = event.result.get("left_out", 0)
        self.left_out = left_out if isinstance(left_out, int) else 0
        self.changed.emit()

    def _on_failed(self, job_id: str, event: m.Error) -> None:
        if job_id != self._job_id:
            return
        self._job_id = ""
        if event.code is ErrorCode.CANCELLED:
            self.asked = ""
        else:
            self.problem = event
        self.changed.emit()


def _entries(raw: object) -> tuple[CatalogEntry, ...]:
    """Return what can be read of an answer."""
    entries = []
    for item in raw if isinstance(raw, list) else []:
        try:
            entries.append(msgspec.convert(item, CatalogEntry))
        except msgspec.ValidationError:
            continue
    return tuple(entries)
