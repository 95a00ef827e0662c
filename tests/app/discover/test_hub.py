"""Searching the hub from Discover: asked once pressed, answered in place, or said why not."""

from dataclasses import replace

import pytest

from app.predict.fit import Fit
from app.services.engine_program import find_program
from app.services.gpu_meter import MeterReading
from app.services.job_runner import JobRunner
from app.theme import px
from app.viewmodels.discover_hub import HubSearch
from app.viewmodels.models import ModelsViewModel
from app.views.models import DISCOVER, ModelsView
from app.widgets.look import use
from engine.protocol import messages as m
from engine.protocol.errors import ErrorCode
from engine.protocol.places import data_root
from tests.app.discover.parts import GIB, REPO, Parts
from tests.app.models.stubs import TINY, StubSession
from tests.app.performance.stubs import StubClient
from tests.app.test_walk import LOOKS, SIZES, pale, picture
from tests.app.walk import clipped, controls, described, settle, spoken_name
from tests.support.mock_hub import MockHub, serve

FACTS = {
    "family": "qwen3_moe", "quant": "bf16", "context": 40960, "layers": 48, "hidden": 2048,
    "moe_intermediate": 768, "experts": 128, "top_k": 8, "heads": 32, "kv_heads": 4,
    "head_dim": 128, "vocab": 151936, "total_params": 30_500_000_000,
    "active_params": 3_300_000_000,
}  # fmt: skip
FOUND = {"repo": "maker/big-moe", "title": "big-moe", "commit": "beef", "licence": "mit", **FACTS}
CLOSED = {"repo": "maker/closed-moe", "title": "closed-moe", "commit": "f00d", "gated": True}


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
    made.show_tab(DISCOVER)
    return made


def ask(qtbot, parts, query="moe"):
    parts.vm.search(query)
    parts.vm.ask_hub()
    qtbot.waitUntil(lambda: bool(parts.jobs.jobs()))
    (job,) = [job for job in parts.jobs.jobs() if job.job == "search"]
    return job


def answer(parts, job, *models, left_out=0):
    result = {"query": "moe", "models": list(models), "left_out": left_out}
    parts.jobs.end(job.id, m.JobDone(job="search", result=result))


def test_search_when_typed_only_then_nothing_is_asked(qtbot, parts, page):
    """The hub hears of nothing that the person did not send."""
    page.panel.search.setText("secret project")
    settle()
    assert parts.jobs.jobs() == ()
    page.panel.hub.ask.click()
    qtbot.waitUntil(lambda: len(parts.jobs.jobs()) == 1)
    assert parts.jobs.jobs()[0].spec == {"query": "secret project", "id": "search"}


def test_answer_then_rows_with_fit_before_anything_is_fetched(qtbot, parts):
    """Fit from the config's figures and this machine; a gated model is there without figures."""
    answer(parts, ask(qtbot, parts), FOUND, CLOSED)
    fits = {row.entry.repo: row.advice.fit for row in parts.vm.found}
    assert fits == {"maker/big-moe": Fit.FITS, "maker/closed-moe": Fit.UNKNOWN}
    parts.meter.reading.emit(MeterReading(16 * GIB, 32 * GIB))
    assert {r.entry.repo: r.advice.fit for r in parts.vm.found}["maker/big-moe"] is Fit.TOO_BIG
    parts.vm.get("maker/big-moe")
    qtbot.waitUntil(lambda: parts.flows.flow_of("maker/big-moe") is not None)


def test_answer_when_in_the_catalogue_then_listed_once(qtbot, parts):
    """What the list has already is not repeated; a pasted name gives way to its figures."""
    parts.vm.search("maker/big-moe")
    assert [row.entry.repo for row in parts.vm.rows] == ["maker/big-moe"]
    job = ask(qtbot, parts, "maker/big-moe")
    answer(parts, job, FOUND, {"repo": REPO, "title": "x", **FACTS})
    assert parts.vm.rows == ()
    assert [row.entry.repo for row in parts.vm.found] == ["maker/big-moe", REPO]
    parts.vm.search("")
    assert [row.entry.repo for row in parts.vm.found] == ["maker/big-moe"]


def test_installed_when_another_commit_then_the_newer_one_is_offered(qtbot, parts):
    """Repository and revision decide; the newer one is fetched by its commit."""
    copy = replace(TINY, repo="maker/big-moe", commit="beef")
    parts.library.put(copy)
    answer(parts, ask(qtbot, parts), FOUND)
    assert parts.vm.found[0].state == "installed"
    parts.library.put(replace(copy, commit="0ld"))
    assert parts.vm.found[0].state == "older"
    parts.vm.get("maker/big-moe")
    qtbot.waitUntil(lambda: parts.flows.flow_of("maker/big-moe") is not None)
    assert parts.flow.job.spec["revision"] == "beef"


def test_ask_when_another_question_runs_then_its_answer_is_not_shown(qtbot, parts):
    """Results never mix."""
    first = ask(qtbot, parts, "first")
    parts.vm.search("second")
    parts.vm.ask_hub()
    assert parts.jobs.cancelled == [first.id]
    answer(parts, first, FOUND)
    assert parts.hub.entries == ()
    assert (parts.hub.asked, parts.hub.is_busy) == ("second", True)
    parts.hub.stop()
    assert (parts.hub.asked, parts.hub.is_busy) == ("", False)


@pytest.mark.parametrize(
    ("code", "has_settings"),
    [(ErrorCode.NETWORK, True), (ErrorCode.TOKEN, True), (ErrorCode.INTERNAL, False)],
)
def test_problem_then_the_sentence_and_what_helps(qtbot, parts, page, code, has_settings):
    """D-10, D-11, D-13: offline, proxy, mirror, token: cause, hint and the way to the setting."""
    job = ask(qtbot, parts)
    error = m.Error(code=code, message="Nothing answers at mirror.", hint="Check it.")
    parts.jobs.end(job.id, error)
    settle()
    box = page.panel.hub
    assert box._sentence.words.text() == "Nothing answers at mirror. Check it."
    assert box.settings.isVisible() == has_settings
    with qtbot.waitSignal(parts.flows.settings_wanted):
        box.settings.click()


@pytest.mark.parametrize(
    ("models", "left_out", "words"),
    [
        ((), 0, "The hub has nothing for “moe”"),
        ((FOUND,), 3, "3 more are of a kind"),
        ((), 1, "1 more is of a kind"),
    ],
)
def test_answer_when_little_is_left_then_said(qtbot, parts, page, models, left_out, words):
    """An empty answer is an answer."""
    answer(parts, ask(qtbot, parts), *models, left_out=left_out)
    settle()
    assert words in page.panel.hub._sentence.words.text()


def test_search_with_the_real_engine_then_rows(qtbot, tmp_path):
    """The child process asks the chosen mirror, and its figures reach the rows."""
    parts = Parts(tmp_path)
    runner = JobRunner(find_program("", data_root(str(tmp_path))), tmp_path / "jobs.json")
    runner.set_extra("search", parts.jobs.extras["search"])
    config = {
        "model_type": "qwen3_moe", "num_hidden_layers": 2, "hidden_size": 64, "vocab_size": 320,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "num_experts": 8,
        "num_experts_per_tok": 2, "moe_intermediate_size": 32, "intermediate_size": 64,
    }  # fmt: skip
    tags = ["safetensors", "qwen3_moe"]
    with serve(MockHub(tmp_path)) as hub:
        hub.hits = [{"id": "maker/tiny-moe", "sha": "beef", "tags": tags}]
        hub.configs = {"maker/tiny-moe": config}
        parts.settings.set(hub_endpoint=hub.url, hub_proxy="direct")
        search = HubSearch(runner, parts.secrets)
        search.ask("tiny")
        qtbot.waitUntil(lambda: search.is_answered or search.problem is not None, timeout=60_000)
    assert search.problem is None
    assert [(e.repo, e.commit, e.experts) for e in search.entries] == [
        ("maker/tiny-moe", "beef", 8)
    ]
    qtbot.waitUntil(lambda: runner.is_idle)


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("look", LOOKS, ids=str)
def test_page_in_any_look_then_named_readable_and_whole(qtbot, parts, page, look, size):
    """Waiting, failed, answered."""
    use(*look, True)
    rail = 57 if size[0] < 1000 or look[1] > 1 else 185
    page.resize(size[0] - px(rail), max(size[1], 640) - px(48))
    parts.vm.search("nothing in the list")
    job = ask(qtbot, parts)
    steps = (
        lambda: None,
        lambda: parts.hub.problem or answer(parts, job, FOUND, CLOSED, left_out=2),
    )
    for step in steps:
        step()
        settle()
        assert [described(w) for w in controls(page) if not spoken_name(w)] == []
        assert clipped(page) == []
        assert pale(page, picture(page, 1)) == []
