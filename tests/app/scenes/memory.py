"""Performance with auto-yield, and the Profiler with its history."""

from collections.abc import Callable
from pathlib import Path

from PySide6.QtCore import Qt
from PySide6.QtTest import QTest

from app.services.machine_facts import GpuFacts, MachineFacts
from app.services.memory_modules import MemoryModules
from app.services.settings import SettingsStore
from app.viewmodels.performance import PerformanceViewModel
from app.viewmodels.profiler import ProfilerViewModel
from app.viewmodels.yielding import YieldingViewModel
from app.views.performance import PerformanceView
from app.views.profiler import ProfilerView
from engine.protocol import messages as m
from engine.protocol.errors import ErrorCode
from tests.app.first_run.stubs import StubReader
from tests.app.performance.stubs import (
    EMPTY,
    StubClient,
    big_status,
    cache_map,
    profile_bytes,
    stats,
)
from tests.app.profiler.stubs import StubJobs
from tests.app.scenes.stage import SMALL, Scene, Stage
from tests.app.walk import settle
from tests.app.yielding.stubs import GIB, World

NOW = 1_764_426_000.0
TROUBLED = MachineFacts(
    GpuFacts("Card", "590", 8, 4, 4, 5, 16, 88, True, 0.99), 1, 1, MemoryModules(1, 5600), 1, True
)


class Memory(World):
    """The Performance page over a clock, an engine and a watch that do as they are told."""

    def __init__(self, folder: Path, emulated: bool = False):
        super().__init__(emulated, 96 if emulated else 1024)
        folder.mkdir(exist_ok=True)
        (folder / "a.json").write_bytes(
            profile_bytes(emulated=emulated, fmt="fp8_block" if emulated else "mxfp4")
        )
        self.settings = SettingsStore(folder / "home" / "settings.json")
        self.vm = PerformanceViewModel(self.engine, folder, self.clock)
        self.yielding = YieldingViewModel(self.engine, self.settings, self.watch, self.clock)
        self.yielding.happened.connect(self.vm.history.mark)
        self.watch.seen.connect(self.vm.take_presence)
        self.page = PerformanceView(self.vm, self.yielding)

    def reply(self, frames: int = 40) -> None:
        """Half a minute of decode with rates that rise and fall a little."""
        self.engine.decode(stats())
        for i in range(frames):
            self.tick(0.6)
            wave = (i % 7) / 7
            self.engine.stats.emit(
                stats(22 + 4 * wave, 0.6 + 0.06 * wave, 0.3 - 0.05 * wave, 5000, 24 + wave)
            )


def of(act: Callable[[Memory], object], emulated: bool = False) -> Callable[[Path], Stage]:
    """A scene of the Performance page."""

    def build(folder: Path) -> Stage:
        memory = Memory(folder / "profiles", emulated)
        page = memory.page
        page.resize(996, 712)
        page.show()
        act(memory)
        settle()
        page._show_all()
        return Stage(page, [memory], [page.close])

    return build


def no_engine(_memory: Memory) -> None:
    """Nothing is known."""


def no_model(memory: Memory) -> None:
    memory.engine.tell_status(EMPTY)


def idle(memory: Memory) -> None:
    memory.engine.load()
    memory.tick()


def busy(memory: Memory) -> None:
    idle(memory)
    memory.reply()
    memory.engine.cache_map.emit(cache_map(43, 256, 60))


def preview(memory: Memory) -> None:
    """The divider was moved by the keyboard and not yet released."""
    busy(memory)
    bar = memory.page.split.bar
    bar.setFocus(Qt.FocusReason.TabFocusReason)
    for _ in range(6):
        QTest.keyClick(bar, Qt.Key.Key_Left)
    settle()


def waits(memory: Memory) -> None:
    """Released; the engine has not answered."""
    preview(memory)
    QTest.keyClick(memory.page.split.bar, Qt.Key.Key_Return)


def refused(memory: Memory) -> None:
    waits(memory)
    memory.engine.refuse("Not below 1.2 GiB: this chat already uses 181K tokens.")


def applied(memory: Memory) -> None:
    waits(memory)
    memory.engine.answer()


def grown(memory: Memory) -> None:
    """A chat needed more context than there was."""
    busy(memory)
    pools = {pool.name: pool for pool in memory.engine.last_status.devices[0].pools}
    kv, experts, taken = pools["kv"], pools["experts"], 160
    kv_tokens = kv.units + taken * experts.unit_bytes // kv.unit_bytes // 16 * 16
    slots = experts.units - taken
    memory.engine.resize_applied.emit(
        m.ResizeApplied(
            id="",
            kv_tokens=kv_tokens,
            expert_slots=slots,
            kv_bytes=0,
            expert_bytes=0,
            pause_ms=21.0,
            taken_slots=taken,
        )
    )
    memory.engine.tell_status(big_status(kv_tokens, slots))
    memory.reply(4)


def yielded(memory: Memory) -> None:
    """A game took memory, and keeps it."""
    busy(memory)
    memory.others = 2 * GIB
    memory.tick(app="game.exe")
    memory.reply(6)


def by_hand(memory: Memory) -> None:
    busy(memory)
    memory.page.yielding.act.click()
    memory.engine.answer()
    memory.reply(4)


def switched_off(memory: Memory) -> None:
    idle(memory)
    memory.settings.set(auto_yield=False)


class Bench:
    """The Profiler between stubs."""

    def __init__(self, folder: Path):
        self.folder, self.jobs, self.client = folder, StubJobs(), StubClient()
        self.reader = StubReader()
        self.now = NOW
        self.vm = ProfilerViewModel(self.jobs, self.client, folder, lambda: self.now, self.reader)
        self.page = ProfilerView(self.vm)

    def begin(self, facts: MachineFacts | None = None) -> None:
        """Start a run; its first points arrive."""
        self.vm.run("quick")
        if facts is not None:
            self.reader.known.emit(facts)
        job_id = self.vm._job_id
        for step in range(5):
            progress = m.Progress(
                id="", stage="measure", done_bytes=step, total_bytes=12, detail="mxfp4: copies"
            )
            self.jobs.update(job_id, progress=progress, eta_s=8.0)
            point = m.ProfilePoint(link="fill", size_bytes=65_536 << 2 * step, gbps=20.0 + 7 * step)
            self.jobs.point.emit(job_id, point)

    def finish(self, facts: MachineFacts | None = None, **profile) -> None:
        """One whole run, a day after the one before."""
        self.begin(facts)
        self.now += 90_000
        path = self.folder / "gpu-mxfp4.json"
        path.write_bytes(profile_bytes(at=self.now, **profile))
        done = m.JobDone(job="profile", result={"paths": [str(path)]})
        self.jobs.end(self.vm._job_id, done)


def of_bench(act: Callable[[Bench], object]) -> Callable[[Path], Stage]:
    """A scene of the Profiler."""

    def build(folder: Path) -> Stage:
        bench = Bench(folder)
        bench.page.resize(996, 712)
        bench.page.show()
        act(bench)
        return Stage(bench.page, [bench], [bench.page.close])

    return build


def never(_bench: Bench) -> None:
    """Not measured yet."""


def running(bench: Bench) -> None:
    bench.begin()


def good(bench: Bench) -> None:
    for i in range(4):
        bench.finish(scale=1 + i / 50)


def many(bench: Bench) -> None:
    for i in range(10):
        bench.finish(TROUBLED, scale=1 - 0.12 * (i % 3))


def broken_off(bench: Bench) -> None:
    bench.finish()
    bench.begin()
    error = m.Error(
        code=ErrorCode.DEVICE, message="The device is gone.", hint="Restart the computer."
    )
    bench.jobs.end(bench.vm._job_id, error)


def stale(bench: Bench) -> None:
    bench.finish()
    bench.now += 90 * 86_400
    bench.vm.changed.emit()


def emulated(bench: Bench) -> None:
    bench.finish(emulated=True, fmt="fp8_block", record=115_200)


MEMORY = (
    Scene("performance-no-engine", of(no_engine)),
    Scene("performance-no-model", of(no_model)),
    Scene("performance-idle", of(idle)),
    Scene("performance-busy", of(busy)),
    Scene("performance-busy-small", of(busy), SMALL),
    Scene("performance-emulated", of(busy, emulated=True)),
    Scene("performance-preview", of(preview)),
    Scene("performance-waits", of(waits)),
    Scene("performance-refused", of(refused)),
    Scene("performance-applied", of(applied)),
    Scene("performance-grown", of(grown)),
    Scene("performance-yielded", of(yielded)),
    Scene("performance-yielded-by-hand", of(by_hand)),
    Scene("performance-yield-off", of(switched_off)),
    Scene("profiler-never", of_bench(never)),
    Scene("profiler-running", of_bench(running)),
    Scene("profiler-good", of_bench(good), (996, 900)),
    Scene("profiler-many", of_bench(many), (996, 1040)),
    Scene("profiler-many-small", of_bench(many), SMALL),
    Scene("profiler-failed", of_bench(broken_off)),
    Scene("profiler-stale", of_bench(stale)),
    Scene("profiler-emulated", of_bench(emulated), (996, 900)),
)
