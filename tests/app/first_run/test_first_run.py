"""The first run: what each step knows, skipping, the way past all of it; and its page."""

import pytest
from PySide6.QtCore import QObject, Signal
from PySide6.QtWidgets import QLabel

from app.viewmodels.session_words import silent_engine
from app.views.first_run import FirstRunView
from app.widgets.labels import Elide
from app.widgets.look import use
from engine.protocol import messages as m
from engine.protocol.errors import ErrorCode
from tests.app.accessible import nameless
from tests.app.first_run.stubs import BARE, CPU, GPU, STRONG, WEAK, World
from tests.app.performance.stubs import TINY, profile_bytes
from tests.app.walk import clipped, settle


@pytest.fixture
def world(qapp, looks, tmp_path):
    return World(tmp_path)


@pytest.fixture
def view(world, qtbot):
    page = FirstRunView(world.vm)
    qtbot.addWidget(page)
    page.resize(996, 760)
    page.show()
    settle()
    return page


def states(world):
    return [world.vm.state(step) for step in ("hardware", "engine", "measure", "model")]


def measured(world, **profile):
    """A run that ends well."""
    world.vm.measure()
    job_id = world.profiler._job_id
    path = world.folder / "cpu-fp8.json"
    path.write_bytes(profile_bytes(**profile))
    world.jobs.end(job_id, m.JobDone(job="profile", result={"paths": [str(path)]}))


def test_steps_when_things_happen_then_each_follows_and_one_is_current(world):
    """Hardware and engine come by themselves; the two others have their turn after them."""
    assert states(world) == ["busy", "busy", "wait", "wait"]
    world.know()
    assert world.vm.current == "engine"
    world.ready()
    assert states(world) == ["done", "done", "now", "wait"]
    world.vm.measure()
    assert states(world)[2] == "busy"
    measured(world, fmt="fp8_block")
    assert states(world) == ["done", "done", "done", "now"]
    world.vm.get("a/Small-30B")
    assert (world.flows.got, states(world)[3]) == (["a/Small-30B"], "busy")
    world.library.repos.append("a/Small-30B")
    world.library.changed.emit()
    assert (states(world)[3], world.vm.current) == ("done", None)


def test_skip_when_all_are_skipped_then_none_is_left_and_nothing_ran(world):
    """Never in the way: no step is needed by another."""
    world.know()
    world.ready()
    world.vm.skip("measure")
    world.vm.skip("model")
    assert (states(world)[2:], world.vm.current) == (["skipped", "skipped"], None)
    assert world.jobs.states == {}
    world.vm.measure()  # thought better of it
    assert states(world)[2] == "busy"


def test_skip_when_measuring_then_the_job_is_cancelled(world):
    """The machine is not kept busy for what nobody wants."""
    world.vm.measure()
    world.vm.skip("measure")
    assert world.jobs.cancelled == ["job-1"]
    world.jobs.end("job-1", m.Error(code=ErrorCode.CANCELLED, message="Cancelled."))
    assert world.vm.state("measure") == "skipped"


def test_measure_then_typical_experts_whatever_is_loaded(world):
    """The built-in model's tiny experts would say nothing about large models."""
    world.client.model = TINY
    world.vm.measure()
    spec = world.jobs.states["job-1"].spec
    assert (spec["mode"], spec["model"]) == ("quick", None)


def test_engine_when_it_fails_then_said_and_restartable_or_skippable(world):
    """A missing engine is a sentence with a button, not the end of the first run."""
    world.know()
    world.session.trouble = silent_engine()
    world.session.changed.emit()
    assert (world.vm.state("engine"), world.vm.current) == ("failed", "engine")
    world.vm.restart_engine()
    assert world.session.calls == ["restart"]
    world.vm.skip("engine")
    assert world.vm.current == "measure"


def test_offers_when_measured_then_three_that_fit_fastest_first(world):
    """Sorted by predicted speed, with the reason; what is too big is not offered."""
    world.know()
    world.ready()
    before = [offer.entry.repo for offer in world.vm.offers]
    assert before[0] == "a/Small-30B"  # reads least per token, so fastest at any bandwidth
    assert all(offer.suggestion.guess is None for offer in world.vm.offers)
    measured(world, fmt="fp8_block")
    speeds = [offer.suggestion.guess.high for offer in world.vm.offers]
    assert len(speeds) == 3
    assert speeds == sorted(speeds, reverse=True)
    world.know(WEAK)
    assert world.vm.offers == ()  # no room on the disk


def test_builtin_when_a_model_comes_already_then_not_asked_for_twice(world):
    """The first start loads it by itself; the button only leads to the chat."""
    world.session.coming = world.folder
    world.vm.use_builtin()
    assert world.session.calls == []
    world.session.coming = None
    world.vm.use_builtin()
    assert world.session.calls == ["load"]
    world.client.model = TINY
    world.vm.use_builtin()
    assert world.session.calls == ["load"]


def texts(page):
    labels = [w for w in page.findChildren(Elide.__mro__[1]) if w.isVisible()]
    return " | ".join(label.text() for label in labels)


def test_page_when_strong_then_numbers_and_verdicts(world, view):
    """Each part has its number and a verdict in words."""
    world.know(STRONG)
    world.ready(GPU)
    said = texts(view)
    for words in (
        "RTX 5090, 32.0 GiB", "590.44", "New enough", "192 GiB, 2 modules",
        "PCIe 5.0 ×16", "All lanes in use", "1.2 TB free", "Version 0.1.0 runs, on GeForce",
    ):  # fmt: skip
        assert words in said, said


def test_page_when_weak_then_warnings_say_what_to_do(world, view):
    """x4 slot, old driver, little memory of the card, full disk."""
    world.know(WEAK)
    said = texts(view)
    for words in (
        "4 of 16 lanes: try another slot", "Update it: 580 or newer", "Little: 6.0 GiB or more",
        "A first large model takes", "48.0 GiB, 1 module",
    ):  # fmt: skip
        assert words in said, said


def test_page_when_no_card_then_it_is_said_calmly(world, view):
    """CPU only is a machine like any other; nothing there claims a GPU."""
    world.know(BARE)
    world.ready(CPU)
    said = texts(view)
    assert "The CPU computes" in said
    assert "It computes on the CPU here" in said
    assert "PCIe" not in said
    assert world.vm.checks[0].tone == "plain"
    settle()
    assert clipped(view) == []


def test_page_when_buttons_are_pressed_then_they_do_what_they_say(world, view, qtbot):
    """Measure becomes Cancel and keeps the focus; every way out leads to the chat."""
    world.know()
    world.ready()
    view.activateWindow()
    view.measure.setFocus()
    view.measure.click()
    settle()
    assert view.cancel.isVisible()
    assert view.cancel.hasFocus()
    view.cancel.click()
    assert world.jobs.cancelled == ["job-1"]
    world.jobs.end("job-1", m.Error(code=ErrorCode.BUDGET, message="No room.", hint="Unload."))
    assert "No room. Unload." in texts(view)
    view.cards["measure"].skip.click()
    row = view._rows["a/Small-30B"]
    row.get.click()
    assert world.flows.got == ["a/Small-30B"]
    for button in (view.builtin, view.skip_all, view.go):
        with qtbot.waitSignal(view.page_wanted) as wanted:
            button.click()
        assert wanted.args == ["chat"]


@pytest.mark.parametrize("facts", [STRONG, WEAK, BARE], ids=["strong", "weak", "bare"])
@pytest.mark.parametrize(
    ("size", "look"),
    [
        ((996, 712), ("dark", 1.0, "en")),
        ((700, 500), ("light", 1.0, "pseudo")),
        ((843, 552), ("light", 1.6, "zh_CN")),
        ((640, 400), ("dark", 1.0, "en")),
    ],
)
def test_page_when_any_size_and_language_then_named_and_whole(world, view, facts, size, look):
    """Case G-15, G-17: every control has a name, nothing is cut."""
    use(*look, reduced_motion=True)
    world.know(facts)
    world.ready()
    world.vm.skip("measure")
    view.resize(*size)
    settle()
    assert nameless(view) == []
    assert clipped(view) == []


def test_catalog_when_nothing_is_known_then_no_offers_and_no_crash(looks, tmp_path):
    """A broken catalogue costs the fourth step only."""
    world = World(tmp_path, catalog=())
    world.know(BARE)
    assert (world.vm.offers, world.vm.smallest_bytes) == ((), 0)


class Runtime(QObject):
    """As much of the runtime as the page asks for."""

    changed = Signal()
    need = "missing"


@pytest.mark.parametrize("need", ["missing", "installed", "bundled"])
def test_engine_step_when_its_libraries_are_missing_then_they_are_offered_there(
    world, qtbot, monkeypatch, need
):
    """A shell without an engine does not send a newcomer to the settings."""
    runtime = Runtime()
    monkeypatch.setattr("app.views.first_run.RuntimeCard", lambda _vm, **_: QLabel("install"))
    page = FirstRunView(world.vm, runtime)
    qtbot.addWidget(page)
    page.show()
    settle()
    assert page.runtime.isVisible()
    runtime.need = need
    runtime.changed.emit()
    assert page.runtime.isVisible() == (need == "missing")
