"""Stand-ins and sample data for tests and pictures of the window. All figures are invented."""

from dataclasses import dataclass
from pathlib import Path

from PySide6.QtCore import QObject, Signal
from PySide6.QtWidgets import QWidget

from app.services.gpu_meter import MeterReading
from app.services.log_ring import LogLine, LogRing
from app.services.settings import SettingsStore
from app.viewmodels.logs import LogsViewModel
from app.viewmodels.server import ServerViewModel
from app.viewmodels.session_words import ModelChoice, Problem
from app.viewmodels.settings import SettingsViewModel
from app.views.logs import LogsView
from app.views.main_window import MainWindow
from app.views.server import ServerView
from app.views.settings import SettingsView
from app.views.shortcuts import PAGES
from app.widgets.buttons import Button
from app.widgets.cards import EmptyState
from app.wording import tr
from engine.protocol import messages as m
from engine.protocol.places import DataRoot

GIB = 1024**3
LINES = (
    ("engine", "info", "ready: KV 4.0 MiB, experts 12.0 MiB, 96 slots"),
    ("app", "info", "settings saved"),
    ("engine", "info", "cache.resize experts 12.0 -> 8.0 MiB, 96 -> 64 slots"),
    ("engine", "warning", "step 1,204 waited 118 ms for the link, another program copies"),
    ("job", "info", "convert tiny-moe-fp8 layer 3 of 4"),
    ("engine", "error", "cache.resize asked 2.1 GiB, freed 0.8 GiB, then: out of memory"),
    ("app", "error", "engine ended with code 3, partial reply kept (174 tokens)"),
)


class FakeSession(QObject):
    """The session view model as the window sees it; attributes are set by tests."""

    changed = Signal()
    meters_changed = Signal()
    models_changed = Signal()
    notice = Signal(str, str)

    def __init__(self) -> None:
        super().__init__()
        self.state = m.EngineState.GENERATING
        self.state_detail = ""
        self.share: float | None = None
        self.model_name, self.quant = "tiny-moe-fp8", "FP8"
        self.tok_s = 24.8
        self.can_stop = True
        self.trouble: Problem | None = None
        self.reading: MeterReading | None = MeterReading(158 * GIB, 192 * GIB)
        self.status: m.Status | None = sample_status()
        self.models = (
            ModelChoice("/models/tiny", "tiny-moe-fp8", "FP8 · 38 MB"),
            ModelChoice("/models/large", "Another-MoE-Model", "MXFP4 · 63.0 GB"),
        )
        self.job_shares: dict[str, float] = {}
        self.calls: list[tuple[object, ...]] = []

    @property
    def problem(self) -> str:
        return self.trouble.sentence if self.trouble else ""

    def load(self, path: str) -> None:
        self.calls.append(("load", path))

    def stop_reply(self) -> None:
        self.calls.append(("stop",))

    def dismiss_problem(self) -> None:
        self.trouble = None
        self.changed.emit()

    def restart_engine(self, smaller: bool = False) -> None:
        self.calls.append(("restart", smaller))


@dataclass
class Faces:
    """A window with its pages, and what feeds it."""

    window: MainWindow
    session: FakeSession
    ring: LogRing
    settings: SettingsStore


def sample_status() -> m.Status:
    """A device of 32 GiB with all kinds of pools."""
    sizes = {"weights": 9.6, "kv": 3.4, "experts": 12.8, "runtime": 1.4, "free": 3.0, "other": 1.8}
    pools = tuple(m.Pool(name=name, used_bytes=int(size * GIB)) for name, size in sizes.items())
    device = m.DeviceInfo(
        name="cpu", title="CPU", total_bytes=32 * GIB, free_bytes=0, emulated=True
    )
    status = m.DeviceStatus(device=device, total_bytes=32 * GIB, pools=pools)
    model = m.ModelInfo(
        path="/models/tiny",
        name="tiny-moe-fp8",
        model_type="qwen3_moe",
        quant="fp8_block",
        num_layers=8,
        num_moe_layers=8,
        num_experts=32,
        top_k=4,
        hidden_size=256,
        context_tokens=2048,
        record_bytes=114_688,
        num_records=256,
        pool_bytes=256 * 114_688,
    )
    return m.Status(devices=(status,), model=model)


def make_faces(folder: Path, with_lines: bool = True) -> Faces:
    """Build the window with real pages of this area and empty ones for the others."""
    ring = LogRing()
    if with_lines:
        for _ in range(3):
            for source, level, text in LINES:
                ring.append(source, level, text)
    store = SettingsStore(folder / "settings.json")
    pages: dict[str, QWidget] = {
        name: EmptyState(tr("Nothing here yet."), Button(tr("Settings")), icon=name)
        for name, _ in PAGES
    }
    pages["server"] = ServerView(ServerViewModel())
    pages["logs"] = LogsView(LogsViewModel(ring, folder / "logs"))
    pages["settings"] = SettingsView(SettingsViewModel(store, DataRoot(folder)))
    session = FakeSession()
    return Faces(MainWindow(session, pages), session, ring, store)


def sample_line(number: int, text: str = "a line") -> LogLine:
    """One line of the log."""
    return LogLine(number, 1_700_000_000.5 + number, "engine", "info", text)
