"""The split bar dragged while the real engine writes: the answer to the drag, and the same text."""

import time

import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtTest import QTest

from app.predict.split import Divider, Phase
from app.services.engine_client import EngineClient
from app.services.engine_process import EngineProcess
from app.services.engine_program import find_program
from app.services.settings import SettingsStore
from app.viewmodels.performance import PerformanceViewModel
from app.viewmodels.yielding import YieldingViewModel
from app.views.performance import PerformanceView
from engine.protocol import messages as m
from tests.app.conftest import looks

__all__ = ["looks"]
pytestmark = pytest.mark.weights
WAIT_MS = 60_000
POEM = "Tell me a long story about a fox and a bear."
PLAIN = m.Sampling(temperature=0.9, top_k=50, seed=3, max_tokens=500, ignore_eos=True)
BAR_Y = 46  # px: on the handles' height


class Page:
    """The Performance page on the real engine."""

    def __init__(self, qtbot, home, folder):
        self.qtbot = qtbot
        settings = SettingsStore(folder / "settings.json")
        self.client = EngineClient(EngineProcess(find_program("", home, 1)))
        self.vm = PerformanceViewModel(self.client, folder, settings=settings)
        self.view = PerformanceView(self.vm, YieldingViewModel(self.client, settings))
        qtbot.addWidget(self.view)
        self.view.resize(996, 712)
        self.view.show()
        self.text = ""
        self.client.delta.connect(self._on_delta)
        self.client.start()
        self.client.load(str(next(home.models.iterdir())))
        self.wait(lambda: self.vm.applied is not None)

    def _on_delta(self, event):
        self.text += event.text

    def wait(self, check):
        self.qtbot.waitUntil(check, timeout=WAIT_MS)

    def ask(self):
        self.text = ""
        message = m.ChatMessage(role="user", parts=(m.Part(text=POEM),))
        return self.client.generate((message,), PLAIN)

    def finish(self, reply):
        self.wait(lambda: reply not in self.client.open_replies)
        return self.text

    def drag(self, pixels):
        """Drag the handle between context and experts; returns ms from its release to Applied."""
        bar = self.view.split.bar
        x = self._handle(bar)
        QTest.mousePress(bar, Qt.MouseButton.LeftButton, pos=QPoint(x, BAR_Y))
        step = 1 if pixels > 0 else -1
        for moved in range(step, pixels + step, step):
            QTest.mouseMove(bar, QPoint(x + moved, BAR_Y))
        assert self.vm.phase is Phase.PREVIEW
        assert bar.active is Divider.KV
        wanted = self.vm.shown
        before = time.perf_counter()
        QTest.mouseRelease(bar, Qt.MouseButton.LeftButton, pos=QPoint(x + pixels, BAR_Y))
        self.wait(lambda: self.vm.phase is not Phase.PENDING)
        taken = (time.perf_counter() - before) * 1000
        assert self.vm.phase is Phase.APPLIED
        assert self.vm.applied.same_as(wanted)
        assert self.view.split.note.words.text().startswith("Applied in ")
        return taken

    def _handle(self, bar):
        sizes = bar.shown.sizes()
        part = (sizes["weights"] + sizes["kv"]) / bar.shown.total_bytes
        return round(part * bar.width())


@pytest.fixture
def page(qtbot, looks, converted_home, tmp_path):
    made = Page(qtbot, converted_home, tmp_path)
    yield made
    with qtbot.waitSignal(made.client.stopped, timeout=10_000):
        made.client.stop()


def test_slider_dragged_during_a_reply_then_applied_and_the_text_is_identical(
    page, record_property
):
    """context gives and takes memory six times while a sampled reply is written."""
    alone = page.finish(page.ask())
    assert len(alone) > 200
    pauses, sizes, waits = [], set(), []
    page.client.resize_applied.connect(lambda event: pauses.append(event.pause_ms))
    page.client.resize_applied.connect(lambda e: sizes.add((e.kv_tokens, e.expert_slots)))
    reply = page.ask()
    for pixels in (-40, 60, -90, 120, -50, 30):
        so_far = len(page.text)
        page.wait(lambda so_far=so_far: len(page.text) > so_far + 20)
        waits.append(page.drag(pixels))
    assert reply in page.client.open_replies
    assert page.finish(reply) == alone
    assert len(pauses) == len(sizes) == 6
    record_property("release to applied, middle ms", round(sorted(waits)[3]))
    record_property("release to applied, most ms", round(max(waits)))
    record_property("pause of the engine, most ms", round(max(pauses), 1))


def test_reply_that_outgrows_the_context_then_the_bar_follows_and_the_text_is_identical(page):
    """The experts give what the context lacks, the window says why, and nothing is cut."""
    alone = page.finish(page.ask())
    page.client.resize(kv_tokens=256, expert_slots=64)
    page.wait(lambda: page.vm.applied.kv_tokens == 256)
    small = page.vm.applied
    assert page.finish(page.ask()) == alone
    page.wait(lambda: page.vm.applied.kv_tokens > 256)
    grown = page.vm.applied
    assert grown.expert_slots < small.expert_slots == 64
    assert grown.kv_bytes + grown.expert_bytes <= small.kv_bytes + small.expert_bytes
    assert page.view.split.note.words.text().startswith("A chat needed more context")
