"""The catalogue on this machine: figures, fit, order, search; and the tab."""

import json
from pathlib import Path

import msgspec
import pytest
from PySide6.QtTest import QTest

from app.predict.fit import Fit
from app.predict.unseen import ThisMachine, guess_speed, judge_download, seen_hits
from app.services.catalog import read_catalog
from app.services.downloads import Kept
from app.services.gpu_meter import MeterReading
from app.theme import px
from app.viewmodels.discover import Order, facts_of
from app.viewmodels.models import ModelsViewModel
from app.views.discover_flow_card import flow_line
from app.views.discover_parts import advice_reason, speed_text
from app.views.models import ModelsView
from app.widgets.dialogs import Question
from app.widgets.look import use
from engine.models.registry import FAMILIES
from engine.protocol import messages as m
from engine.protocol.errors import ErrorCode
from engine.quant.registry import FORMATS
from tests.app.accessible import nameless
from tests.app.discover.parts import GIB, REPO, TITLE, Parts
from tests.app.models.stubs import TINY, StubSession
from tests.app.performance.stubs import StubClient, profile_bytes
from tests.app.test_walk import LOOKS, SIZES, pale, picture
from tests.app.walk import clipped, controls, described, settle, spoken_name

CATALOG = read_catalog()


@pytest.fixture
def parts(qapp, tmp_path):
    use("dark", 1.0, "en", True)
    made = Parts(tmp_path, TINY)
    made.meter.reading.emit(MeterReading(16 * GIB, 96 * GIB))
    return made


@pytest.fixture
def page(parts, qtbot):
    client = StubClient()
    vm = ModelsViewModel(parts.library, parts.jobs, client, StubSession(), parts.meter)
    made = ModelsView(vm, parts.vm)
    made.client = client
    qtbot.addWidget(made)
    made.resize(996, 712)
    made.show()
    made.show_tab(1)
    return made


@pytest.mark.parametrize("entry", CATALOG, ids=lambda e: e.repo)
def test_entry_then_its_sizes_are_those_of_its_config(entry):
    """Bytes and parameters follow from layers, experts and widths; the engine runs it."""
    facts = facts_of(entry)
    assert facts.total_bytes == pytest.approx(entry.approx_bytes, rel=0.05)
    experts = 3 * entry.hidden * entry.moe_intermediate
    plain = msgspec.structs.replace(entry, quant="bf16")
    assert facts_of(plain).total_bytes == pytest.approx(2 * entry.total_params, rel=0.05)
    idle = entry.layers * (entry.experts - entry.top_k) * experts
    assert entry.total_params - idle == pytest.approx(entry.active_params, rel=0.05)
    assert entry.family in FAMILIES
    assert entry.quant in FORMATS
    assert entry.repo.count("/") == 1
    assert entry.moe_intermediate % 16 == 0


def test_sizes_when_compared_with_the_design_then_equal():
    """design/performance.md 1.1: 9.44 / 4.72 MB per expert, 58.0 / 29.0 GB of experts."""
    by_quant = {e.quant: facts_of(e) for e in CATALOG if e.title == "Qwen3-30B-A3B"}
    assert by_quant["bf16"].expert_bytes == pytest.approx(9.44e6, rel=0.01)
    assert by_quant["fp8_block"].expert_bytes == pytest.approx(4.72e6, rel=0.01)
    assert by_quant["bf16"].pool_bytes == pytest.approx(58.0e9, rel=0.01)
    assert by_quant["fp8_block"].pool_bytes == pytest.approx(29.0e9, rel=0.01)


def test_read_catalog_when_newer_or_odd_then_what_is_usable(tmp_path):
    """Unknown fields are ignored, an odd entry is left out, no file is no list."""
    path = tmp_path / "models.json"
    good = {"repo": "a/b", "title": "B", "colour": "blue"}
    path.write_text(json.dumps({"version": 9, "models": [good, {"title": "no repo"}, 3, good]}))
    assert [entry.repo for entry in read_catalog(path)] == ["a/b"]
    path.write_text("{")
    assert read_catalog(path) == ()
    assert read_catalog(tmp_path / "none.json") == ()


def test_judge_then_the_number_that_decides(parts):
    """What can never work comes first, then what is short now."""
    facts = facts_of(next(e for e in CATALOG if e.repo == REPO))
    small = judge_download(facts, ThisMachine(24 * GIB, 20 * GIB))
    assert (small.fit, advice_reason(small)) == (Fit.TOO_BIG, "RAM 24.0 < 31.9 GiB")
    card = judge_download(facts, ThisMachine(96 * GIB, 80 * GIB, 1 * GIB))
    assert (card.fit, card.limit) == (Fit.TOO_BIG, "vram")
    disk = judge_download(facts, ThisMachine(96 * GIB, 80 * GIB, 0, 40_000_000_000))
    assert (disk.fit, advice_reason(disk)) == (Fit.TIGHT, "Disk 40.0 GB < 63.3 GB")
    busy = judge_download(facts, ThisMachine(96 * GIB, 20 * GIB, 0, 10**12))
    assert busy.fit is Fit.TIGHT
    assert judge_download(facts, ThisMachine()).fit is Fit.UNKNOWN


def test_guess_then_faster_with_more_memory_and_none_without_a_measurement(parts):
    """A range that grows with the card; nothing is promised before something was measured."""
    from app.predict.profiles import read_profile

    facts = facts_of(next(e for e in CATALOG if e.repo == REPO))
    profile = read_profile(profile_bytes())
    cards = (4, 8, 16, 32)
    found = [
        guess_speed(facts, ThisMachine(96 * GIB, 80 * GIB, n * GIB, -1, profile)) for n in cards
    ]
    assert all(guess.low < guess.high for guess in found)
    assert [g.low for g in found] == sorted(g.low for g in found)
    assert [g.high for g in found] == sorted(g.high for g in found)
    alone = guess_speed(facts, ThisMachine(96 * GIB, 80 * GIB, 0, -1, profile))
    assert alone.high < found[0].high
    assert guess_speed(facts, ThisMachine(96 * GIB, 80 * GIB, 8 * GIB)) is None
    assert guess_speed(facts, ThisMachine(8 * GIB, 8 * GIB, 0, -1, profile)) is None
    assert (seen_hits(0), seen_hits(0.25), seen_hits(1)) == (0, 0.81, 1)
    assert speed_text(None) == "–"


def test_rows_when_searched_sorted_and_filtered(parts):
    """Words of title, format and use; the order is the person's."""
    vm = parts.vm
    vm.search("coder fp8")
    assert [r.entry.repo for r in vm.rows] == [
        "Qwen/Qwen3-Coder-30B-A3B-Instruct-FP8",
        "Qwen/Qwen3-Coder-480B-A35B-Instruct-FP8",
    ]
    vm.search("")
    ranks = [row.advice.fit for row in vm.rows]
    assert ranks.index(Fit.TOO_BIG) > ranks.index(Fit.FITS)
    vm.show_only_fitting(True)
    assert {row.advice.fit for row in vm.rows} <= {Fit.FITS, Fit.TIGHT}
    vm.show_only_fitting(False)
    vm.sort(Order.SIZE)
    sizes = [row.entry.approx_bytes for row in vm.rows]
    assert sizes == sorted(sizes)
    vm.sort(Order.NAME)
    assert [r.entry.title for r in vm.rows] == sorted(r.entry.title for r in vm.rows)


@pytest.mark.parametrize("text", ["maker/other-moe", "https://huggingface.co/maker/other-moe/"])
def test_search_when_a_name_is_pasted_then_it_can_be_fetched(parts, qtbot, text):
    """What the list does not know is offered by its name; its fit is not known."""
    parts.vm.search(text)
    (row,) = parts.vm.rows
    assert (row.entry.repo, row.advice.fit) == ("maker/other-moe", Fit.UNKNOWN)
    parts.vm.get("maker/other-moe")
    qtbot.waitUntil(lambda: len(parts.flows.flows) == 1)


def test_rows_when_fetched_or_installed_then_said(parts, qtbot):
    """No second Get for what is under way; D-19: a model that was removed can be fetched again."""
    from dataclasses import replace

    assert parts.row().state == "get"
    parts.vm.get(REPO)
    qtbot.waitUntil(lambda: parts.row().state == "busy")
    parts.vm.get(REPO)
    assert parts.jobs.count == 1
    parts.jobs.dismiss("job-1")
    parts.library.put(TINY, replace(TINY, name="Qwen3-30B-A3B-FP8"))
    assert parts.row().state == "get", "a name alone proves nothing"
    parts.library.put(TINY, replace(TINY, name="renamed", repo=REPO, commit="c0ffee"))
    assert parts.row().state == "installed"
    parts.library.put(TINY)
    assert parts.row().state == "get"


def test_look_then_measurements_and_disk_are_read_anew(parts, qtbot):
    """Nothing is read while the tab is hidden."""
    assert parts.row().guess is None
    (parts.profiles / "a.json").write_bytes(profile_bytes(emulated=True))
    parts.vm.look()
    assert parts.row().guess is not None
    assert parts.downloads.asked
    parts.downloads.room.emit(10**10)
    assert parts.row().advice.limit == "disk"
    with qtbot.assertNotEmitted(parts.vm.changed):
        parts.downloads.room.emit(10**10 + 5)


def test_page_when_get_is_pressed_then_a_line_on_top_of_both_tabs(parts, page, qtbot):
    """The line stays in sight while the person looks at what is installed."""
    page.panel._rows[REPO].action.click()
    qtbot.waitUntil(lambda: len(parts.flows.flows) == 1)
    card = page.flows._cards[REPO]
    page.show_tab(0)
    assert card.isVisible()
    assert not page.panel.isVisible()
    assert page._installed.isVisible()
    assert page._jobs == {}  # not a second time among the imports
    assert nameless(page) == []


def test_page_when_paused_by_the_person_then_the_line_stays(parts, page, qtbot):
    """The page's own list dismisses cancelled imports; not what can go on."""
    parts.vm.get(REPO)
    qtbot.waitUntil(lambda: REPO in page.flows._cards)
    card = page.flows._cards[REPO]
    card.pause.click()
    progress = m.Progress(id="", stage="download", done_bytes=10**9, total_bytes=31 * 10**9)
    parts.jobs.update("job-1", phase="cancelled", progress=progress)
    parts.jobs.failed.emit("job-1", m.Error(code=ErrorCode.CANCELLED, message="Cancelled."))
    assert parts.jobs.dismissed == []
    assert flow_line(parts.flow) == "Stopped at 1.0 GB of 31.0 GB. What was fetched is kept."
    card.resume.click()
    assert parts.jobs.resumed == ["job-1"]


def test_page_when_a_token_is_needed_then_taken_in_place(parts, page, qtbot):
    """D-10: the field is in the line, hides what is typed, and is emptied at once."""
    parts.vm.get(REPO)
    qtbot.waitUntil(lambda: REPO in page.flows._cards)
    card = page.flows._cards[REPO]
    parts.fail(ErrorCode.TOKEN, "An access token is needed.")
    assert card.token.isVisible()
    assert card.page_button.isVisible()
    assert not card.settings_button.isVisible()
    QTest.keyClicks(card.token, "hf_x")
    assert card.token.displayText() != "hf_x"
    card.token_button.click()
    assert card.token.text() == ""
    assert parts.secrets.token == "hf_x"
    assert parts.jobs.resumed == ["job-1"]


def test_page_when_the_proxy_is_dead_then_the_way_to_its_setting(parts, page, qtbot):
    """D-11."""
    parts.vm.get(REPO)
    qtbot.waitUntil(lambda: REPO in page.flows._cards)
    card = page.flows._cards[REPO]
    parts.fail(ErrorCode.NETWORK, "Nothing answers at the proxy http://127.0.0.1:9.")
    with qtbot.waitSignal(parts.flows.settings_wanted):
        card.settings_button.click()
    assert "127.0.0.1:9" in card._error.words.text()
    card.again_button.click()
    assert parts.jobs.resumed == ["job-1"]


def test_page_when_given_up_then_a_question_first(parts, page, qtbot):
    """Nothing that took hours goes by one click."""
    parts.vm.get(REPO)
    qtbot.waitUntil(lambda: REPO in page.flows._cards)
    page.flows._cards[REPO].close_button.click()
    dialog = page.flows.findChild(Question)
    assert dialog.safe.isDefault()
    assert parts.jobs.cancelled == []
    dialog.act.click()
    assert parts.jobs.cancelled == ["job-1"]


def test_page_when_ready_then_load_and_delete_are_offered(parts, page, qtbot):
    """The bytes are named; a model that is ready is loaded from its line."""
    spec = {"repo": REPO, "source": "/models/.downloads/x", "source_bytes": 31_200_000_000}
    parts.jobs.start("convert", spec, TITLE)
    parts.jobs.end("job-1", m.JobDone(job="convert", result={"path": str(TINY.path)}))
    card = page.flows._cards[REPO]
    assert "31.2 GB" in card.free_button.text()
    card.load_button.click()
    assert page._vm._session.loads == [str(TINY.path)]
    card.free_button.click()
    assert parts.downloads.gone == ["/models/.downloads/x"]


@pytest.mark.parametrize("language", ["en", "pseudo"])
@pytest.mark.parametrize("size", [(996, 712), (843, 552), (580, 552)])
def test_page_when_any_size_then_not_wider_than_the_window(parts, page, qtbot, size, language):
    """With a failed line that needs a token, in a longer language."""
    parts.vm.get(REPO)
    qtbot.waitUntil(lambda: REPO in page.flows._cards)
    parts.fail(ErrorCode.GATED, "Access must be granted first. " * 6)
    use("light", 1.0, language, True)
    page.resize(*size)
    QTest.qWait(0)  # layouts settle in the event loop
    assert page.panel.minimumSizeHint().width() <= size[0]
    assert page.flows.minimumSizeHint().width() <= size[0]
    assert not page.grab().isNull()
    use("dark", 1.0, "en", True)


def test_page_when_downloads_are_left_over_then_named_with_their_bytes(parts, page, qtbot):
    """One question, then they go."""
    kept = Kept(Path("/models/.downloads/maker/old"), "maker/old", 5 * 10**9)
    parts.downloads.found.emit((kept,))
    assert "maker/old, 5.0 GB" in page.flows._left.words.text()
    page.flows.delete_left.click()
    page.flows.findChild(Question).act.click()
    assert parts.downloads.gone == [str(kept.folder)]


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("look", LOOKS, ids=str)
def test_page_in_any_look_then_named_readable_and_whole(parts, page, qtbot, look, size):
    """The walk over the tab that the window's own walk does not open."""
    parts.vm.get(REPO)
    qtbot.waitUntil(lambda: REPO in page.flows._cards)
    parts.fail(ErrorCode.GATED, "Access must be granted first.")
    use(look[0], look[1], look[2], True)
    rail = 57 if size[0] < 1000 or look[1] > 1 else 185
    page.resize(size[0] - px(rail), max(size[1], 640) - px(48))
    settle()
    assert [described(w) for w in controls(page) if not spoken_name(w)] == []
    assert clipped(page) == []
    assert pale(page, picture(page, 1)) == []
    use("dark", 1.0, "en", True)


def test_stop_when_the_download_ends_under_the_question_then_the_conversion_stops(page, parts):
    """The answer holds for the model, not for the job that it was when the question came."""
    parts.flows.secrets.remember("x")
    parts.flows.get(REPO, TITLE)
    page.flows._cards[REPO].close_button.click()
    done = m.JobDone(job="download", result={"path": f"/models/.downloads/{REPO}"})
    parts.jobs.end(parts.flow.job.id, done)
    assert parts.flow.job.job == "convert"
    page.flows.findChild(Question).act.click()
    assert parts.jobs.cancelled == [parts.flow.job.id]
