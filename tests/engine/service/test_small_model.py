"""The service with a real model of a few hundred KB: least memory, and many turns."""

import psutil
import pytest

from engine.protocol.messages import (
    Budget,
    ChatMessage,
    Error,
    Finished,
    Generate,
    GetStatus,
    Load,
    Loaded,
    MissPolicy,
    Part,
    Sampling,
    Status,
    TokenDelta,
)
from engine.protocol.places import DataRoot
from engine.settings import EngineSettings
from tests.engine.service.real import real_service, small_model

TURNS = 100
MIB = 1 << 20


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return small_model(tmp_path_factory.mktemp("small"))


def service(tmp_path):
    return real_service(EngineSettings(home=DataRoot(tmp_path), threads=1))


def ask(client, name, *turns):
    """Send the conversation; return its end and the text."""
    roles = ("user", "assistant")
    messages = tuple(
        ChatMessage(role=roles[i % 2], parts=(Part(text=text),)) for i, text in enumerate(turns)
    )
    sampling = Sampling(temperature=0.0, max_tokens=4, ignore_eos=True)
    client.send(Generate(id=name, messages=messages, sampling=sampling))
    end = client.wait(Finished, id=name)
    return end, "".join(one.text for one in client.all(TokenDelta, id=name))


def load(client, folder, **fields):
    client.send(Load(id="l", model=str(folder), **fields))
    return client.wait(Loaded)


def test_replies_when_the_device_has_the_least_there_can_be_then_the_same(tmp_path, folder):
    """Case E-11: the slider at its minimum, and nothing computed on the device; two prompts."""
    with service(tmp_path) as client:
        load(client, folder)
        wanted = [ask(client, name, name * 20) for name in "ab"]
        least = Budget(expert_slots=2, kv_tokens=256)
        load(client, folder, budget=least, policy=MissPolicy.CPU_ONLY)
        got = [ask(client, f"{name} again", name * 20) for name in "ab"]
        assert [text for _, text in got] == [text for _, text in wanted]
        end = ask(client, "c", "again")[0]
        assert end.trace.cpu_share == pytest.approx(1.0)
        assert not client.all(Error)


def test_memory_when_a_chat_grows_to_its_limit_then_it_was_all_planned_for(tmp_path, folder):
    """Cases M-10 and M-23: a hundred turns up to the last token; device and host level off."""
    process, resident, taken = psutil.Process(), [], set()
    with service(tmp_path) as client:
        load(client, folder, budget=Budget(kv_tokens=512))
        turns, longest = ["x"], 0
        for number in range(TURNS):
            end, text = ask(client, f"turn-{number}", *turns)
            assert end.reason.value in ("length", "stop")
            longest = max(longest, end.usage.prompt_tokens + end.usage.reply_tokens)
            turns = [*turns, text, "x"] if longest < 490 else ["x" * (number % 300 + 1)]
            resident.append(process.memory_info().rss)
            client.send(GetStatus(id=f"status-{number}"))
            status = client.wait(Status, id=f"status-{number}")
            pools = {pool.name: pool.used_bytes for pool in status.devices[0].pools}
            taken.add(tuple(sorted(pools.items())))
            assert not client.all(Error)
            client.heard.clear()
        assert longest >= 490
        assert len(taken) == 1, "a pool grew while it served"
    half = TURNS // 2
    assert max(resident[half:]) <= max(resident[:half]) + 8 * MIB
