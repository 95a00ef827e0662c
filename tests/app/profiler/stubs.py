"""A job runner that starts nothing and says what it is told."""

from PySide6.QtCore import QObject, Signal

from app.services.job_state import JobState
from engine.protocol import messages as m


class StubJobs(QObject):
    """The part of JobRunner that the pages use."""

    progress = Signal(str, object)
    point = Signal(str, object)
    done = Signal(str, object)
    failed = Signal(str, object)
    changed = Signal()

    def __init__(self):
        super().__init__()
        self.states = {}
        self.cancelled, self.resumed, self.dismissed, self.relocated = [], [], [], []

    def start(self, job, spec, title=""):
        job_id = f"job-{len(self.states) + 1}"
        self.states[job_id] = JobState(id=job_id, job=job, spec=spec, title=title, phase="running")
        self.changed.emit()
        return job_id

    def jobs(self):
        return tuple(self.states.values())

    def job(self, job_id):
        return self.states.get(job_id)

    def cancel(self, job_id):
        self.cancelled.append(job_id)

    def relocate(self, old, new):
        self.relocated.append((old, new))

    def resume(self, job_id):
        self.resumed.append(job_id)

    def dismiss(self, job_id):
        self.dismissed.append(job_id)
        self.states.pop(job_id, None)
        self.changed.emit()

    def update(self, job_id, **changes):
        import msgspec

        self.states[job_id] = msgspec.structs.replace(self.states[job_id], **changes)
        if changes.get("progress") is not None:
            self.progress.emit(job_id, changes["progress"])
        self.changed.emit()

    def end(self, job_id, event):
        is_done = isinstance(event, m.JobDone)
        changes = {"result": event.result} if is_done else {"error": event}
        self.update(job_id, phase="done" if is_done else "failed", **changes)
        (self.done if is_done else self.failed).emit(job_id, event)
