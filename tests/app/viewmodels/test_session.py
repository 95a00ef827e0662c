"""The session: first start, remembered splits, crashes, restarts."""

import json
import shutil
from pathlib import Path

import pytest

from app.services.engine_client import EngineClient
from app.services.engine_process import EngineProcess, ProcessLimits
from app.services.engine_program import find_program
from app.services.job_runner import JobRunner
from app.services.model_library import ModelLibrary
from app.services.settings import SettingsStore
from app.viewmodels.models_idle import IdleUnloader
from app.viewmodels.session import SessionViewModel
from engine.protocol import messages as m
from engine.protocol.identity import content_id
from engine.protocol.places import data_root
from tests.support.app_engine import Recorder, fake_program
from tests.support.checkpoints import write_checkpoint

FAST = ProcessLimits(first_output_s=10, silence_s=0.6, eof_after_s=0.2, kill_after_s=0.5)
HELLO = (m.ChatMessage(role="user", parts=(m.Part(text="hello"),)),)


def write_ftw(folder: Path, source: str = "", content: str = "") -> Path:
    """An FTW folder as far as the library reads it."""
    folder.mkdir(parents=True)
    index = {"format": "freetoken", "major": 2, "name": folder.name, "quant": "fp8_block"}
    index |= {"source": {"name": source, "content": content}}
    (folder / "model.ftw").write_text(json.dumps(index), "utf-8")
    return folder


class World:
    """All services below a session, with the fake engine."""

    def __init__(self, root, arguments=(), has_real_jobs=False):
        self.root = data_root(str(root))
        program = fake_program(*arguments)
        self.sources = root / "sources"
        self.sources.mkdir(parents=True, exist_ok=True)
        self.process = EngineProcess(program, limits=FAST)
        self.client = EngineClient(self.process)
        self.library = ModelLibrary(self.root.models, self.sources)
        jobs = find_program("", self.root) if has_real_jobs else program
        self.jobs = JobRunner(jobs, self.root.root / "jobs.json", kill_after_s=0.3)
        self.settings = SettingsStore(self.root.settings_file)
        self.session = SessionViewModel(self.client, self.library, self.jobs, self.settings)

    def add_source(self, name="tiny"):
        folder = self.sources / name
        folder.mkdir()
        (folder / "config.json").write_text('{"model_type": "qwen3_moe"}')
        return folder

    def add_builtin(self, name="tiny"):
        content = content_id(self.add_source(name))
        return write_ftw(self.root.models / name, name, content)


@pytest.fixture
def world(qtbot, tmp_path):
    made = []

    def make(*arguments, root=tmp_path, has_real_jobs=False):
        made.append(World(root, arguments, has_real_jobs))
        return made[-1]

    yield make
    for one in made:
        one.session.close()
        one.library.close()
        one.jobs.close()
        one.process.kill()
        qtbot.waitUntil(lambda one=one: not one.process.is_running and one.jobs.is_idle)


def start(qtbot, one):
    with qtbot.waitSignal(one.client.loaded, timeout=10_000):
        one.session.start()


def test_first_start_then_builtin_is_prepared_and_loaded(qtbot, world):
    """Nothing converted yet: convert the model that came with the app, then load it."""
    one = world("--job-seconds", "0.1")
    one.add_source()
    words = []
    one.session.changed.connect(lambda: words.append(one.session.state_detail))
    start(qtbot, one)
    assert one.session.model_name == "tiny"
    assert Path(one.client.model.path) == one.root.models / "tiny"
    assert "Starting engine" in words or "Preparing" in words
    assert any(word.startswith("Preparing ") and word.endswith("%") for word in words)
    assert one.settings.value.last_model == str(one.root.models / "tiny")


def test_second_start_then_last_model_is_loaded_without_a_job(qtbot, world):
    """What was loaded last comes back; the built-in one is not converted again."""
    one = world()
    one.add_builtin()
    other = write_ftw(one.root.models / "other")
    one.settings.set(last_model=str(other))
    start(qtbot, one)
    assert one.session.model_name == "other"
    assert one.jobs.jobs() == ()


@pytest.mark.parametrize("end", ["done", "error"])
def test_start_when_a_newer_built_in_model_shipped_then_made_anew_in_its_place(qtbot, world, end):
    """Told by the bytes of the source; if that fails, the older copy still serves."""
    one = world("--job-end", end)
    folder = one.add_builtin()
    (one.sources / "tiny" / "a.safetensors").write_bytes(b"newer weights")
    said = []
    one.session.notice.connect(lambda sentence, _: said.append(sentence))
    start(qtbot, one)
    (job,) = one.jobs.jobs()
    assert job.spec == {
        "source": str(one.sources / "tiny"), "target": str(folder),
        "room_at": str(folder.parent), "id": "tiny", "replace": True,
    }  # fmt: skip
    assert Path(one.client.model.path) == folder
    assert bool(said) == (end == "error")
    assert one.session.trouble is None


def test_start_when_loading_is_switched_off_then_engine_without_model(qtbot, world):
    """The setting is obeyed; the picker still lists the models."""
    one = world()
    one.add_builtin()
    one.settings.set(load_last_model=False)
    with qtbot.waitSignals([one.client.state_changed, one.library.changed]):
        one.session.start()
    assert one.session.state is m.EngineState.IDLE
    assert [c.name for c in one.session.models] == ["tiny"]
    assert one.client.open_ids == ()


def test_preparation_fails_then_problem_names_the_file(qtbot, world):
    """A damaged source is a sentence in the window; the engine stays."""
    one = world("--job-end", "error")
    one.add_source()
    with qtbot.waitSignal(one.jobs.failed, timeout=10_000):
        one.session.start()
    assert one.session.trouble.kind == "load"
    assert "model-00002-of-00003.safetensors" in one.session.problem


def test_load_refused_then_problem_until_the_next_success(qtbot, world):
    """Cause and hint are shown; nothing is left loading."""
    one = world("--load-error", "unsupported_checkpoint")
    one.add_builtin()
    with qtbot.waitSignal(one.client.failed, timeout=10_000):
        one.session.start()
    assert one.session.trouble.kind == "load"
    assert one.session.trouble.hint == "Choose another model."
    assert not one.session.can_stop


def test_engine_killed_mid_reply_then_words_within_two_seconds_and_restart(qtbot, world):
    """Case A-20, G-18's sibling: the window knows at once, and a restart brings the model back."""
    one = world("--rate", "20")
    one.add_builtin()
    start(qtbot, one)
    with qtbot.waitSignal(one.client.delta):
        one.client.generate(HELLO, m.Sampling())
    with qtbot.waitSignal(one.client.stopped, timeout=2_000):
        one.process._process.kill()
    assert one.session.trouble.kind == "stopped"
    assert one.session.trouble.can_restart
    assert one.session.model_name == "tiny"
    with qtbot.waitSignal(one.client.loaded, timeout=10_000):
        one.session.restart_engine()
    assert one.session.problem == ""


def test_restart_smaller_then_ten_percent_fewer_slots(qtbot, world):
    """The button does what it says, and the smaller cache is not remembered by itself."""
    one = world()
    one.add_builtin()
    start(qtbot, one)
    qtbot.waitUntil(lambda: one.client.last_status is not None)
    with qtbot.waitSignal(one.client.stopped):
        one.process._process.kill()
    with qtbot.waitSignal(one.client.status, timeout=10_000) as status:
        one.session.restart_engine(smaller=True)
    pools = {p.name: p.units for p in status.args[0].devices[0].pools}
    assert pools["experts"] == int(64 * 0.9)
    assert one.settings.profile("tiny").expert_slots is None


def test_yield_then_not_remembered_and_no_base_of_a_smaller_cache(qtbot, world):
    """What was given away for a while is nobody's choice: not of the next load, nor of 10 %."""
    one = world()
    one.add_builtin()
    start(qtbot, one)
    qtbot.waitUntil(lambda: one.client.last_status is not None)
    with qtbot.waitSignal(one.client.resize_applied):
        one.client.resize(expert_slots=16, loan=True)
    assert one.settings.profile("tiny").expert_slots is None
    with qtbot.waitSignal(one.client.resize_applied):
        one.client.resize(kv_tokens=1_024)  # a choice of context is none of slots
    profile = one.settings.profile("tiny")
    assert (profile.kv_tokens, profile.expert_slots) == (1_024, 64)
    with qtbot.waitSignal(one.client.stopped):
        one.process._process.kill()
    with qtbot.waitSignal(one.client.status, timeout=10_000) as status:
        one.session.restart_engine(smaller=True)
    pools = {p.name: p.units for p in status.args[0].devices[0].pools}
    assert pools["experts"] == int(64 * 0.9)


def test_context_that_grew_then_the_next_load_begins_as_chosen(qtbot, world):
    """What a long chat made of the division is nobody's choice; a later choice fits beside it."""
    one = world()
    one.add_builtin()
    start(qtbot, one)
    qtbot.waitUntil(lambda: one.client.last_status is not None)
    with qtbot.waitSignal(one.client.resize_applied):
        one.client.resize(expert_slots=60, kv_tokens=1_024)
    one.client.resize_applied.emit(
        m.ResizeApplied(
            id="", kv_tokens=2_048, expert_slots=50, kv_bytes=0, expert_bytes=0, pause_ms=1.0,
            taken_slots=10,
        )
    )  # fmt: skip
    profile = one.settings.profile("tiny")
    assert (profile.kv_tokens, profile.expert_slots) == (1_024, 60)
    assert one.session._loader.chosen_slots == 50


def test_resize_then_remembered_for_this_model_only(qtbot, world):
    """FreeToken#255: a model's split survives a restart of the app."""
    one = world()
    one.add_builtin()
    write_ftw(one.root.models / "other")
    start(qtbot, one)
    with qtbot.waitSignal(one.client.resize_applied):
        one.client.resize(expert_slots=100, kv_tokens=1_000)
    with qtbot.waitSignal(one.client.status, check_params_cb=lambda s: s.policy == "cpu_only"):
        one.client.set_policy(m.MissPolicy.CPU_ONLY)
    assert SettingsStore(one.settings.path).profile("tiny").expert_slots == 100
    seen = Recorder(one.client, "status")
    with qtbot.waitSignal(one.client.loaded):
        one.session.load(str(one.root.models / "other"))
    with qtbot.waitSignal(one.client.loaded):
        one.session.load(str(one.root.models / "tiny"))
    qtbot.waitUntil(lambda: len(seen.of("status")) >= 2)
    last = seen.of("status")[-1]
    pools = {p.name: p.units for p in last.devices[0].pools}
    assert (pools["experts"], pools["kv"]) == (100, 1_000)
    assert last.policy is m.MissPolicy.CPU_ONLY


def test_stop_while_loading_then_cancelled_within_a_second(qtbot, world):
    """G-10: Stop during a load ends it; no problem is shown."""
    one = world("--load-delay", "20")
    one.add_builtin()
    with qtbot.waitSignal(one.client.progress, timeout=10_000):
        one.session.start()
    assert one.session.can_stop
    with qtbot.waitSignal(one.client.failed, timeout=1_000):
        one.session.stop_reply()
    assert one.session.problem == ""
    assert not one.session.can_stop


def test_hanging_engine_then_not_responding_and_restart_works(qtbot, world):
    """A hang is a state with a way out; the process is only killed when asked."""
    one = world("--hang-at", "3")
    one.add_builtin()
    start(qtbot, one)
    one.client.generate(HELLO, m.Sampling())
    qtbot.waitUntil(lambda: one.session.trouble is not None, timeout=5_000)
    assert one.session.trouble.kind == "silent"
    with qtbot.waitSignal(one.client.loaded, timeout=10_000):
        one.session.restart_engine()
    assert one.session.problem == ""


def test_three_crashes_then_said_but_still_restartable(qtbot, world):
    """E-05: no loop by itself, and the person is told that it keeps happening."""
    one = world("--crash-start")
    for _ in range(3):
        with qtbot.waitSignal(one.client.stopped, timeout=10_000):
            one.client.start()
    assert "three times" in one.session.trouble.hint
    assert one.session.trouble.can_restart
    assert one.session.trouble.last_log == "ImportError: the fake library is missing"


def test_stats_while_generating_then_rate(qtbot, world):
    """Top strip: a rate only while a reply is written."""
    one = world("--rate", "50", "--tokens", "60", "--stats", "0.1")
    one.add_builtin()
    start(qtbot, one)
    with qtbot.waitSignal(one.client.finished, timeout=10_000):
        one.client.generate(HELLO, m.Sampling())
        qtbot.waitUntil(lambda: one.session.tok_s > 0)
    assert one.session.tok_s == 0


def test_job_then_its_share_is_on_the_page_that_shows_it(qtbot, world):
    """A measurement is no matter of the Models page."""
    one = world("--job-steps", "4", "--job-end", "hang")
    with qtbot.waitSignal(one.jobs.progress, timeout=10_000):
        one.jobs.start("profile", {}, "Measuring")
    qtbot.waitUntil(lambda: "profiler" in one.session.job_shares, timeout=5_000)
    assert "models" not in one.session.job_shares


def test_policy_default_then_new_models_get_it_and_it_is_not_remembered(qtbot, world):
    """The general choice fills in for models without their own; a change is the model's own."""
    one = world()
    one.add_builtin()
    one.settings.set(policy="cpu_only")
    start(qtbot, one)
    qtbot.waitUntil(lambda: one.client.last_status.policy is m.MissPolicy.CPU_ONLY)
    assert one.settings.profile("tiny").policy is None
    one.client.set_policy(m.MissPolicy.FILL_ONLY)
    qtbot.waitUntil(lambda: one.settings.profile("tiny").policy is m.MissPolicy.FILL_ONLY)


def test_interrupted_preparation_then_taken_up_again(qtbot, world, tmp_path):
    """D-05: the app ended during the conversion; the next start goes on with the same job."""
    one = world("--job-end", "hang")
    one.add_source()
    with qtbot.waitSignal(one.jobs.progress, timeout=10_000):
        one.session.start()
    (first,) = one.jobs.jobs()
    one.session.close()
    with qtbot.waitSignal(one.jobs.idle, timeout=5_000):
        one.jobs.close()
    two = world()
    (kept,) = two.jobs.jobs()
    assert (kept.id, kept.phase) == (first.id, "interrupted")
    start(qtbot, two)
    assert [j.phase for j in two.jobs.jobs()] == ["done"]
    assert two.session.model_name == "tiny"


def test_preparation_when_the_own_folder_was_deleted_after_a_failure_then_made_again(qtbot, world):
    """The same job as before: the app's own models folder is never a disk that is away (D-17)."""
    one = world(has_real_jobs=True)
    source = write_checkpoint(one.sources / "tiny")
    config = (source / "config.json").read_bytes()
    (source / "config.json").write_text('{"model_type": "made_up"}')
    with qtbot.waitSignal(one.jobs.failed, timeout=60_000):
        one.session.start()
    (failed,) = one.jobs.jobs()
    shutil.rmtree(one.root.models)
    (source / "config.json").write_bytes(config)
    with qtbot.waitSignal(one.client.loaded, timeout=60_000):
        one.session.load(str(source))
    assert [(job.id, job.phase) for job in one.jobs.jobs()] == [(failed.id, "done")]
    assert (one.root.models / "tiny" / "model.ftw").is_file()


def test_preparation_when_an_import_of_this_name_is_open_then_another_folder(qtbot, world):
    """Two conversions must not end in one folder; which of them is first is no matter."""
    one = world("--job-end", "hang")
    source = one.add_source()
    with qtbot.waitSignal(one.library.changed):
        one.library.refresh()
    taken = one.root.models / "tiny"
    one.jobs.start("convert", {"source": "/elsewhere/tiny", "target": str(taken)})
    one.session.load(str(source))
    targets = [job.spec["target"] for job in one.jobs.jobs()]
    assert targets == [str(taken), str(one.root.models / "tiny-2")]


def idle_after(one, minutes, minute_ms=20):
    one.settings.set(idle_unload_min=minutes)
    return IdleUnloader(one.client, one.settings, one.session, minute_ms)


def test_idle_when_nobody_needs_the_model_then_freed_said_and_loaded_again(qtbot, world):
    """Strip and tray say it; the next message brings it back."""
    one = world()
    folder = one.add_builtin()
    idle = idle_after(one, 1)
    with qtbot.waitSignal(one.client.unloaded, timeout=10_000):
        one.session.start()
    qtbot.waitUntil(lambda: one.session.state is m.EngineState.IDLE)
    assert one.session.state_detail == "Unloaded while idle"
    assert one.session.sentence == "tiny · Unloaded while idle"
    assert not idle.is_counting
    one.settings.set(idle_unload_min=0)
    with qtbot.waitSignal(one.client.loaded, timeout=10_000):
        one.session.wake()
    assert Path(one.client.model.path) == folder
    assert not idle.is_counting
    one.session.wake()
    assert one.client.open_ids == ()


def test_idle_when_a_reply_is_written_then_not_counted(qtbot, world):
    """The time begins when the reply ends."""
    one = world("--tokens", "4000", "--rate", "200")
    one.add_builtin()
    start(qtbot, one)
    idle = idle_after(one, 60)
    assert idle.is_counting
    with qtbot.waitSignal(one.client.started):
        reply = one.client.generate(HELLO, m.Sampling())
    assert not idle.is_counting
    with qtbot.waitSignal(one.client.finished):
        one.client.cancel(reply)
    assert idle.is_counting
    one.settings.set(idle_unload_min=0)
    assert not idle.is_counting


def test_unload_by_the_person_when_resting_then_nothing_comes_back(qtbot, world):
    """Only what idleness freed is loaded by a message."""
    one = world()
    one.add_builtin()
    start(qtbot, one)
    with qtbot.waitSignal(one.client.unloaded):
        one.session.rest()
    one.session.unload()
    one.session.wake()
    assert one.session.state_detail == ""
    assert one.client.open_ids == ()


def test_picker_when_another_model_is_chosen_then_switched_and_the_same_is_left_alone(qtbot, world):
    """One choice in the strip; a second click on the same costs nothing."""
    one = world()
    one.add_builtin()
    other = write_ftw(one.root.models / "other")
    start(qtbot, one)
    with qtbot.waitSignal(one.client.loaded, timeout=10_000):
        one.session.load(str(other))
    assert one.session.model_name == "other"
    one.session.load(str(other))
    assert one.client.open_ids == ()
