"""Files of a draft: where they go, what counts them, and that they are never lost."""

import pytest

from app.services.chat_export import as_markdown
from app.services.chat_records import Draft
from engine.protocol.messages import Part, TokenCount
from tests.app.chat.fakes import FakeClient, make_vm

NOTE = Part(name="note.md", text="```py\nx\n```")
DATA = Part(name="data.csv", text="a,b\n1,2\n")


@pytest.fixture
def client(qapp):
    return FakeClient()


@pytest.fixture
def vm(tmp_path, client):
    made = make_vm(tmp_path, client)
    yield made
    made.close()
    made.test_store.close()


def read(vm, qtbot, *paths):
    vm.files.attach(paths)
    qtbot.waitUntil(lambda: not vm.files.is_reading, timeout=5000)


def test_files_then_text_is_attached_and_others_are_named(vm, tmp_path, qtbot):
    """G-04: one text file, a folder, an image and a missing file; one by one in words."""
    (tmp_path / "a.py").write_text("print(1)\n")
    (tmp_path / "b.png").write_bytes(b"\x89PNG\0\xff\xfe")
    said = []
    vm.said.connect(said.append)
    read(vm, qtbot, *(tmp_path / name for name in ("a.py", "b.png", "missing.txt")), tmp_path)
    assert [file.name for file in vm.talk.chat.files] == ["a.py"]
    assert [name in words for name, words in zip(("b.png", "missing.txt"), said, strict=False)] == [
        True,
        True,
    ]
    assert len(said) == 3
    vm.files.detach(7)
    vm.files.detach(0)
    assert vm.talk.chat.files == ()


def test_sent_files_then_quoted_before_the_text_and_kept_through_an_edit(vm, client):
    """The model sees name and text; an edited question keeps its files; export shows them."""
    vm.talk.attach(vm.talk.chat.id, (NOTE, DATA))
    vm.send("What is it?")
    ((message,), _, _) = client.requests["reply-1"]
    assert message.parts[0].text == (
        "note.md:\n````md\n```py\nx\n```\n````\n\ndata.csv:\n```csv\na,b\n1,2\n```\n\n"
    )
    assert message.parts[1].text == "What is it?"
    client.say("A table.")
    client.finish()
    question = vm.talk.messages[0]
    assert (question.text, question.files) == ("What is it?", (NOTE, DATA))
    vm.talk.edit(question.id, "And now?")
    assert vm.talk.messages[0].files == (NOTE, DATA)
    assert client.requests["reply-2"][0][0].parts[0].text == message.parts[0].text
    shown = as_markdown(vm.talk.chat, vm.talk.messages)
    assert "data.csv:\n```csv\na,b" in shown
    assert [hit.chat.id for hit in vm.test_store.search("data.csv")] == [vm.talk.chat.id]


def test_files_alone_then_they_can_be_sent_and_name_the_chat(vm, client):
    """No text is needed; the title is that of the file."""
    vm.talk.attach(vm.talk.chat.id, (DATA,))
    assert vm.send("")
    assert vm.talk.chat.title == "data.csv"
    assert vm.talk.chat.files == ()
    assert not vm.send("")


def test_files_when_the_app_is_killed_then_they_are_in_the_draft_again(vm, client, tmp_path):
    """Of a chat, of a chat not begun, and of a message that waited."""
    vm.talk.attach(vm.talk.chat.id, (NOTE,))
    vm.save_draft()
    again = make_vm(tmp_path, FakeClient())
    assert again.talk.chat.files == (NOTE,)
    again.test_store.close()
    vm.send("one")
    vm.talk.attach(vm.talk.chat.id, (DATA,))
    vm.send("two")
    vm.talk.attach(vm.talk.chat.id, (NOTE,))
    chat_id = vm.talk.chat.id
    again = make_vm(tmp_path, FakeClient())
    chat = again.test_store.chat(chat_id)
    assert (chat.draft, chat.files) == ("two", (DATA, NOTE))
    assert again.test_store.note("new-files") == ""
    again.test_store.close()


def test_queue_with_files_then_it_is_sent_with_them(vm, client):
    """A message that waits for a reply keeps its files apart from those of the draft."""
    vm.send("one")
    vm.talk.attach(vm.talk.chat.id, (DATA,))
    vm.send("two")
    assert vm.talk.queued == Draft("two", (DATA,))
    assert vm.talk.chat.files == ()
    client.finish()
    assert vm.talk.messages[2].files == (DATA,)


def test_files_dropped_before_another_chat_is_opened_then_they_stay_with_theirs(
    vm, client, tmp_path, qtbot
):
    """What is read while the person goes elsewhere belongs where it was dropped."""
    (tmp_path / "a.txt").write_text("text")
    vm.send("one")
    client.finish()
    first = vm.talk.chat.id
    vm.files.attach([tmp_path / "a.txt"])
    vm.new_chat()
    qtbot.waitUntil(lambda: not vm.files.is_reading, timeout=5000)
    assert vm.talk.chat.files == ()
    vm.open_chat(first)
    assert [file.name for file in vm.talk.chat.files] == ["a.txt"]


def test_context_then_it_counts_files_as_they_are_sent(vm, client, qtbot):
    """The draft's count holds the quoted files; without them it is asked anew."""
    vm.talk.attach(vm.talk.chat.id, (DATA,))
    qtbot.waitUntil(lambda: bool(client.counts), timeout=5000)
    assert "data.csv:" in client.counts[-1][-1].parts[0].text
    client.token_count.emit(TokenCount(id=f"count-{len(client.counts)}", num_tokens=31))
    assert vm.context.draft_tokens == 31
    vm.files.detach(0)
    assert vm.context.draft_tokens == 0
