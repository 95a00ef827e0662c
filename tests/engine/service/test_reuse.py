"""Through the service: a second turn reuses the first one, and only where that is right."""

from contextlib import contextmanager

import pytest

from engine.models.registry import FAMILIES, STATE_IN_PAGES
from engine.protocol.messages import (
    ChatMessage,
    Finished,
    Generate,
    GetStatus,
    Load,
    Loaded,
    Part,
    Resize,
    ResizeApplied,
    ResizePreview,
    Sampling,
    Status,
    TokenDelta,
    Unload,
    Unloaded,
)
from engine.settings import EngineSettings
from tests.engine.service.doubles import generate, new_gate, service_thread
from tests.engine.service.real import real_service

TEXT = "a conversation of more than two pages " * 3
QUESTIONS = ("Tell me a story about a fox and a bear who live in a forest.", "And then?", "Why?")


def family_gate(model_type="qwen3_moe"):
    gate = new_gate()
    gate.model_type = model_type
    return gate


def say(client, name, text=TEXT):
    client.send(generate(name, text))
    return client.wait(Finished, id=name).usage.reused_tokens


def test_second_turn_reports_what_it_reused_until_the_model_goes(tmp_path):
    """Another load begins with nothing."""
    with service_thread(tmp_path, family_gate()) as (client, _, _):
        for _ in range(2):
            client.load()
            assert [say(client, name) for name in ("1", "2")] == [0, 112]  # of 114
            client.send(Unload(id="u"))
            client.wait(Unloaded, id="u")


@pytest.mark.parametrize("latency", [0, 1])
def test_model_whose_state_is_not_all_in_pages_reuses_nothing(tmp_path, latency):
    """A family must be named before its pages are trusted."""
    assert set(FAMILIES) >= STATE_IN_PAGES
    with service_thread(tmp_path, family_gate("recurrent"), latency=latency) as (client, _, _):
        client.load()
        assert [say(client, name) for name in ("1", "2")] == [0, 0]


def test_reuse_when_switched_off_then_nothing_is_kept(tmp_path):
    """For benches and tests of equal bits."""
    with service_thread(tmp_path, family_gate(), reuse=False) as (client, gate, _):
        client.load()
        assert [say(client, name) for name in ("1", "2")] == [0, 0]
        assert gate.model.pages.used == 0


def test_kept_pages_are_free_in_the_status_and_give_way_to_a_resize(tmp_path):
    """The window shows no context in use while nothing runs, and its bounds do not shrink."""
    with service_thread(tmp_path, family_gate()) as (client, gate, _):
        client.load()
        client.send(GetStatus(id="before"))
        before = client.wait(Status, id="before").devices[0].pools
        for name in "abc":
            say(client, name, name * 300)
        client.send(GetStatus(id="after"))
        assert client.wait(Status, id="after").devices[0].pools == before
        assert gate.model.pages.used == 57
        client.send(Resize(id="p", kv_tokens=256, preview=True))
        assert client.wait(ResizePreview, id="p").fits
        client.send(Resize(id="r", kv_tokens=256))
        assert client.wait(ResizeApplied, id="r").kv_tokens == 256
        assert gate.model.pages.used == 16
        assert say(client, "again", "c" * 200) == 192


@contextmanager
def builtin(home, reuse):
    """The built-in model in a service on its thread."""
    with real_service(EngineSettings(home=home, threads=1, reuse=reuse)) as client:
        client.send(Load(id="l", model="builtin"))
        client.wait(Loaded)
        yield client


def converse(client):
    """Ask one question after the other; return texts and usages."""
    messages, texts, usages = (), [], []
    for number, question in enumerate(QUESTIONS):
        messages += (ChatMessage(role="user", parts=(Part(text=question),)),)
        sampling = Sampling(temperature=0.0, max_tokens=40)
        client.send(Generate(id=f"{number}", messages=messages, sampling=sampling))
        usages.append(client.wait(Finished, id=f"{number}").usage)
        texts.append("".join(one.text for one in client.all(TokenDelta, id=f"{number}")))
        messages += (ChatMessage(role="assistant", parts=(Part(text=texts[-1]),)),)
    return texts, usages


@pytest.mark.weights
def test_conversation_with_the_builtin_model_is_the_same_and_reuses_its_past(converted_home):
    """Case E-02, end to end: greedy replies of three turns beside those of a full prefill."""
    said = {}
    for reuse in (True, False):
        with builtin(converted_home, reuse) as client:
            said[reuse], usages = converse(client)
            reused = [usage.reused_tokens for usage in usages]
            prompts = [usage.prompt_tokens for usage in usages]
        if not reuse:
            assert reused == [0, 0, 0]
            continue
        assert reused[0] == 0
        for turn in (1, 2):  # all but the unfinished page and the new question
            assert prompts[turn - 1] <= reused[turn] < prompts[turn]
    assert said[True] == said[False]
