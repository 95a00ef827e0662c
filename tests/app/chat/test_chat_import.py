"""Chats from files: our own export comes back whole, those of others as far as they go."""

from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.services.chat_export import as_json
from app.services.chat_import import Found, NotFound, chat_from_json, read_chat_file
from app.services.chat_records import MessageState
from engine.protocol.messages import Part, Sampling
from tests.app.chat.fakes import FakeClient, make_vm

FILE = Path("chat.json")


@pytest.fixture
def vm(tmp_path, qapp):
    made = make_vm(tmp_path / "chats", FakeClient())
    yield made
    made.close()
    made.test_store.close()


def answer(vm, text, thought=""):
    if thought:
        vm.test_client.say(thought, kind="reasoning")
    vm.test_client.say(text)
    vm.test_client.finish()


def bring(vm, qtbot, *paths):
    vm.files.import_chats(paths)
    qtbot.waitUntil(lambda: not vm.files.is_reading, timeout=5000)


def turns(found):
    assert isinstance(found, Found), found
    by_id = {message.id: message for message in found.messages}
    return [(by_id[n].role, by_id[n].text) for n in found.shown]


def test_own_export_then_every_branch_comes_back(vm, tmp_path, qtbot):
    """Versions, reasoning, files, figures, settings: exported again it is the same file."""
    vm.set_system_prompt("Be brief.")
    vm.set_sampling(Sampling(temperature=0.3))
    vm.set_reasoning("high")
    vm.talk.attach(vm.talk.chat.id, (Part(name="a.txt", text="data"),))
    vm.send("What is it?")
    answer(vm, "First.", "a thought")
    vm.talk.retry_last()
    answer(vm, "Second.")
    vm.send("More")
    answer(vm, "Third.")
    vm.talk.switch(vm.talk.messages[1].id, -1)
    vm.send("Other way")
    answer(vm, "Fourth.")
    first = vm.talk.chat.id
    path = tmp_path / "out.json"
    vm.files.export_chat(first, path, "json")
    bring(vm, qtbot, path)
    chat = vm.talk.chat
    assert chat.id != first
    assert (chat.title, chat.system_prompt, chat.reasoning) == ("What is it?", "Be brief.", "high")
    assert chat.sampling == Sampling(temperature=0.3)
    store = vm.test_store
    assert [m.text for m in vm.talk.messages] == [m.text for m in store.path_of(first)]
    vm.talk.switch(vm.talk.messages[1].id, 1)
    assert [m.text for m in vm.talk.messages] == ["What is it?", "Second.", "More", "Third."]
    vm.talk.switch(vm.talk.messages[1].id, -1)

    def shape(chat_id):
        raw = msgspec.json.decode(
            as_json(store.chat(chat_id), store.path_of(chat_id), store.all_messages(chat_id))
        )
        numbers = {m["id"]: place for place, m in enumerate(raw["messages"])}
        for m in raw["messages"]:
            m["id"], m["parent"] = numbers[m["id"]], numbers.get(m["parent"])
        return raw

    assert shape(chat.id) == shape(first)
    assert {hit.chat.id for hit in store.search("Fourth")} == {first, chat.id}


def test_list_of_turns_then_roles_and_system_prompt(vm, tmp_path, qtbot):
    """What the OpenAI API takes, alone or in an object, with texts in parts."""
    raw = [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": [{"type": "text", "text": "Hello "}, {"type": "image_url"}]},
        {"role": "assistant", "content": "Hi.", "reasoning_content": "greet"},
        {"role": "tool", "content": "ignored"},
        {"role": "assistant", "content": None},
    ]
    for value in (raw, {"messages": raw, "title": "Named"}):
        found = chat_from_json(value, FILE, 5.0)
        assert turns(found) == [("user", "Hello "), ("assistant", "Hi.")]
        assert found.chat.system_prompt == "Be kind."
        assert found.messages[1].reasoning == "greet"
        assert found.chat.updated == 5.0
    assert found.chat.title == "Named"
    path = tmp_path / "list.json"
    path.write_bytes(b"\xef\xbb\xbf" + msgspec.json.encode(raw))
    said = []
    vm.said.connect(said.append)
    bring(vm, qtbot, path)
    assert [m.text for m in vm.talk.messages] == ["Hello ", "Hi."]
    assert said == ["2 messages imported"]


def test_conversation_with_versions_then_each_is_a_branch(vm):
    """LM Studio: turns with versions, replies in steps, the chosen one is shown."""
    raw = {
        "name": "Ports",
        "systemPrompt": "Sys",
        "messages": [
            {
                "versions": [
                    {"role": "user", "content": [{"type": "text", "text": "Which port?"}]}
                ],
                "currentlySelected": 0,
            },
            {
                "versions": [
                    {
                        "role": "assistant",
                        "steps": [
                            {
                                "type": "contentBlock",
                                "content": [{"type": "text", "text": "1234"}],
                            },
                            {"type": "debugInfoBlock", "content": "x"},
                        ],
                    },
                    {"role": "assistant", "content": "5678"},
                ],
                "currentlySelected": 1,
            },
        ],
    }
    found = chat_from_json(raw, FILE, 1.0)
    assert turns(found) == [("user", "Which port?"), ("assistant", "5678")]
    assert [m.text for m in found.messages] == ["Which port?", "1234", "5678"]
    assert (found.chat.title, found.chat.system_prompt) == ("Ports", "Sys")
    chat_id = vm.test_store.add_whole(found.chat, found.messages, found.shown)
    vm.open_chat(chat_id)
    assert len(vm.talk.versions(vm.talk.messages[1])) == 2


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"{ half", "is no JSON"),
        (b"[]", "holds no chat"),
        (b'{"messages": "text"}', "holds no chat"),
        (b'"text"', "holds no chat"),
        (b'{"format": "freetoken-chat", "version": 99}', "newer version"),
        (b'[{"role": "user", "content": " "}, {"role": "robot", "content": "x"}]', "holds no chat"),
    ],
)
def test_file_when_not_a_chat_then_it_is_named_with_the_reason(tmp_path, data, reason):
    """In a sentence; nothing is added."""
    path = tmp_path / "some.json"
    path.write_bytes(data)
    found = read_chat_file(path, 1.0)
    assert isinstance(found, NotFound)
    assert "some.json" in found.sentence
    assert reason in found.sentence


def test_file_when_missing_then_named(vm, tmp_path, qtbot):
    """What cannot be opened is told, what can is added."""
    said = []
    vm.said.connect(said.append)
    bring(vm, qtbot, tmp_path / "none.json", tmp_path)
    assert ["none.json cannot be read" in said[0], len(said)] == [True, 2]
    assert vm.test_store.chats() == []


def test_own_export_when_damaged_then_the_rest_is_kept():
    """A message without usable parts, an unknown parent, a double id, odd values."""
    raw = {
        "format": "freetoken-chat",
        "version": 1,
        "sampling": {"temperature": 99},
        "created": "yesterday",
        "messages": [
            {"id": 1, "parent": None, "role": "user", "parts": [{"text": "q"}], "shown": True},
            {"id": 2, "parent": 1, "role": "assistant", "parts": "broken", "shown": True},
            {"id": 3, "parent": 2, "role": "assistant", "parts": [{"text": "a"}], "shown": True},
            {"id": 1, "parent": None, "role": "user", "parts": [{"text": "again"}]},
            {
                "id": 4,
                "parent": 1,
                "role": "assistant",
                "parts": [{"text": "b"}],
                "state": "partial",
            },
            "nothing",
        ],
    }
    found = chat_from_json(raw, FILE, 9.0)
    assert [m.text for m in found.messages] == ["q", "a", "b"]
    assert found.messages[1].parent is None
    assert found.messages[2].state is MessageState.INTERRUPTED
    assert turns(found) == [("user", "q")]
    assert (found.chat.sampling, found.chat.created, found.chat.title) == (None, 9.0, "q")


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(("user", "assistant", "x")),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(
            ("messages", "role", "content", "versions", "steps", "type", "text", "format", "id",
             "parent", "parts", "shown", "currentlySelected", "version", "title", "sampling")
        ),
        inner,
        max_size=6,
    ),
    max_leaves=24,
)  # fmt: skip


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(VALUES, st.booleans())
def test_any_json_then_a_chat_that_can_be_stored_or_a_sentence(vm, raw, as_ours):
    """Nothing that anybody may have written breaks the import."""
    if as_ours and isinstance(raw, dict):
        raw = {**raw, "format": "freetoken-chat"}
    found = chat_from_json(raw, FILE, 1.0)
    if isinstance(found, Found):
        chat_id = vm.test_store.add_whole(found.chat, found.messages, found.shown)
        assert len(vm.test_store.path_of(chat_id)) == len(found.shown) > 0
        assert len(vm.test_store.all_messages(chat_id)) == len(found.messages)
        vm.test_store.delete_chat(chat_id)
    else:
        assert "chat.json" in found.sentence


@pytest.mark.parametrize("role", [["user"], {"a": 1}, 3, None, True])
def test_role_when_no_word_then_that_turn_is_left_out(role):
    """Also in our own format; the others are kept."""
    turn = {"id": 1, "role": role, "content": "x", "parts": [{"text": "x"}]}
    good = {"id": 2, "role": "user", "content": "y", "parts": [{"text": "y"}], "shown": True}
    for extra in ({}, {"format": "freetoken-chat"}):
        assert turns(chat_from_json({"messages": [turn, good], **extra}, FILE, 1.0)) == [
            ("user", "y")
        ]
