"""A session, flows and library for the first run that do nothing but remember. Invented figures."""

from pathlib import Path
from types import SimpleNamespace

from PySide6.QtCore import QObject, Signal

from app.services.catalog import CatalogEntry
from app.services.machine_facts import GpuFacts, MachineFacts
from app.services.memory_modules import MemoryModules
from app.viewmodels.first_run import FirstRunViewModel, Sources
from app.viewmodels.profiler import ProfilerViewModel
from engine.protocol import messages as m
from tests.app.performance.stubs import StubClient
from tests.app.profiler.stubs import StubJobs

GB, GIB = 10**9, 1 << 30
CPU = m.DeviceInfo(name="cpu", title="CPU", total_bytes=GIB, free_bytes=GIB, emulated=True)
GPU = m.DeviceInfo(name="cuda:0", title="GeForce RTX 5090", total_bytes=32 * GIB, free_bytes=GIB)
CARD = GpuFacts("NVIDIA GeForce RTX 5090", "590.44", 32 * GIB, 1, 16, 5, 16, 44, False, 0.02)
STRONG = MachineFacts(CARD, 192 * GIB, 180 * GIB, MemoryModules(2, 6000), 1180 * GB, None)
WEAK_CARD = GpuFacts("NVIDIA GTX 1650", "535.10", 4 * GIB, 1, 4, 3, 16)
WEAK = MachineFacts(WEAK_CARD, 48 * GIB, 20 * GIB, MemoryModules(1, 3200), 9 * GB, True)
BARE = MachineFacts(None, 16 * GIB, 9 * GIB, MemoryModules(), -1, None)


def entry(repo, layers, hidden, moe, quant="fp8_block", **more):
    return CatalogEntry(
        repo=repo, title=repo.partition("/")[2], quant=quant, layers=layers, experts=128, top_k=8,
        hidden=hidden, moe_intermediate=moe, heads=32, kv_heads=4, head_dim=128, vocab=151_936,
        **more,
    )  # fmt: skip


CATALOG = (
    entry("a/Large-235B", 94, 4096, 1536),
    entry("a/Small-30B", 48, 2048, 768),
    entry("a/Small-30B-BF16", 48, 2048, 768, "bf16"),
    entry("a/Middle-50B", 48, 2560, 1024),
)


class StubReader(QObject):
    known = Signal(object)

    def __init__(self):
        super().__init__()
        self.asked = []

    def ask(self, folder):
        self.asked.append(folder)


class StubSession(QObject):
    changed = Signal()

    def __init__(self):
        super().__init__()
        self.trouble, self.coming, self.calls = None, None, []

    def restart_engine(self, smaller=False):
        self.calls.append("restart")

    def load_default(self):
        self.calls.append("load")


class StubFlows(QObject):
    changed = Signal()

    def __init__(self):
        super().__init__()
        self.got, self.states = [], {}

    def get(self, repo, title):
        self.got.append(repo)
        self.states[repo] = "run"
        self.changed.emit()

    def flow_of(self, repo):
        state = self.states.get(repo)
        return SimpleNamespace(state=state) if state else None


class StubLibrary(QObject):
    changed = Signal()

    def __init__(self, folder):
        super().__init__()
        self.target_folder, self.repos = folder, []

    def entries(self):
        return [SimpleNamespace(repo=repo) for repo in self.repos]


class World:
    """The view model and all that it stands on."""

    def __init__(self, folder: Path, catalog=CATALOG):
        self.folder = folder
        self.reader, self.client, self.session = StubReader(), StubClient(), StubSession()
        self.client.is_ready, self.client.version = False, "0.1.0"
        self.jobs, self.flows, self.library = StubJobs(), StubFlows(), StubLibrary(folder)
        self.profiler = ProfilerViewModel(self.jobs, self.client, folder, clock=lambda: 0.0)
        self.vm = FirstRunViewModel(
            Sources(
                self.reader, self.client, self.session, self.profiler, self.flows, self.library,
                folder,
            ),
            catalog,
        )  # fmt: skip

    def ready(self, *devices):
        self.client.devices, self.client.is_ready = devices or (CPU,), True
        self.client.ready.emit(None)

    def know(self, facts=STRONG):
        self.reader.known.emit(facts)
