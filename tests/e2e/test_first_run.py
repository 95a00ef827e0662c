"""First run to first reply with the real engine: looked at, measured, chatted."""

import pytest

from app.main import Desktop
from app.services.log_ring import LogRing
from app.services.settings import Environment
from tests.app.conftest import looks

__all__ = ["looks"]
pytestmark = [pytest.mark.weights, pytest.mark.slow]
WAIT_MS = 100_000


@pytest.fixture
def desktop(qtbot, looks, converted_home):
    made = Desktop(Environment(converted_home, "", True, needs_x11=False), LogRing())
    yield made
    with qtbot.waitSignal(made.finished, timeout=10_000):
        made.quit()
    made.window.deleteLater()


def test_first_run_then_each_step_by_itself_or_one_click_and_a_reply(qtbot, desktop):
    """Nothing is typed before the first message; the measurement is this machine's own."""
    client, page, vm = desktop.services.client, desktop.pages.first_run, desktop.vm.first_run
    desktop.show()
    desktop.greet()
    assert desktop.window.page == "first_run"
    qtbot.waitUntil(lambda: vm.current == "measure", timeout=WAIT_MS)  # hardware and engine
    assert len(vm.checks) == 5
    assert page.measure.isVisible()
    with qtbot.waitSignal(vm.profiler.measured, timeout=WAIT_MS):
        page.measure.click()
    assert vm.state("measure") == "done"
    assert vm.profiler.profile.fill_gbps > 0
    assert vm.profiler.profile.cpu_gbps > 0
    assert all(offer.suggestion.guess is not None for offer in vm.offers)
    qtbot.waitUntil(lambda: client.model is not None, timeout=WAIT_MS)
    page.builtin.click()
    assert desktop.window.page == "chat"
    with qtbot.waitSignal(client.finished, timeout=WAIT_MS):
        desktop.vm.chat.send("Tell me about a fox.")
    assert len(desktop.vm.chat.talk.messages[-1].text) > 10
