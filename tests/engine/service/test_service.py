"""The engine's face with a fake model: order, cancels, resizes, ends, statistics."""

import random

import pytest

from engine.protocol.errors import BudgetError, DeviceError, InternalError, ProtocolError
from engine.protocol.messages import (
    CacheMap,
    Cancel,
    CountTokens,
    EngineState,
    Error,
    Finished,
    GetStatus,
    Hello,
    Loaded,
    MissPolicy,
    Notice,
    Progress,
    Ready,
    Resize,
    ResizeApplied,
    ResizePending,
    ResizePreview,
    ResizeRefused,
    SetPolicy,
    Shutdown,
    Started,
    StateChanged,
    Stats,
    Status,
    TokenCount,
    TokenDelta,
    Unload,
    Unloaded,
)
from engine.protocol.messages import Load as LoadCommand
from tests.engine.scheduler.doubles import reply_of
from tests.engine.service.doubles import (
    BUDGET,
    ends,
    errors,
    generate,
    new_gate,
    service_thread,
)


def _text(client, name):
    return "".join(event.text for event in client.all(TokenDelta, id=name))


def _expected(text, count, seed=1):
    return "".join(f"{n} " for n in reply_of([ord(c) for c in text], count, seed)) + "|"


def test_conversation_from_hello_to_unload_says_everything_in_order(tmp_path):
    """The life of a session."""
    with service_thread(tmp_path) as (client, gate, _):
        client.send(Hello())
        assert client.wait(Ready).engine_version
        info = client.load().model
        assert info.name == "fake"
        client.send(generate("a"))
        end = client.wait(Finished)
        assert (end.usage.prompt_tokens, end.usage.reply_tokens) == (5, 5)
        assert end.trace.hit_share == pytest.approx(0.75)
        client.send(Unload(id="u"))
        client.wait(Unloaded, id="u")
        client.wait(Status)
        states = [event.state.value for event in client.all(StateChanged)]
        assert states == ["loading", "ready", "generating", "ready", "idle"]
        assert client.all(Notice)[0].code == "profile_stale"
        assert [event.done_bytes for event in client.all(Progress)] == [1, 2]
        assert client.all(Started) == [Started(id="a", prompt_tokens=5)]
        assert _text(client, "a") == _expected("hello", 5)
        assert gate.closed == 1


def test_delta_accounts_for_every_visible_token(tmp_path):
    """The window counts tokens by deltas."""
    with service_thread(tmp_path) as (client, _, _):
        client.load()
        client.send(generate("a", max_tokens=9))
        client.wait(Finished)
        assert sum(d.num_tokens for d in client.all(TokenDelta)[:-1]) == 9


def test_generate_without_a_model_fails_with_one_error_and_one_end(tmp_path):
    """And so does a template's refusal, a bad value, a bug."""
    with service_thread(tmp_path) as (client, _, _):
        client.send(generate("none"))
        client.wait(Finished, id="none")
        client.load()
        client.send(generate("template", "refuse"))
        client.send(generate("bug", "explode"))
        client.send(generate("value", temperature=9.0))
        client.send(generate("long", "x" * 2000))
        client.send(generate("good"))
        client.wait(Finished, id="good")
        assert ends(client) == {
            **dict.fromkeys(("none", "template", "bug", "value", "long"), "error"),
            "good": "length",
        }
        assert errors(client) == {
            **dict.fromkeys(("none", "template", "value", "long"), "invalid_request"),
            "bug": "internal",
        }


def test_second_request_with_an_open_name_is_refused_and_the_first_goes_on(tmp_path):
    """Exactly one end per name."""
    with service_thread(tmp_path, new_gate(step=False)) as (client, gate, _):
        client.load()
        client.send(generate("a"))
        client.wait(Started)
        client.send(generate("a"))
        gate.step.set()
        client.wait(Error, id="a")
        client.wait(Finished, id="a")
        assert ends(client) == {"a": "length"}
        assert _text(client, "a") == _expected("hello", 5)


def test_commands_during_a_load_are_answered_or_wait_for_it(tmp_path):
    """Hello and status at once; a reply after the load; a cancelled one never (case G-10)."""
    with service_thread(tmp_path, new_gate(load=False)) as (client, gate, _):
        client.send(LoadCommand(id="load", model="m"))
        assert gate.entered.wait(20)
        client.send(generate("later"))
        client.send(generate("never"))
        client.send(Hello())
        client.wait(Ready)
        client.send(GetStatus(id="s"))
        assert client.wait(Status, id="s").state is EngineState.LOADING
        client.send(Cancel(id="never"))
        assert client.wait(Finished).id == "never"
        assert not client.all(Loaded)
        gate.load.set()
        client.wait(Finished, id="later")
        assert ends(client) == {"never": "cancelled", "later": "length"}


def test_cancel_of_a_load_stops_it_and_the_engine_stays(tmp_path):
    """Cancelled is no failure; the next load works."""
    with service_thread(tmp_path, new_gate(load=False)) as (client, gate, _):
        client.send(LoadCommand(id="load", model="m"))
        assert gate.entered.wait(20)
        client.send(Cancel(id="load"))
        assert client.wait(Error, id="load").code.value == "cancelled"
        gate.load.set()
        client.send(LoadCommand(id="again", model="m"))
        client.wait(Loaded, id="again")


@pytest.mark.parametrize("phase", ["prefill", "decode"])
def test_cancel_of_a_long_reply_ends_it_at_the_step_and_the_next_begins(tmp_path, phase):
    """Case A-01: who asks no more costs one step at most; nothing of it runs on or is kept."""
    gate = new_gate(step=False)
    gate.held = (phase,)
    with service_thread(tmp_path, gate) as (client, gate, _):
        client.load()
        client.send(generate("left", "x" * 200, max_tokens=4000))
        client.wait(Started, id="left")
        if phase == "decode":
            client.wait(TokenDelta, id="left")
        client.send(Cancel(id="left"))
        client.send(generate("next"))
        ran = len(gate.model.runner.launches)
        gate.step.set()
        assert client.wait(Finished).id == "left"
        assert client.wait(Finished).id == "next"
        assert ends(client) == {"left": "cancelled", "next": "length"}
        rows = [[work.row for work in works] for _, works in gate.model.runner.launches[ran:]]
        assert len(rows) <= 1 + 5  # the step under way, then the prompt and four steps of `next`
        client.send(GetStatus(id="s"))
        assert client.wait(Status, id="s").state is EngineState.READY
        assert gate.model.pages.used == 0
        assert gate.model.runner.rows == {}


def test_load_that_fails_leaves_an_idle_engine(tmp_path):
    """BudgetError with its figures; a bug in a loader becomes internal."""
    gate = new_gate()
    gate.load_problem = BudgetError("Needs 9 GiB.", "Free some.")
    with service_thread(tmp_path, gate) as (client, _, _):
        client.send(LoadCommand(id="load", model="m"))
        error = client.wait(Error)
        assert (error.id, error.code.value, error.hint) == ("load", "budget", "Free some.")
        gate.load_problem = KeyError("x")
        client.send(LoadCommand(id="bug", model="m"))
        assert client.wait(Error, id="bug").code.value == "internal"
        gate.load_problem = DeviceError("not this one")
        client.send(LoadCommand(id="dev", model="m"))
        client.wait(Error, id="dev")
        gate.load_problem = None
        client.load()


@pytest.mark.parametrize("latency", [0, 1])
def test_shutdown_during_a_reply_ends_everything_as_cancelled(tmp_path, latency):
    """Open, waiting and unread requests each get their end; then the memory is freed."""
    gate = new_gate(step=False)
    with service_thread(tmp_path, gate, latency=latency) as (client, gate, outcome):
        client.load()
        client.send(generate("a", max_tokens=500))
        client.wait(Started)
        client.send(generate("b"))
        client.send(Shutdown())
        gate.step.set()
        client.wait(StateChanged, state=EngineState.STOPPING)
    assert ends(client) == {"a": "cancelled", "b": "cancelled"}
    assert outcome == [None]
    assert gate.closed == 1


def test_end_of_commands_finishes_accepted_work_first(tmp_path):
    """`python -m engine < requests.jsonl` is a whole conversation."""
    with service_thread(tmp_path, new_gate(load=False)) as (client, gate, outcome):
        client.send(LoadCommand(id="load", model="m"))
        client.send(generate("a"))
        client.send(generate("b", "other"))
        client.service.end_of_commands()
        gate.load.set()
        client.wait(StateChanged, state=EngineState.STOPPING)
    assert ends(client) == {"a": "length", "b": "length"}
    assert _text(client, "b") == _expected("other", 5)
    assert outcome == [None]


def test_end_of_commands_when_time_is_over_ends_what_is_open(tmp_path):
    """Draining is bounded."""
    gate = new_gate(step=False)
    with service_thread(tmp_path, gate, drain_s=0.0) as (client, gate, outcome):
        client.load()
        client.send(generate("a", max_tokens=500))
        client.wait(Started)
        client.service.end_of_commands()
        gate.step.set()
        client.wait(StateChanged, state=EngineState.STOPPING)
    assert ends(client) == {"a": "cancelled"}
    assert outcome == [None]


def test_fail_stops_the_loop_with_the_problem(tmp_path):
    """A version mismatch ends the session."""
    with service_thread(tmp_path) as (client, _, outcome):
        client.service.fail(ProtocolError("7 is not 1"))
        client.wait(StateChanged, state=EngineState.STOPPING)
    assert isinstance(outcome[0], ProtocolError)


def test_lost_device_ends_requests_and_the_engine_without_freeing(tmp_path):
    """Case E-05: no restart loop here, no hanging free."""
    with service_thread(tmp_path, new_gate(step=False)) as (client, gate, outcome):
        client.load()
        gate.model.runner.faults.append(ConnectionError("lost"))
        client.send(generate("a"))
        client.wait(Started)
        client.send(generate("b"))
        gate.model.runner.launch = _raiser(ConnectionError("lost"))
        gate.step.set()
        client.wait(Finished, id="a")
        client.wait(StateChanged, state=EngineState.STOPPING)
    assert set(ends(client).values()) == {"error"}
    assert isinstance(outcome[0], DeviceError)
    assert gate.closed == 0


def test_two_internal_errors_end_the_engine(tmp_path):
    """One costs a request, two the process."""
    with service_thread(tmp_path) as (client, gate, outcome):
        client.load()
        gate.model.runner.launch = _raiser(ValueError("boom"))
        client.send(generate("a"))
        client.wait(Finished, id="a")
        client.send(generate("b"))
        client.wait(StateChanged, state=EngineState.STOPPING)
    assert ends(client) == {"a": "error", "b": "error"}
    assert isinstance(outcome[0], InternalError)


def _raiser(problem):
    def launch(phase, works):
        raise problem

    return launch


def test_resize_preview_pending_applied_and_status(tmp_path):
    """Both pools at once, while a reply streams, with identical tokens."""
    with service_thread(tmp_path, new_gate(step=False)) as (client, gate, _):
        client.load()
        client.send(generate("a", max_tokens=60))
        client.wait(Started)
        client.send(Resize(id="p", kv_tokens=512, expert_slots=40, preview=True))
        client.send(Resize(id="r", kv_tokens=500, expert_slots=40))
        pending = client.wait(ResizePending)
        assert (pending.id, pending.waiting_for) == ("r", "the running step")
        gate.step.set()
        preview = client.wait(ResizePreview)
        assert (preview.kv_bytes, preview.expert_bytes, preview.fits) == (10_240, 40_000, True)
        assert preview.free_bytes == 100_000 - 15_000 - 10_240 - 40_000
        applied = client.wait(ResizeApplied)
        assert (applied.kv_tokens, applied.expert_slots, applied.evicted) == (512, 40, 0)
        status = client.wait(Status)
        _assert_sums(status)
        pools = {pool.name: pool for pool in status.devices[0].pools}
        assert (pools["kv"].units, pools["experts"].units) == (512, 40)
        client.wait(Finished)
        assert _text(client, "a") == _expected("hello", 60)
        assert len(gate.model.kv.pages) == 32


def _assert_sums(status):
    device = status.devices[0]
    assert sum(pool.used_bytes for pool in device.pools) == device.total_bytes


def test_resize_bounds_of_the_status_are_accepted_exactly(tmp_path):
    """The window never invents a bound, and none offered is refused (case E-04)."""
    with service_thread(tmp_path) as (client, _, _):
        client.load()
        client.send(GetStatus(id="s"))
        pools = {p.name: p for p in client.wait(Status, id="s").devices[0].pools}
        kv, experts = pools["kv"], pools["experts"]
        for number, (tokens, slots, kind) in enumerate(
            [
                (kv.max_units, experts.min_units, ResizeApplied),
                (kv.max_units, experts.min_units + 1, None),
                (kv.min_units, experts.max_units, ResizeApplied),
                (kv.min_units, experts.max_units + 1, ResizeRefused),
                (kv.min_units - 16, experts.min_units, ResizeRefused),
            ]
        ):
            client.send(Resize(id=str(number), kv_tokens=tokens, expert_slots=slots))
            if kind is not None:
                client.wait(kind, id=str(number))


def test_resize_below_a_chats_use_is_refused_with_its_tokens(tmp_path):
    """And the reply goes on with the old sizes."""
    gate = new_gate(step=False)
    gate.held = ("decode",)
    with service_thread(tmp_path, gate) as (client, gate, _):
        client.load()
        client.send(generate("a", "y" * 700, max_tokens=50))
        client.wait(TokenDelta)
        client.send(Resize(id="r", kv_tokens=256))
        gate.step.set()
        refused = client.wait(ResizeRefused)
        assert "this chat already uses 7" in refused.reason
        assert refused.kv_tokens >= 704
        client.wait(Finished)
        assert _text(client, "a") == _expected("y" * 700, 50)


def test_resize_that_the_device_refuses_changes_nothing(tmp_path):
    """Case M-01: serving goes on with the old sizes."""
    with service_thread(tmp_path) as (client, gate, _):
        client.load()
        gate.model.experts.refuse = True
        client.send(Resize(id="r", kv_tokens=512, expert_slots=40))
        refused = client.wait(ResizeRefused)
        assert "no more" in refused.reason
        assert (refused.kv_tokens, refused.expert_slots) == (1024, 32)
        client.send(generate("a"))
        client.wait(Finished)
        assert _text(client, "a") == _expected("hello", 5)


def test_out_of_memory_in_a_step_shrinks_the_cache_and_says_so(tmp_path):
    """The reply goes on."""
    with service_thread(tmp_path) as (client, gate, _):
        client.load()
        gate.model.runner.faults.append(MemoryError("full"))
        client.send(generate("a"))
        notice = client.wait(Notice, code="cache_shrunk")
        assert "32 to 24" in notice.message
        client.wait(Finished)
        assert _text(client, "a") == _expected("hello", 5)


def test_policy_and_token_count(tmp_path):
    """Small commands, with and without a model."""
    with service_thread(tmp_path) as (client, gate, _):
        messages = generate("x", "four").messages
        client.send(CountTokens(id="early", messages=messages))
        client.wait(Error, id="early")
        client.send(SetPolicy(id="early2", policy=MissPolicy.CPU_ONLY))
        client.wait(Error, id="early2")
        client.send(Resize(id="early3", kv_tokens=512))
        client.wait(Error, id="early3")
        client.load()
        client.send(CountTokens(id="c", messages=messages))
        assert client.wait(TokenCount, id="c").num_tokens == 4
        client.send(SetPolicy(id="p", policy=MissPolicy.CPU_ONLY))
        assert client.wait(Status, id="p").policy is MissPolicy.CPU_ONLY
        assert gate.model.experts.policies == [MissPolicy.CPU_ONLY]


def test_statistics_come_while_a_model_is_loaded(tmp_path):
    """Idle too, and the map after each change."""
    with service_thread(tmp_path, stats_s=0.001) as (client, _, _):
        client.load()
        client.wait(CacheMap)
        idle = client.wait(Stats)
        assert (idle.running, idle.context_capacity_tokens) == (0, 1024)
        client.send(generate("a", max_tokens=40))
        client.wait(Finished)
        client.wait(CacheMap)
        client.send(GetStatus(id="s"))
        status = client.wait(Status, id="s")
        _assert_sums(status)
        busy = {p.name: p.busy_units for p in status.devices[0].pools}
        assert (busy["experts"], busy["kv"]) == (32, 0)
        assert client.wait(Stats).total_tokens == 40


def test_idle_engine_warms_the_cache_up_without_a_pause(tmp_path):
    """After a load and after a reply, piece after piece; the last map shows the end."""
    with service_thread(tmp_path, stats_s=600.0) as (client, gate, _):
        client.load()
        client.wait(CacheMap)  # that of the load
        for already in (0, 40):
            gate.model.experts.cold = 40
            client.send(generate(f"r{already}"))
            client.wait(Finished, id=f"r{already}")
            while gate.model.experts.warmed < already + 40:
                client.wait(CacheMap)


def test_warm_up_shows_in_the_sums_apart_from_fills(tmp_path):
    """Bytes that served no route."""
    with service_thread(tmp_path, stats_s=0.01) as (client, gate, _):
        client.load()
        assert client.wait(Stats).warm_up_bytes == 0
        gate.model.experts.cold = 7
        assert client.wait(Stats, warm_up_bytes=7000).fill_gbps == 0.0


def test_warm_up_waits_while_a_request_is_open(tmp_path):
    """No piece goes between the steps of a reply, and none in front of what waits."""
    with service_thread(tmp_path, gate=new_gate(step=False)) as (client, gate, _):
        client.load()
        client.send(generate("a"))
        client.wait(Started, id="a")
        experts = gate.model.experts
        busy = []

        def warm_up():
            busy.append(client.service._session.scheduler.has_work)
            return False

        experts.warm_up = warm_up
        gate.step.set()
        client.wait(Finished, id="a")
        client.send(Unload(id="u"))
        client.wait(Unloaded)
        assert busy
        assert not any(busy)


def test_lost_device_in_an_idle_moment_ends_the_engine_with_its_sentence(tmp_path):
    """M-18: a card that went to sleep is noticed, not met by the next reply."""
    with service_thread(tmp_path) as (client, gate, outcome):
        client.load()

        def warm_up():
            raise DeviceError("The card is gone.")

        gate.model.experts.warm_up = warm_up
        client.send(CountTokens(id="wake", messages=generate("m").messages))
        client.wait(StateChanged, state=EngineState.STOPPING)
    assert isinstance(outcome[0], DeviceError)
    assert "gone" in str(outcome[0])


def test_stop_string_ends_with_stop(tmp_path):
    """What the reader of a reply sees as the end is the end."""
    first = reply_of([ord(c) for c in "hello"], 3, 1)[2]
    with service_thread(tmp_path) as (client, _, _):
        client.load()
        client.send(generate("a", stop=(str(first),)))
        assert client.wait(Finished).reason.value == "stop"
        assert client.all(Finished)[0].usage.reply_tokens == 3


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("latency", [0, 1])
def test_every_request_ends_exactly_once_under_random_commands(tmp_path, seed, latency):
    """From a client's side: cancels, resizes, unloads, at any moment."""
    chance = random.Random(seed)
    with service_thread(tmp_path, latency=latency) as (client, _, _):
        client.load()
        names = [f"r{n}" for n in range(40)]
        for name in names:
            client.send(generate(name, "x" * chance.randint(1, 300), max_tokens=30))
            roll = chance.random()
            if roll < 0.4:
                client.send(Cancel(id=chance.choice(names)))
            elif roll < 0.7:
                client.send(Resize(id="z", kv_tokens=chance.randint(100, 1024)))
            elif roll < 0.75:
                client.send(Unload(id="u"))
                client.send(LoadCommand(id="l", model="m"))
        client.service.end_of_commands()
        client.wait(StateChanged, state=EngineState.STOPPING)
    assert set(ends(client)) == set(names)
    assert BUDGET.total_bytes == 100_000
