"""Auto-yield between readings, settings and engine: what is asked for, said and remembered."""

import pytest

from app.predict.yielding import Cause, YieldState
from app.services.settings import SettingsStore
from app.viewmodels.yielding import YieldingViewModel, listed
from app.wording import again
from engine.protocol import messages as m
from tests.app.performance.stubs import BIG, EMPTY
from tests.app.yielding.stubs import GIB, World


@pytest.fixture
def world(qapp):
    return World()


@pytest.fixture
def settings(tmp_path):
    return SettingsStore(tmp_path / "settings.json")


@pytest.fixture
def make(settings):
    def build(world):
        vm = YieldingViewModel(world.engine, settings, world.watch, world.clock)
        vm.events, vm.toasts = [], []
        vm.happened.connect(vm.events.append)
        vm.said.connect(vm.toasts.append)
        world.engine.load()
        world.tick()
        return vm

    return build


@pytest.fixture
def vm(make, world):
    return make(world)


def test_game_when_it_comes_and_goes_then_floor_and_all_back(vm, world, settings):
    """M-14: the whole way with its words, its events, and the size to return to."""
    settings.set(yield_apps="Other.exe, game.exe")
    assert world.watch.apps == ("Other.exe", "game.exe")
    world.tick(app="game.exe")
    assert world.engine.slots == 256
    assert vm.now.state is YieldState.YIELDED
    assert vm.now.reason == "game.exe runs. Memory returns 20 s after it ends."
    assert vm.now.last.startswith("Last: ")
    assert "9.6 GiB in " in vm.now.last
    world.run(30)
    assert len(world.engine.resizes) == 1
    world.tick(app="")
    assert (vm.now.state, vm.now.cause) == (YieldState.YIELDED, Cause.CALM)
    assert vm.now.reason == "Memory returns in 20 s."
    world.run(20)
    assert vm.now.state is YieldState.RESTORING
    assert "of 1,024 slots" in vm.now.reason
    world.run(9)
    assert world.engine.slots == 1024
    assert (vm.now.state, vm.now.can_take_back) == (YieldState.FULL, False)
    assert vm.now.last.endswith("9.6 GiB back")
    assert [(e.kind, e.text) for e in vm.events] == [
        ("yielded", "game.exe: yielded"),
        ("restored", "Restored"),
    ]
    assert vm.toasts == []  # nobody asked


def test_fake_nvml_when_4_gib_are_taken_then_given_and_returned(vm, world):
    """memory of others decides, figures and reason are said."""
    taken = 4 * GIB
    while world.others < taken:
        world.others += GIB
        world.tick()
    world.run(40)
    assert vm.now.state is YieldState.YIELDED
    assert vm.now.cause is Cause.MEMORY
    assert "the floor is 1.0 GiB" in vm.now.reason
    lost = (1024 - world.engine.slots) * BIG.record_bytes
    assert taken - 2 * GIB <= lost <= taken
    world.others = 0
    world.run(40)
    assert world.engine.slots == 1024
    assert vm.now.state is YieldState.FULL


def test_full_screen_then_only_if_wanted(vm, world, settings):
    """One switch for those who watch films beside a chat."""
    settings.set(yield_full_screen=False)
    world.tick(full_screen=True)
    assert world.engine.resizes == []
    settings.set(yield_full_screen=True)
    assert vm.now.reason == "A full-screen app runs. Memory returns 20 s after it ends."
    world.engine.answer()
    assert vm.now.state is YieldState.YIELDED


def test_other_resize_open_then_waits_for_its_end(vm, world):
    """Two resizes at once would decide on sizes that are gone."""
    world.engine.resize(kv_tokens=400 * 1024)
    world.tick(answer=False, app="game")
    assert len(world.engine.resizes) == 1
    world.engine.answer()
    assert world.engine.asked[-1] == (None, 256)
    world.tick(answer=False)
    assert len(world.engine.resizes) == 2


def test_refusal_then_said_and_not_asked_again_at_once(vm, world, settings):
    """The reason is shown until something else holds."""
    world.tick(app="game")
    world.tick(app="")
    world.run(19)
    world.tick(answer=False)
    world.engine.refuse()
    assert vm.now.reason == "The engine refused: The device refused the memory."
    world.run(15)
    assert len(world.engine.resizes) == 2
    world.run(15)
    assert world.engine.slots == 1024
    assert "refused" not in vm.now.reason


def test_failure_when_ours_then_the_same(vm, world):
    """An engine without a model answers with an error."""
    world.tick(answer=False, app="game")
    resize_id = next(iter(world.engine.open))
    world.engine.open.clear()
    world.engine.failed.emit(m.Error(code="internal", message="No model.", id=resize_id))
    assert "No model." in vm.now.reason


def test_key_when_pressed_twice_then_yielded_and_back_with_a_word_each(vm, world):
    """Ctrl+Shift+Y and tray: one command for both ways."""
    vm.toggle()
    world.engine.answer()
    assert (vm.now.state, vm.now.cause) == (YieldState.YIELDED, Cause.MANUAL)
    assert vm.now.can_take_back
    assert "9.6 GiB in" in vm.toasts[0]
    world.run(60)
    assert world.engine.slots == 256
    vm.toggle()
    world.engine.answer()
    assert world.engine.slots == 1024
    assert vm.toasts[1].endswith("back")
    assert vm.now.state is YieldState.FULL


def test_key_when_the_engine_refuses_then_that_is_the_answer(vm, world):
    """M-14: a command by key is answered once, also with a refusal."""
    vm.toggle()
    world.engine.refuse()
    assert vm.toasts == ["The engine refused: The device refused the memory."]
    world.tick(5, answer=False)
    world.engine.answer()
    assert len(vm.toasts) == 1


def test_key_when_nothing_can_be_done_then_says_why(make, world):
    """No model, or nothing more to give: never silence."""
    vm = make(world)
    world.others = 12 * GIB  # nothing is free: it cannot come back
    vm.toggle()
    world.engine.answer()
    world.tick()
    vm.toggle()
    assert "Other programs need memory" in vm.toasts[-1]
    world.engine.tell_status(EMPTY)
    vm.toggle()
    assert vm.toasts[-1] == "No model is loaded: there is no memory to give back."
    assert not vm.now.is_known


def test_slider_when_moved_while_yielded_then_that_is_returned_to(vm, world):
    """A choice by hand counts; another context alone is none."""
    world.tick(app="game")
    world.engine.resize(kv_tokens=400 * 1024)
    world.engine.answer()
    assert vm.now.state is YieldState.YIELDED
    assert world.engine.slots == 256
    world.engine.resize(expert_slots=700)
    world.engine.answer()
    world.run(3)
    assert world.engine.slots == 700
    assert vm.now.reason == "game runs; you took the memory back."
    world.tick(app="")
    world.tick(app="game")
    world.tick(app="")
    world.run(40)
    assert world.engine.slots == 700


def test_engine_that_shrank_by_itself_then_looked_at(vm, world):
    """Its own last resort changes sizes without a status."""
    world.engine.notice.emit(m.Notice(code="cache_shrunk", message=""))
    assert world.engine.status_requests == 1


def test_engine_gone_while_yielded_then_a_new_model_yields_again(vm, world):
    """The game still runs: what is loaded in full gives way within one reading."""
    world.tick(app="game")
    world.engine.stopped.emit(None)
    assert not vm.now.is_known
    world.engine.slots = 1024
    world.engine.load()
    world.tick()
    assert world.engine.slots == 256
    world.tick(app="")
    world.run(40)
    assert world.engine.slots == 1024


def test_emulated_then_programs_and_hand_only_and_it_says_so(make, qapp, settings):
    """A CPU-only machine: no floor, no full screen, but RAM is really given back."""
    world = World(emulated=True, slots=96)
    vm = make(world)
    assert vm.now.reason == "VRAM is emulated here: RAM is given back while a listed program runs."
    assert not vm.now.has_memory
    world.tick(full_screen=True)
    assert world.engine.resizes == []
    world.tick(app="game")
    assert world.engine.slots == 8
    world.tick(app="")
    world.run(40)
    assert world.engine.slots == 96


def test_settings_then_kept_and_in_force(vm, world, settings):
    """Switch, floor, return time and least share, from card or page."""
    vm.set_floor(2.5)
    vm.set_return(5)
    settings.set(yield_least_share=0.5)
    again_read = SettingsStore(settings.path).value
    assert (again_read.yield_floor_gib, again_read.yield_return_s) == (2.5, 5)
    world.tick(app="game")
    assert world.engine.slots == 512
    vm.set_on(False)
    world.tick()
    assert world.engine.slots == 1024
    assert not vm.now.is_on
    assert world.watch.apps == ()


def test_words_when_the_language_changes_then_they_follow(vm, world):
    """Sentences are phrases, also those that hold phrases."""
    from app.wording import use_language

    world.tick(full_screen=True)
    use_language("zh_CN")
    try:
        assert "A full" not in again(vm.now.reason)
        assert again(vm.now.words) != "Yielded"
    finally:
        use_language("en")


def test_list_then_names_between_commas():
    """As people write it."""
    assert listed(" game.exe,, Blender , ") == ("game.exe", "Blender")


def grow(engine, kv, slots):
    """The engine gave slots to its context: its memory is the same."""
    engine.kv, engine.slots = engine.kv + kv, engine.slots - slots
    engine.resize_applied.emit(
        m.ResizeApplied(
            id="", kv_tokens=engine.kv, expert_slots=engine.slots, kv_bytes=0, expert_bytes=0,
            pause_ms=1.0, taken_slots=slots,
        )
    )  # fmt: skip
    engine.say_status()


def test_context_that_grew_then_its_slots_are_not_taken_back(vm, world):
    """Nothing was yielded, so nothing is missing: the division of the engine is not fought."""
    grow(world.engine, 200_000, 104)
    world.run(60)
    assert (vm.now.state, world.engine.resizes) == (YieldState.FULL, [])
    world.tick(app="game")
    world.tick(app="")
    world.run(60)
    assert world.engine.slots == 1024 - 104


def test_context_that_grew_while_yielded_then_back_to_what_is_left(vm, world):
    """Case M-14: what was given to a game comes back, what a chat took does not."""
    world.tick(app="game")
    assert world.engine.slots == 256
    world.engine.slots += 100  # so that there is something above the least
    world.engine.say_status()
    grow(world.engine, 100_000, 50)
    world.tick(app="")
    world.run(60)
    assert world.engine.slots == 1024 - 50
    assert vm.now.state is YieldState.FULL
