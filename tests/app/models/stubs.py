"""A library and a session that do as they are told."""

from pathlib import Path

from PySide6.QtCore import QObject, Signal

from app.services.job_state import JobExtra
from app.services.model_scan import ModelEntry, key_of
from engine.protocol.messages import EngineState

BIG = ModelEntry(
    path=Path("/models/deepseek"),
    name="DeepSeek-V4-Flash",
    kind="ftw",
    model_type="deepseek_v4",
    quant="mxfp4",
    total_bytes=158_000_000_000,
    pool_bytes=148_000_000_000,
    dense_bytes=10_000_000_000,
    num_layers=43,
    num_experts=256,
    top_k=6,
    context_tokens=1 << 20,
)
TINY = ModelEntry(
    path=Path("/models/tiny-moe-fp8"),
    name="tiny-moe-fp8",
    kind="ftw",
    model_type="qwen3_moe",
    quant="fp8_block",
    total_bytes=38_200_000,
    pool_bytes=29_500_000,
    dense_bytes=8_700_000,
    num_layers=8,
    num_experts=32,
    top_k=4,
    context_tokens=4096,
    is_builtin=True,
)
SOURCE = ModelEntry(
    path=Path("/app/models/tiny-moe-fp8"),
    name="tiny-moe-fp8",
    kind="builtin_source",
    model_type="qwen3_moe",
    quant="fp8",
    total_bytes=38_200_000,
    pool_bytes=38_200_000,
    num_layers=8,
    num_experts=32,
    top_k=4,
    context_tokens=4096,
    is_builtin=True,
)


class StubLibrary(QObject):
    """The part of ModelLibrary that the page uses."""

    changed = Signal()
    deleted = Signal(object, object)
    not_deleted = Signal(object, str)

    def __init__(self, *entries):
        super().__init__()
        self._entries = entries
        self.is_scanned, self.missing, self.notes = True, (), ()
        self.target_folder = Path("/models")
        self.folders = (self.target_folder,)
        self.to_delete, self.refreshed, self.refusal = [], 0, None

    def entries(self):
        return tuple(self._entries)

    def put(self, *entries):
        self._entries = entries
        self.changed.emit()

    def job_extra(self):
        return JobExtra({"own_folder": "/models"})

    def target_for(self, name, coming=()):
        if self.refusal:
            raise self.refusal
        is_coming = key_of(self.target_folder / name) in coming
        return self.target_folder / (f"{name}-2" if is_coming else name)

    def is_taken(self, name):
        return (self.target_folder / name).exists()

    def delete(self, path):
        self.to_delete.append(path)
        self.going = [e for e in self._entries if e.path == path]
        self.put(*(e for e in self._entries if e.path != path))

    def delete_now(self, why=""):
        """What the thread does that was asked; `why`: it is refused."""
        (entry,) = self.going
        if why:
            self.put(*self._entries, entry)
            self.not_deleted.emit(entry.path, why)
        else:
            self.deleted.emit(entry, 38_200_000)

    def refresh(self):
        self.refreshed += 1


class StubSession(QObject):
    """Takes note of what shall be loaded."""

    changed = Signal()

    def __init__(self):
        super().__init__()
        self.state, self.model_name = EngineState.IDLE, ""
        self.loads, self.unloads = [], 0

    def load(self, path):
        self.loads.append(path)

    def unload(self):
        self.unloads += 1


class StubMeter(QObject):
    """Readings on request."""

    reading = Signal(object)
