"""Through the service: a context that grows is told like any resize, and changes no id."""

from dataclasses import replace

import msgspec
import pytest

from engine.memory.budget import Division
from engine.memory.pressure import Pressure, PressureRules
from engine.protocol.errors import BudgetError
from engine.protocol.messages import (
    Budget,
    CacheMap,
    ChatMessage,
    Error,
    Finished,
    Generate,
    GetStatus,
    Load,
    Loaded,
    Part,
    Resize,
    ResizeApplied,
    ResizeRefused,
    Sampling,
    Started,
    Status,
    TokenDelta,
)
from engine.protocol.places import DataRoot
from engine.scheduler.request import Request
from engine.scheduler.tally import Timing
from engine.service.replies import Replies
from engine.service.session import Session
from engine.settings import EngineSettings
from kernels.device.fake import FakeDevice
from tests.engine.scheduler.doubles import reply_of
from tests.engine.service.doubles import (
    BUDGET,
    _model,
    ends,
    generate,
    new_gate,
    service_thread,
)
from tests.engine.service.real import real_service, small_model

LONG = "x" * 600


def pools(status):
    device = status.devices[0]
    assert sum(pool.used_bytes for pool in device.pools) == device.total_bytes
    return {pool.name: pool for pool in device.pools}


def shrink(client, **fields):
    """Take all of the context but 256 tokens; the rest stays free."""
    client.send(Resize(id="small", kv_tokens=256, **fields))
    client.wait(ResizeApplied, id="small")
    return pools(client.wait(Status))


def test_long_prompt_then_the_context_grows_and_everybody_is_told_once(tmp_path):
    """The same events as of a resize that was asked for, with the slots that it cost."""
    with service_thread(tmp_path) as (client, gate, _):
        client.load()
        before = shrink(client)
        assert before["kv"].grows_to_units == 1024
        client.send(generate("a", LONG, max_tokens=40))
        grown = client.wait(ResizeApplied)
        assert (grown.id, grown.kv_tokens, grown.expert_slots) == ("", 1024, 16)
        assert (grown.taken_slots, grown.evicted) == (16, 16)
        assert (grown.kv_bytes, grown.expert_bytes) == (1024 * 20, 16_000)
        client.wait(CacheMap)
        after = pools(client.wait(Status))
        assert (after["kv"].units, after["experts"].units) == (1024, 16)
        assert after["free"].used_bytes >= before["free"].used_bytes  # what may be another's
        client.wait(Finished, id="a")
        text = "".join(event.text for event in client.all(TokenDelta, id="a"))
        ids = reply_of([ord(c) for c in LONG], 40, 1)
        assert text == "".join(f"{n} " for n in ids) + "|"
        assert len(client.all(ResizeApplied)) == 2
        assert not client.all(ResizeRefused)
        client.send(generate("next", LONG, max_tokens=5))
        client.wait(Finished, id="next")
        assert len(client.all(ResizeApplied)) == 2  # it is kept for the next turn
        assert len(gate.model.kv.pages) == 64


def test_long_prompt_when_the_device_refuses_then_its_error_names_both_numbers(tmp_path):
    """Nothing is lost, nobody is told of a resize, and short replies go on."""
    with service_thread(tmp_path) as (client, gate, _):
        client.load()
        shrink(client)
        gate.model.kv.refuse = True
        client.send(generate("a", LONG))
        error = client.wait(Error, id="a")
        assert error.code.value == "budget"
        assert "600 tokens" in error.message
        assert "256" in error.message
        client.send(generate("b"))
        client.wait(Finished, id="b")
        client.send(GetStatus(id="s"))
        now = pools(client.wait(Status, id="s"))
        assert (now["kv"].units, now["experts"].units) == (256, 32)
        assert ends(client) == {"a": "error", "b": "length"}
        assert len(client.all(ResizeApplied)) == 1


@pytest.mark.parametrize(("is_loan", "grows"), [(True, False), (False, True)])
def test_company_after_a_resize_then_halves_a_choice_but_not_what_a_yield_left(
    tmp_path, is_loan, grows
):
    """Case M-14: of 64 experts 30 are left; two chats may cost a person's 30, not a game's."""
    gate = new_gate(step=False)
    with service_thread(tmp_path, gate) as (client, gate, _):
        client.load()
        client.send(Resize(id="all", kv_tokens=256, expert_slots=64))
        client.send(Resize(id="fewer", expert_slots=30, loan=is_loan))
        client.send(generate("a", "x" * 150, max_tokens=50))
        client.wait(Started, id="a")
        client.send(generate("b", "y" * 150, max_tokens=50))
        gate.step.set()
        for name in "ab":
            client.wait(Finished, id=name)
        grown = [event for event in client.all(ResizeApplied) if event.taken_slots]
        assert len(grown) == grows
        assert ends(client) == {"a": "length", "b": "length"}


def test_pressure_that_ends_after_a_growth_then_the_slots_are_not_grown_back():
    """Their memory is the context's now; the watch of free memory must not ask for it again."""
    model = _model(new_gate(), BUDGET, 0)
    card = msgspec.structs.replace(model.device, name="cuda:0", emulated=False)
    model = replace(model, device=card, free_bytes=lambda: 10**12)
    told, heard = [], []
    replies = Replies(heard.append)
    session = Session(model, EngineSettings(home=DataRoot(".")), replies, heard.append, told.append)
    session._pressure = Pressure(PressureRules(0, 0, calm_s=0.0, interval_s=0.0))
    assert isinstance(session.resize(Resize(id="r", kv_tokens=256), 0.0), ResizeApplied)
    replies.open("a", model.chat.reply())
    prompt, sampling = tuple(range(600)), Sampling(max_tokens=3)
    session.scheduler.submit(Request("a", prompt, sampling, 0, Timing(submitted_s=0.0)))
    while session.step():
        session.watch_pressure()
    for _ in range(5):
        session.watch_pressure()
        session.step()
    assert [event.taken_slots for event in told] == [16]
    assert session.division.expert_slots == 16


def test_growth_that_can_neither_be_made_nor_undone_then_the_sizes_left_are_told(monkeypatch):
    """Another program took what the experts had given: the window must show what there is."""
    model, told = _model(new_gate(), BUDGET, 0), []
    replies = Replies([].append)
    session = Session(model, EngineSettings(home=DataRoot(".")), replies, [].append, told.append)
    before = session.division

    def half_done(kv, experts, wanted):
        experts.resize(wanted.expert_slots)
        raise BudgetError("No room.")

    monkeypatch.setattr("engine.service.session.apply_division", half_done)
    wanted = Division(before.kv_tokens + 16, before.expert_slots - 1)
    with pytest.raises(BudgetError):
        session._grow_to(wanted)
    assert [(e.kv_tokens, e.expert_slots) for e in told] == [
        (before.kv_tokens, wanted.expert_slots)
    ]


# --- with a model -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return small_model(tmp_path_factory.mktemp("small"))


def service(home):
    """Every prompt is read as a whole."""
    return real_service(EngineSettings(home=home, threads=1, reuse=False))


def ask(client, name, text, max_tokens):
    messages = (ChatMessage(role="user", parts=(Part(text=text),)),)
    sampling = Sampling(temperature=0.9, seed=7, max_tokens=max_tokens, ignore_eos=True)
    client.send(Generate(id=name, messages=messages, sampling=sampling))
    end = client.wait(Finished, id=name)
    said = "".join(one.text for one in client.all(TokenDelta, id=name))
    return said, end.usage.prompt_tokens, end.usage.reply_tokens


def load(client, model, device, kv_tokens, slots):
    budget = Budget(kv_tokens=kv_tokens, expert_slots=slots)
    client.send(Load(id="l", model=model, budget=budget, devices=(device,)))
    client.wait(Loaded)
    return pools(client.wait(Status))


def growths(client):
    return [event for event in client.all(ResizeApplied) if event.taken_slots]


@pytest.mark.parametrize("device", ["cpu", "fake"])
def test_ids_with_a_context_that_grew_then_those_of_a_large_one(
    tmp_path, folder, device, monkeypatch
):
    """Residency changes no bit: in place, and where the region moves to other addresses."""
    if device == "fake":
        monkeypatch.setattr(
            "engine.loader.open.open_device", lambda name, budget: FakeDevice(budget or 256 << 20)
        )
    said = {}
    with service(DataRoot(tmp_path)) as client:
        for kv_tokens in (512, 256):
            before = load(client, str(folder), device, kv_tokens, 8)
            said[kv_tokens] = (
                ask(client, f"prompt {kv_tokens}", "a long story " * 25, 100),  # prompt too long
                ask(client, f"reply {kv_tokens}", "tell me", 400),  # grows while it is written
            )
        assert not client.all(Error)
        assert len(growths(client)) == 1
        client.send(GetStatus(id="s"))
        after = pools(client.wait(Status, id="s"))
    assert said[256] == said[512]
    assert [prompt > 256 for _, prompt, _ in said[256]] == [True, False]
    assert after["kv"].units == 512
    assert after["experts"].units < 8
    assert after["free"].used_bytes >= before["free"].used_bytes


def test_reply_that_outgrows_the_context_then_ids_of_a_large_one(tmp_path, folder):
    """The growth lies between two steps of decode, and no page is lost."""
    said = {}
    with service(DataRoot(tmp_path)) as client:
        for kv_tokens in (512, 256):
            load(client, str(folder), "cpu", kv_tokens, 8)
            said[kv_tokens] = ask(client, f"{kv_tokens}", "tell me", 400)
        assert [event.kv_tokens for event in growths(client)] == [512]
    assert said[256] == said[512]
    assert said[256][2] == 400


@pytest.mark.weights
def test_builtin_model_with_a_context_that_grew_then_the_same_text(converted_home):
    """The model that ships: 256 tokens at the load, and a prompt of more than a thousand."""
    said = {}
    with service(converted_home) as client:
        for kv_tokens in (2048, 256):
            load(client, "builtin", "cpu", kv_tokens, 96)
            said[kv_tokens] = ask(client, f"{kv_tokens}", "The fox ran into the forest. " * 150, 60)
        (grown,) = growths(client)
    assert said[256] == said[2048]
    assert said[256][1] > 1000
    assert said[256][1] + 60 <= grown.kv_tokens <= 2048
    assert grown.expert_slots == 96 - grown.taken_slots
