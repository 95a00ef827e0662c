"""Which kernels are compiled when and by whom, and that all are unloaded: without a compiler."""

import threading
from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest

from engine.loader.step_kernels import StepKernels
from kernels.cuda.compile import CompileError
from kernels.cuda.driver import Module
from kernels.cuda.experts import WATCHDOG_NS
from kernels.cuda.tuning import Card
from tests.engine.moe.test_device_residency import SHAPE


class Kernels:
    """A module that is counted while it is loaded."""

    def __init__(self, name: str, loaded: list[str]) -> None:
        self._name, self._loaded = name, loaded
        loaded.append(name)

    def function(self, name: str):
        """Not needed."""

    def close(self) -> None:
        """Unload."""
        self._loaded.remove(self._name)


class SlowTools:
    """A compiler that waits until it may go on, and fails on demand."""

    card = Card(1, 1)

    def __init__(self, ahead: bool = True) -> None:
        self.compiles_ahead = ahead
        self.compiled: list[tuple[str, int, str]] = []  # source, rows, thread
        self.defines: dict[str, Mapping[str, int]] = {}
        self.loaded: list[str] = []
        self.broken: set[int] = set()
        self.go = threading.Semaphore(0)
        self.begun = threading.Semaphore(0)

    def compile(self, source: str, defines: Mapping[str, int]) -> Callable[[], Kernels]:
        """Note who asks; on another thread, wait."""
        rows, thread = defines["FT_ROWS"], threading.current_thread().name
        self.defines[source] = defines
        if thread == "compile-steps":
            self.begun.release()
            assert self.go.acquire(timeout=20)
        self.compiled.append((source, rows, thread))
        if rows in self.broken:
            raise CompileError("too many registers")
        return lambda: Kernels(f"{source} {rows}", self.loaded)


def kernels(tools: SlowTools) -> StepKernels:
    """Those of a small shape."""
    return StepKernels(tools, lambda rows: replace(SHAPE, rows=rows))


def test_rows_while_they_are_compiled_are_not_ready_then_they_are() -> None:
    """Two of a step's sources; each number on the thread, none twice, none on the loop's thread."""
    tools = SlowTools()
    one = kernels(tools)
    one.load(1)
    thread = one.compile_ahead(4)
    assert tools.begun.acquire(timeout=20)
    assert not any(map(one.is_ready, (2, 3, 4)))
    for _ in range(3):
        tools.go.release()
    assert tools.begun.acquire(timeout=20)  # 2 and half of 4: the other half begins
    for _ in range(3):
        tools.go.release()
    thread.join(20)
    assert all(map(one.is_ready, (1, 2, 3, 4)))
    for rows in (2, 3, 4):
        one.load(rows)
    mine = threading.current_thread().name
    assert tools.compiled[:2] == [("dense.cu", 1, mine), ("moe.cu", 1, mine)]
    assert [(rows, thread) for _, rows, thread in tools.compiled[2:]] == [
        (rows, "compile-steps") for rows in (2, 2, 4, 4, 3, 3)
    ]


def test_rows_when_the_compiler_fails_then_they_are_never_ready_and_others_are() -> None:
    """A number that does not compile is served by smaller ones for good."""
    tools = SlowTools()
    tools.broken = {2}
    tools.go.release(99)
    one = kernels(tools)
    one.compile_ahead(3).join(20)
    assert not one.is_ready(2)
    assert one.is_ready(3)


def test_rows_when_nobody_compiles_ahead_then_they_are_compiled_when_asked_for() -> None:
    """Where a compiler beside the model would disturb."""
    tools = SlowTools(ahead=False)
    one = kernels(tools)
    assert one.compile_ahead(8) is None
    assert one.is_ready(5)
    one.load(5)
    assert [rows for _, rows, _ in tools.compiled] == [5, 5]


def test_close_when_modules_are_loaded_then_all_are_unloaded_and_the_compiler_stops() -> None:
    """An unload does not wait for the compiler, and what it finishes loads nothing."""
    tools = SlowTools()
    one = kernels(tools)
    one.load(1)
    one.load(1)
    thread = one.compile_ahead(8)
    assert tools.begun.acquire(timeout=20)
    assert len(tools.loaded) == 4
    one.close()
    assert tools.loaded == []
    tools.go.release(99)
    thread.join(20)
    assert {rows for _, rows, _ in tools.compiled} == {1, 2}
    assert tools.loaded == []


def test_watchdog_ends_before_windows_takes_the_card_away() -> None:
    """The display driver is reset after 2 s; a pool that lives answers in milliseconds."""
    tools = SlowTools(ahead=False)
    kernels(tools).load(1)
    assert tools.defines["moe.cu"]["FT_WATCHDOG_NS"] == WATCHDOG_NS
    assert 1.0 <= WATCHDOG_NS / 1e9 <= 1.5


class Driver:
    """Counts what a module holds of the driver."""

    def __init__(self) -> None:
        self.held = {"cuDevicePrimaryCtxRetain": 0, "cuModuleLoadData": 0}

    def call(self, name: str, *arguments: object) -> None:
        """Note it, and hand out a handle."""
        pairs = {
            "cuDevicePrimaryCtxRelease_v2": "cuDevicePrimaryCtxRetain",
            "cuModuleUnload": "cuModuleLoadData",
        }
        if name in pairs:
            self.held[pairs[name]] -= 1
        elif name in self.held:
            self.held[name] += 1
            arguments[0]._obj.value = 7

    def device(self, index: int) -> int:
        """The card."""
        return index


def test_module_when_closed_then_code_and_context_are_released_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each module holds the context once; a second close is nothing."""
    driver = Driver()
    monkeypatch.setattr("kernels.cuda.driver.open_driver", lambda: driver)
    monkeypatch.setattr("kernels.cuda.driver.compute_class", lambda _: (9, 0))
    module = Module(b"image")
    assert set(driver.held.values()) == {1}
    module.close()
    module.close()
    assert set(driver.held.values()) == {0}


def test_one_row_when_begun_is_compiled_beside_the_load_and_awaited() -> None:
    """Both sources at once, each once; loading waits for them, and tells what went wrong there."""
    tools = SlowTools()
    one = kernels(tools)
    one.begin()
    one.load(1)
    compiled = sorted((source, rows) for source, rows, _ in tools.compiled)
    assert compiled == [("dense.cu", 1), ("moe.cu", 1)]
    assert all(thread.startswith("compile-first") for _, _, thread in tools.compiled)
    one.load(1)
    assert len(tools.compiled) == 2
    one.close()
    assert tools.loaded == []
    broken = SlowTools()
    broken.broken = {1}
    two = kernels(broken)
    two.begin()
    with pytest.raises(CompileError, match="registers"):
        two.load(1)


def test_one_row_when_the_tools_compile_on_demand_then_nothing_begins() -> None:
    """An emulator's compiler would only take the cores from the load."""
    tools = SlowTools(ahead=False)
    one = kernels(tools)
    one.begin()
    assert tools.compiled == []
    one.load(1)
    assert len(tools.compiled) == 2
