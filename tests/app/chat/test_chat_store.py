"""The chat store never loses a reply: not by edits, not by crashes, not by a full disk."""

import os
import sqlite3
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.services import chat_schema, chat_tree
from app.services.chat_records import (
    Chat,
    ChatId,
    Message,
    MessageId,
    MessageState,
    ReplyFacts,
    title_from,
)
from app.services.chat_store import ChatStore
from engine.protocol.messages import Part, Sampling, Trace, Usage


def message(chat, parent, text, role="user", state=MessageState.DONE):
    return Message(
        id=MessageId(0),
        chat_id=chat.id,
        parent=parent,
        role=role,
        parts=(Part(text=text),) if text else (),
        state=state,
    )


def texts(store, chat_id):
    return [m.text for m in store.path_of(chat_id)]


@pytest.fixture
def store(tmp_path):
    store = ChatStore(tmp_path / "chats")
    yield store
    store.close()


def test_chat_when_reopened_is_equal(tmp_path):
    """Everything that was written is read back the same by the next start."""
    store = ChatStore(tmp_path)
    chat = store.create_chat("Title", "Be brief.", Sampling(temperature=0.5, stop=("END",)))
    question = store.add_message(message(chat, None, "Why?"))
    reply = store.add_message(message(chat, question.id, "", "assistant", MessageState.PARTIAL))
    parts = (Part(kind="reasoning", text="Hm."), Part(text="Because 😀 你好"))
    facts = ReplyFacts(
        reason="stop", usage=Usage(reply_tokens=4), trace=Trace(ttft_s=0.5), speed=(1.0, 2.0)
    )
    store.finish(reply.id, parts, MessageState.DONE, facts)
    before = (store.chats(), store.path_of(chat.id))
    store.close()
    again = ChatStore(tmp_path)
    assert (again.chats(), again.path_of(chat.id)) == before
    assert again.path_of(chat.id)[1].parts == parts
    assert again.path_of(chat.id)[1].facts == facts
    assert again.chats()[0].sampling == Sampling(temperature=0.5, stop=("END",))
    again.close()


append = chat_tree.append


def fail_at_the_reply(db, row, now):
    """The last step of a turn; the others are done."""
    if row.role == "assistant":
        raise OSError("power lost")
    return append(db, row, now)


def test_turn_when_its_last_step_fails_then_nothing_of_it_is_there(store, monkeypatch):
    """Message, place of the reply and emptied draft are one transaction."""
    chat = replace(store.create_chat("Title"), draft="Why?")
    store.save_chat(chat)

    with monkeypatch.context() as patch:
        patch.setattr(chat_tree, "append", fail_at_the_reply)
        with pytest.raises(OSError, match="power lost"):
            store.add_turn(replace(chat, draft=""), message(chat, None, "Why?"), "Tiny")
    assert store.path_of(chat.id) == []
    assert store.chat(chat.id).draft == "Why?"
    _, reply = store.add_turn(replace(chat, draft=""), message(chat, None, "Why?"), "Tiny")
    question, place = store.path_of(chat.id)
    assert (question.text, place.parent) == ("Why?", question.id)
    assert place == reply
    assert (place.state, place.model) == (MessageState.PARTIAL, "Tiny")
    assert store.chat(chat.id).draft == ""


def test_turn_of_a_new_chat_when_its_last_step_fails_then_there_is_no_chat(store, monkeypatch):
    """Nor an empty one in the list; what the person set for it is stored with its first message."""
    new = Chat(ChatId(0), "Why?", pinned=True, system_prompt="Be brief.", reasoning="high")

    with monkeypatch.context() as patch:
        patch.setattr(chat_tree, "append", fail_at_the_reply)
        with pytest.raises(OSError, match="power lost"):
            store.add_turn(new, message(new, None, "Why?"), "Tiny")
    assert store.chats() == []
    chat, reply = store.add_turn(new, message(new, None, "Why?"), "Tiny")
    assert replace(chat, id=ChatId(0), created=0.0, updated=0.0) == new
    assert store.chats() == [replace(chat, leaf=reply.id)]
    assert {one.chat_id for one in store.path_of(chat.id)} == {chat.id}


class Model:
    """What the tree must be, in plain Python: the oracle of the property test."""

    def __init__(self):
        self.nodes = {}  # id -> (parent, text)
        self.hidden = set()

    def visible(self, node):
        while node is not None:
            if node in self.hidden:
                return False
            node = self.nodes[node][0]
        return True


@given(steps=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 10**6)), max_size=30))
@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_tree_when_edited_at_random_keeps_every_branch(steps, tmp_path_factory):
    """G-07, G-09: edit, regenerate, delete, restore, switch and restart lose no message."""
    folder = tmp_path_factory.mktemp("tree")
    store, model = ChatStore(folder), Model()
    chat = store.create_chat()
    count = 0
    for kind, pick in steps:
        path = store.path_of(chat.id)
        target = path[pick % len(path)] if path else None
        if kind in (0, 1) or target is None:  # send, or edit/regenerate = a sibling
            parent = (
                (path[-1].id if path else None) if kind == 0 or target is None else target.parent
            )
            count += 1
            added = store.add_message(message(chat, parent, f"text {count}"))
            model.nodes[added.id] = (parent, f"text {count}")
        elif kind == 2:
            store.hide(target.id)
            model.hidden.add(target.id)
        elif kind == 3 and model.hidden:
            back = sorted(model.hidden)[pick % len(model.hidden)]
            if model.visible(model.nodes[back][0]):
                store.unhide(back)
                model.hidden.discard(back)
        elif kind == 4:
            versions = store.versions(target)
            store.show(versions[pick % len(versions)])
        else:
            store.close()
            store = ChatStore(folder)
        path = store.path_of(chat.id)
        assert [m.parent for m in path] == [None, *(m.id for m in path)][: len(path)]
        assert all(model.visible(m.id) for m in path)
        # The path always ends at a leaf: nothing visible hangs below what is shown.
        if path:
            assert not [
                n for n, (p, _) in model.nodes.items() if p == path[-1].id and n not in model.hidden
            ]
    for node, (parent, text) in model.nodes.items():
        kept = store.message(node)
        assert (kept.parent, kept.text) == (parent, text)
    store.close()


def test_versions_when_flipped_show_their_own_answers(store):
    """G-09: edit message 2 of 4, regenerate twice, flip: each version keeps what followed it."""
    chat = store.create_chat()
    first = store.add_message(message(chat, None, "q1"))
    answer = store.add_message(message(chat, first.id, "a1", "assistant"))
    second = store.add_message(message(chat, answer.id, "q2"))
    store.add_message(message(chat, second.id, "a2", "assistant"))
    other = store.add_message(message(chat, first.id, "a1 again", "assistant"))
    third = store.add_message(message(chat, first.id, "a1 third", "assistant"))
    assert texts(store, chat.id) == ["q1", "a1 third"]
    assert store.versions(third) == [answer.id, other.id, third.id]
    store.show(answer.id)
    assert texts(store, chat.id) == ["q1", "a1", "q2", "a2"]
    store.show(other.id)
    store.show(answer.id)
    assert texts(store, chat.id) == ["q1", "a1", "q2", "a2"]


def test_switching_back_shows_the_answers_that_were_chosen(store):
    """G-09: of three answers the middle one was chosen; flipping the question keeps it."""
    chat = store.create_chat()
    question = store.add_message(message(chat, None, "q"))
    answers = [store.add_message(message(chat, question.id, t, "assistant")) for t in "abc"]
    store.show(answers[1].id)
    store.add_message(message(chat, None, "Q"))
    assert texts(store, chat.id) == ["Q"]
    store.show(question.id)
    assert texts(store, chat.id) == ["q", "b"]


def test_delete_last_then_regenerate_leaves_the_file_valid(tmp_path):
    """G-07: delete, regenerate, restart: the chat is not blank and the file is whole."""
    store = ChatStore(tmp_path)
    chat = store.create_chat()
    question = store.add_message(message(chat, None, "q"))
    reply = store.add_message(message(chat, question.id, "a", "assistant"))
    store.hide(reply.id)
    assert texts(store, chat.id) == ["q"]
    store.add_message(message(chat, question.id, "b", "assistant"))
    store.close()
    again = ChatStore(tmp_path)
    assert texts(again, chat.id) == ["q", "b"]
    again.unhide(reply.id)
    assert texts(again, chat.id) == ["q", "a"]
    assert again._file.read("PRAGMA integrity_check") == [("ok",)]
    again.close()


def test_search_finds_words_parts_and_chinese(store):
    """All words, any case, parts of words, one or two Chinese characters, operators as text."""
    chat = store.create_chat("Trip plan")
    store.add_message(message(chat, None, "How do I install NumPy on Windows?"))
    chinese = store.create_chat("Kyoto")
    store.add_message(message(chinese, None, "请把这份报告翻译成中文，语气友好。"))
    odd = store.create_chat("Odd")
    store.add_message(message(odd, None, 'a "quoted" 100% AND (NOT) under_score'))

    def found(query):
        return [hit.chat.title for hit in store.search(query)]

    assert found("numpy") == ["Trip plan"]
    assert found("WINDOWS install") == ["Trip plan"]
    assert found("indow") == ["Trip plan"]
    assert found("trip") == ["Trip plan"]
    assert found("翻译") == ["Kyoto"]
    assert found("报告翻译") == ["Kyoto"]
    assert found("语") == ["Kyoto"]
    assert found('"quoted" 100%') == ["Odd"]
    assert found("0%") == ["Odd"]
    assert found("AND") == ["Odd"]
    assert found("nothing like it") == []
    assert found("   ") == []
    assert "NumPy" in store.search("numpy")[0].excerpt


def test_search_follows_delete_restore_and_finish(store):
    """A deleted message is not found, a restored one is; a reply is found once it is done."""
    chat = store.create_chat("x")
    question = store.add_message(message(chat, None, "lighthouse"))
    reply = store.add_message(message(chat, question.id, "", "assistant", MessageState.PARTIAL))
    store.finish(reply.id, (Part(text="a beacon"),), MessageState.DONE, ReplyFacts())
    assert store.search("beacon")
    store.hide(question.id)
    assert not store.search("lighthouse")
    assert not store.search("beacon")
    store.unhide(question.id)
    assert store.search("beacon")
    store.delete_chat(chat.id)
    assert not store.search("beacon")
    assert store.chats() == []
    assert store._file.read("SELECT count(*) FROM messages") == [(0,)]


def old_file(path: Path, version: int) -> None:
    """Write the file as schema 1 had it; version 0 has the same tables but no number yet."""
    db = sqlite3.connect(path)
    db.executescript(
        f"""
        CREATE TABLE chats (id INTEGER PRIMARY KEY AUTOINCREMENT, title TEXT NOT NULL DEFAULT '',
            pinned INTEGER NOT NULL DEFAULT 0, created REAL NOT NULL, updated REAL NOT NULL,
            system_prompt TEXT NOT NULL DEFAULT '', sampling TEXT,
            draft TEXT NOT NULL DEFAULT '', leaf INTEGER);
        CREATE TABLE messages (id INTEGER PRIMARY KEY AUTOINCREMENT, chat INTEGER NOT NULL,
            parent INTEGER, role TEXT NOT NULL, parts TEXT NOT NULL, model TEXT NOT NULL DEFAULT '',
            state TEXT NOT NULL DEFAULT 'done', facts TEXT NOT NULL DEFAULT '{{}}',
            created REAL NOT NULL);
        INSERT INTO chats VALUES (7, 'Old chat', 1, 10.0, 20.0, 'sys', NULL, 'half a thought', 2);
        INSERT INTO messages VALUES
            (1, 7, NULL, 'user', '[{{"text":"hello world"}}]', '', 'done', '{{}}', 11.0),
            (2, 7, 1, 'assistant', '[{{"text":"greetings"}}]', 'tiny', 'partial', '{{}}', 12.0);
        PRAGMA user_version = {version};
        """
    )
    if version == 2:  # between 1 and 2 only tables and columns came
        for statement in chat_schema._STEP_2:
            db.execute(statement)
        chat_schema._fill_search(db)
        db.commit()
    db.close()


@pytest.mark.parametrize("version", [0, 1, 2])
def test_old_file_when_opened_is_migrated_with_nothing_lost(tmp_path, version):
    """Chats of an older schema stay, become searchable, and their unfinished reply is marked."""
    old_file(tmp_path / "chats.db", version)
    store = ChatStore(tmp_path)
    chat = store.chats()[0]
    assert (chat.title, chat.pinned, chat.draft, chat.system_prompt) == (
        "Old chat",
        True,
        "half a thought",
        "sys",
    )
    assert texts(store, chat.id) == ["hello world", "greetings"]
    assert store.path_of(chat.id)[1].state is MessageState.INTERRUPTED
    assert store.search("world")
    assert (chat.files, chat.preset, chat.reasoning) == ((), "", "")
    assert store._file.read("PRAGMA user_version") == [(chat_schema.VERSION,)]
    store.close()


def test_file_of_a_newer_version_is_left_alone(tmp_path):
    """A newer program's chats are not touched; a file beside it is used, and said so."""
    db = sqlite3.connect(tmp_path / "chats.db")
    db.execute("PRAGMA user_version = 99")
    db.close()
    before = (tmp_path / "chats.db").read_bytes()
    store = ChatStore(tmp_path)
    heard = []
    store.listen(heard.append)
    assert [n.code for n in heard] == ["newer"]
    store.create_chat("x")
    store.close()
    assert (tmp_path / "chats.db").read_bytes() == before
    assert (tmp_path / f"chats-v{chat_schema.VERSION}.db").exists()


@pytest.mark.parametrize("damage", ["garbage", "header", "page"])
def test_damaged_file_is_set_aside_and_a_new_one_begun(tmp_path, damage):
    """G-07: a broken database is renamed, never deleted, and the person is told."""
    store = ChatStore(tmp_path)
    chat = store.create_chat("a")
    for number in range(200):
        store.add_message(message(chat, None, f"text {number} " * 20))
    store.close()
    file = tmp_path / "chats.db"
    content = bytearray(file.read_bytes())
    if damage == "garbage":
        content = bytearray(b"not a database at all" * 400)
    elif damage == "header":
        content[:100] = bytes(100)
    else:
        content[4096 * 3 : 4096 * 9] = b"\xff" * 4096 * 6
    file.write_bytes(content)
    again = ChatStore(tmp_path)
    heard = []
    again.listen(heard.append)
    assert [n.code for n in heard] == ["damaged"]
    assert heard[0].path.read_bytes() == bytes(content)
    again.create_chat("new")
    assert [c.title for c in again.chats()] == ["new"]
    again.close()


def test_full_disk_keeps_text_in_memory_and_saves_it_later(tmp_path):
    """D-07: what comes while the disk is full stays readable, and is on disk once there is room."""
    now = [1000.0]
    store = ChatStore(tmp_path, clock=lambda: now[0])
    heard = []
    store.listen(heard.append)
    chat = store.create_chat("a")
    disk = store._file._disk
    pages = disk.execute("PRAGMA page_count").fetchone()[0]
    disk.execute(f"PRAGMA max_page_count = {pages}")
    long = "word " * 20_000
    added = store.add_message(message(chat, None, long))
    assert [n.code for n in heard] == ["memory"]
    assert store.in_memory
    assert store.path_of(chat.id)[0].text == long
    now[0] += 10
    store.save_partial(added.id, (Part(text=long + "more"),))
    assert store.in_memory  # still full
    disk.execute("PRAGMA max_page_count = 100000")
    now[0] += 10
    store.save_partial(added.id, (Part(text=long + "end"),))
    assert [n.code for n in heard] == ["memory", "saved"]
    assert not store.in_memory
    store.close()
    again = ChatStore(tmp_path)
    assert again.path_of(chat.id)[0].text == long + "end"
    again.close()


def test_folder_that_cannot_be_made_works_in_memory(tmp_path):
    """A file where the folder should be: chats work, and the person is told."""
    blocked = tmp_path / "chats"
    blocked.write_text("")
    store = ChatStore(blocked)
    heard = []
    store.listen(heard.append)
    assert [n.code for n in heard] == ["memory"]
    store.create_chat("x")
    assert [c.title for c in store.chats()] == ["x"]
    store.close()


CHILD = """
import sys
from pathlib import Path
from app.services.chat_records import Message, MessageId, MessageState
from app.services.chat_store import ChatStore
from engine.protocol.messages import Part
store = ChatStore(Path(sys.argv[1]))
chat = store.create_chat("crash")
q = store.add_message(Message(MessageId(0), chat.id, None, "user", (Part(text="q"),)))
a = store.add_message(
    Message(MessageId(0), chat.id, q.id, "assistant", (), state=MessageState.PARTIAL)
)
store.save_partial(a.id, (Part(text="the first half of a lighthouse"),))
print("saved", flush=True)
sys.stdin.read()
"""


def test_app_killed_in_the_middle_of_a_reply_leaves_its_text(tmp_path):
    """Kill -9 of the app: the partial text is there, marked interrupted, and can be searched."""
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=Path(__file__).resolve().parents[3],
        env=os.environ | {"PYTHONPATH": str(Path(__file__).resolve().parents[3])},
    )
    try:
        assert child.stdout.readline().strip() == b"saved"
    finally:
        child.kill()
        child.communicate()
    store = ChatStore(tmp_path)
    path = store.path_of(store.chats()[0].id)
    assert path[1].text == "the first half of a lighthouse"
    assert path[1].state is MessageState.INTERRUPTED
    assert store.search("lighthouse")
    store.close()


def test_deleted_messages_are_dropped_after_a_month(tmp_path):
    """Delete means delete: what was hidden is gone for good after thirty days."""
    now = [1_000_000.0]
    store = ChatStore(tmp_path, clock=lambda: now[0])
    chat = store.create_chat("a")
    question = store.add_message(message(chat, None, "q"))
    reply = store.add_message(message(chat, question.id, "a", "assistant"))
    store.hide(reply.id)
    store.close()
    now[0] += 31 * 86_400
    again = ChatStore(tmp_path, clock=lambda: now[0])
    assert again.message(reply.id) is None
    assert texts(again, chat.id) == ["q"]
    again.close()


def test_long_chat_path_reads_fast_enough_to_open(store):
    """A path of 5,000 messages comes back whole and in order, in one query."""
    chat = store.create_chat("long")

    def work(db):
        rows = [(n, chat.id, n - 1 or None, f'[{{"text":"m{n}"}}]') for n in range(1, 5001)]
        db.executemany(
            "INSERT INTO messages(id, chat, parent, role, parts, created)"
            " VALUES (?, ?, ?, 'user', ?, 0)",
            rows,
        )
        db.execute("UPDATE chats SET leaf = 5000")

    store._file.write(work)
    path = store.path_of(chat.id)
    assert [m.text for m in path] == [f"m{n}" for n in range(1, 5001)]


def test_unknown_chat_and_damaged_cells_cost_only_themselves(store):
    """A cell that cannot be read becomes its own text or nothing, never an exception."""
    assert store.chat(ChatId(99)) is None
    assert store.path_of(ChatId(99)) == []
    chat = store.create_chat("a")
    store.add_message(message(chat, None, "q"))
    store._file.write(
        lambda db: db.execute("UPDATE messages SET parts = '[{bad', facts = 'x'"),
    )
    store._file.write(lambda db: db.execute("UPDATE chats SET sampling = 'x'"))
    assert store.path_of(chat.id)[0].text == "[{bad"
    assert store.chats()[0].sampling is None


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("Explain LRU", "Explain LRU"),
        ("  one\n two  ", "one two"),
        ("word " * 30, "word word word word word word word word…"),
        ("x" * 100, "x" * 41 + "…"),
        ("", ""),
    ],
)
def test_title_is_the_first_words_on_one_line(text, title):
    """Titles stay short and never hold a line break."""
    assert title_from(text) == title
