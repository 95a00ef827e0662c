"""A walk over every page of the real window, as a person would see it in each look.

The app is whole (composition root, view models, pages), the engine is the fake one with a reply
written, so that cards, charts and lists hold something.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from PySide6.QtCore import QCoreApplication, QEvent, QEventLoop, QTimer, SignalInstance
from PySide6.QtGui import QColor
from PySide6.QtWidgets import QApplication, QLabel

from app.main import Desktop
from app.services.log_ring import LogRing
from app.services.outcome import ProcessOutcome
from app.services.settings import Environment
from app.theme import theme
from app.viewmodels.session_words import lost_engine, silent_engine, stuck_engine
from app.views.shortcuts import PAGES as IN_RAIL
from app.widgets.look import use
from engine.protocol.messages import EngineState
from engine.protocol.places import data_root
from tests.app.walk import (
    clipped,
    controls,
    described,
    pale,
    picture,
    settle,
    spoken_name,
    unreachable,
)
from tests.support.app_engine import FAKE_ENGINE

LOOKS = (
    ("dark", 1.0, "en"),
    ("light", 1.0, "zh_CN"),
    ("dark", 1.0, "pseudo"),
    ("light", 1.6, "en"),
)
SIZES = ((1180, 760), (900, 600))
PAGES = (*(name for name, _ in IN_RAIL), "first_run")


def wait(signal: SignalInstance, limit_ms: int = 15_000) -> None:
    """Run the event loop until a signal comes."""
    loop = QEventLoop()
    signal.connect(loop.quit)
    QTimer.singleShot(limit_ms, loop, lambda: loop.exit(1))
    assert loop.exec() == 0, "the signal did not come"


@pytest.fixture(scope="module")
def desktop(qapp: QApplication, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desktop]:
    """The app with a model loaded and a reply written; one for all looks."""
    home: Path = tmp_path_factory.mktemp("walk")
    os.environ["FAKE_ENGINE_ARGS"] = "--tokens 40 --stats 0.05 --rate 400"
    environment = Environment(data_root(str(home)), str(FAKE_ENGINE), True, needs_x11=False)
    made = Desktop(environment, LogRing())
    made.services.settings.set(reduced_motion=True)
    client = made.services.client
    made.show()
    wait(client.loaded)
    made.vm.chat.send("How does a cache decide what to keep?")
    wait(client.finished)
    wait(client.stats)
    made.vm.first_run.look()
    wait(made.vm.first_run.changed)
    yield made
    del os.environ["FAKE_ENGINE_ARGS"]
    QTimer.singleShot(0, made.quit)
    wait(made.finished)
    made.window.deleteLater()
    QCoreApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete.value)
    use("dark", 1.0, "en", reduced_motion=True)


def show(desktop: Desktop, look: tuple[str, float, str], size: tuple[int, int], page: str) -> None:
    """Bring a page to the front in a look and size; a small screen may go below the least size."""
    tone, zoom, language = look
    desktop.services.settings.set(theme=tone, zoom=zoom, language=language)
    window = desktop.window
    window.setMinimumSize(0, 0)
    window.resize(*size)
    window.show_page(page)
    settle()


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("look", LOOKS, ids=str)
def test_pages_in_any_look_then_named_readable_and_whole(
    desktop: Desktop, look: tuple[str, float, str], size: tuple[int, int]
) -> None:
    """Names, contrast, nothing cut, nothing outside (cases G-15, G-17, G-22)."""
    if look[1] > 1:  # the rail of icons is as high as this
        size = (size[0], max(size[1], 640))
    for page in PAGES:
        show(desktop, look, size, page)
        window = desktop.window
        assert window.size().toTuple() == size, page
        assert [described(w) for w in controls(window) if not spoken_name(w)] == [], page
        assert clipped(window) == [], page
        assert pale(window, picture(window, 1)) == [], page
    assert theme().zoom == look[1]


def test_pages_at_two_device_pixels_then_the_same_in_sharper(desktop: Desktop) -> None:
    """At 200 % of the system the layout is the same; grounds lie where they lay."""
    for page in PAGES:
        show(desktop, LOOKS[0], SIZES[0], page)
        one, two = picture(desktop.window, 1), picture(desktop.window, 2)
        assert two.size() == one.size() * 2
        assert pale(desktop.window, two) == [], page
        half = two.scaled(one.size())
        probes = [(x, y) for x in range(8, one.width(), 97) for y in range(8, one.height(), 53)]
        differ = [at for at in probes if far(one.pixelColor(*at), half.pixelColor(*at))]
        assert len(differ) < 0.1 * len(probes), page


def far(a: QColor, b: QColor) -> bool:
    """Whether two colours are clearly different."""
    return max(abs(a.red() - b.red()), abs(a.green() - b.green()), abs(a.blue() - b.blue())) > 60


def test_window_then_every_control_is_reached_by_tab(desktop: Desktop) -> None:
    """One chain of focus over rail, strip and all pages."""
    show(desktop, LOOKS[0], SIZES[0], "chat")
    assert unreachable(desktop.window) == []


@pytest.mark.parametrize("tone", ["dark", "light"])
def test_cpu_only_then_no_word_makes_believe_in_a_gpu(desktop: Desktop, tone: str) -> None:
    """Wherever VRAM is named on a machine without a GPU, it is said to be emulated."""
    for page in PAGES:
        show(desktop, (tone, 1.0, "en"), SIZES[0], page)
        texts = [w.text() for w in desktop.window.findChildren(QLabel) if w.isVisible()]
        assert [t for t in texts if "PCIe" in t and "not a transfer" not in t] == [], page
        named = [t for t in texts if "VRAM" in t and "mulated" not in t]
        assert named in ([], ["VRAM split"]), page  # its neighbour says "emulated VRAM"


@pytest.mark.parametrize("language", ["en", "zh_CN", "pseudo"])
def test_settings_sections_then_each_is_named_readable_and_whole(
    desktop: Desktop, language: str
) -> None:
    """What is behind the first section of the settings, at the least size."""
    show(desktop, ("dark", 1.0, language), SIZES[1], "settings")
    view = desktop.pages.settings
    for section in view.items:
        view.open_section(section)
        settle()
        assert [described(w) for w in controls(view) if not spoken_name(w)] == [], section
        assert clipped(desktop.window) == [], section
        assert pale(desktop.window, picture(desktop.window, 1)) == [], section


TROUBLES = {
    "silent": silent_engine(EngineState.GENERATING),
    "stuck": stuck_engine(120),
    "device": lost_engine(
        ProcessOutcome(True, "It stopped.", "last line", exit_code=3), False, True
    ),
    "often": lost_engine(ProcessOutcome(True, "It crashed.", "a log line " * 30, signal=11), True),
    "missing": lost_engine(ProcessOutcome(True, "No program.", was_started=False), False),
}


@pytest.mark.parametrize("look", LOOKS, ids=str)
@pytest.mark.parametrize("kind", TROUBLES)
def test_trouble_then_band_and_pill_are_named_readable_and_whole(
    desktop: Desktop, kind: str, look: tuple[str, float, str]
) -> None:
    """What a person needs most is never cut: cause, hint, last line, the buttons."""
    session = desktop.vm.session
    session._resilience.doubted.emit(TROUBLES[kind])
    try:
        show(desktop, look, (900, 640), "first_run")
        window = desktop.window
        assert window.problem.isVisible()
        assert window.strip.pill.state == "error"
        assert [described(w) for w in controls(window) if not spoken_name(w)] == []
        assert clipped(window) == []
        assert pale(window, picture(window, 1)) == []
    finally:
        session.dismiss_problem()


@pytest.mark.parametrize("look", LOOKS, ids=str)
def test_first_run_when_measuring_then_named_readable_and_whole(
    desktop: Desktop, look: tuple[str, float, str]
) -> None:
    """The busy face of the third step."""
    first_run = desktop.vm.first_run
    first_run.skip("model")
    first_run.measure()
    try:
        show(desktop, look, (900, 640), "first_run")
        window = desktop.window
        assert [described(w) for w in controls(window) if not spoken_name(w)] == []
        assert clipped(window) == []
        assert pale(window, picture(window, 1)) == []
    finally:
        first_run.profiler.cancel()
