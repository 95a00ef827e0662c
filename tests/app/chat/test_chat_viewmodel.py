"""The chat page without a window: sending, waiting, branches, crashes, figures."""

import time

import msgspec
import pytest

from app.services import chat_words
from app.services.chat_records import Draft, MessageState
from app.services.settings_schema import Settings
from app.viewmodels.chat_conversation import NO_CHAT
from engine.protocol import messages as m
from engine.protocol.errors import ErrorCode
from tests.app.chat.fakes import MODEL, FakeClient, make_vm


@pytest.fixture
def client(qapp):
    return FakeClient()


@pytest.fixture
def vm(tmp_path, client):
    vm = make_vm(tmp_path, client)
    yield vm
    vm.close()
    vm.test_store.close()


def said(vm):
    return [(x.role, x.text) for x in vm.talk.messages]


def answer(client, text="fine", request=""):
    client.say(text, request=request)
    client.finish(request=request)


def test_send_stores_asks_and_streams(vm, client):
    """A message is stored and titled at once; the reply grows and ends with its figures."""
    assert vm.talk.chat.id == NO_CHAT
    vm.set_system_prompt("Be brief.")
    assert vm.send("Why is the sky blue?")
    messages, sampling, continue_last = client.requests["reply-1"]
    assert [x.role for x in messages] == ["system", "user"]
    assert sampling == MODEL.sampling
    assert not continue_last
    assert vm.talk.is_replying
    grown = []
    vm.talk.grew.connect(grown.append)
    client.say("Light ")
    client.say("scatters.")
    vm.runner.flush()
    assert grown == [vm.talk.messages[-1].id]
    assert vm.talk.message(grown[0]).text == "Light scatters."
    client.finish()
    assert not vm.talk.is_replying
    assert said(vm) == [("user", "Why is the sky blue?"), ("assistant", "Light scatters.")]
    assert vm.talk.chat.title == "Why is the sky blue?"
    assert [s.rows[0].chat.title for s in vm.chats.sections] == ["Why is the sky blue?"]
    reply = vm.talk.messages[-1]
    assert (reply.state, reply.model) == (MessageState.DONE, "Tiny MoE")


def test_rate_leaves_out_waiting_and_prefill(vm, client):
    """G-20: five seconds to the first token, then 20 tok/s, are shown as two figures."""
    vm.send("q")
    answer(client)
    assert chat_words.stats_text(vm.talk.messages[-1]) == (
        "20.0 tok/s  ·  TTFT 5.0 s  ·  5 tokens  ·  hit 63 %"
    )


def test_deltas_are_gathered_not_shown_one_by_one(vm, client, qtbot):
    """A burst of 300 deltas causes one signal, from one timer."""
    vm.send("q")
    grown = []
    vm.talk.grew.connect(grown.append)
    with qtbot.waitSignal(vm.talk.grew):
        for _ in range(300):
            client.say("x")
        assert not grown
    assert len(grown) == 1
    assert len(vm.talk.message(grown[0]).text) == 300


def test_partial_text_is_saved_while_it_streams(vm, client):
    """The store holds what has arrived before the reply ends."""
    vm.send("q")
    client.say("half")
    vm.runner.save()
    stored = vm.test_store.message(vm.talk.messages[-1].id)
    assert (stored.text, stored.state) == ("half", MessageState.PARTIAL)


def test_new_chat_works_in_every_state(vm, client):
    """G-03: no model, loading, loaded, reply running: a new chat is on screen each time."""
    opened = []
    vm.talk.opened.connect(lambda: opened.append(vm.talk.chat.id))
    vm.new_chat()
    vm.send("first")
    client.say("running")
    vm.new_chat()
    assert vm.talk.messages == []
    client.state, client.model = m.EngineState.LOADING, None
    vm.new_chat()
    client.die()
    vm.new_chat()
    assert opened == [NO_CHAT] * 4


def test_reply_of_another_chat_goes_on_behind(vm, client):
    """Opening another chat does not end the reply; it is whole when the chat is opened again."""
    vm.send("first")
    first = vm.talk.chat.id
    client.say("one ")
    vm.new_chat()
    vm.send("second")
    client.say("two", request="reply-1")
    client.finish(request="reply-1")
    answer(client, "other")
    assert said(vm)[-1] == ("assistant", "other")
    vm.open_chat(first)
    assert said(vm)[-1] == ("assistant", "one two")


def test_message_waits_while_the_model_loads_and_is_sent_then(vm, client):
    """Written before the model is there: kept, shown as waiting, sent on `loaded`."""
    client.model, client.state = None, m.EngineState.LOADING
    vm.send("q")
    assert vm.talk.is_waiting
    assert not client.requests
    client.load()
    assert not vm.talk.is_waiting
    assert list(client.requests) == ["reply-1"]
    answer(client)
    assert said(vm) == [("user", "q"), ("assistant", "fine")]
    assert vm.talk.messages[-1].model == "Tiny MoE"


def test_stop_during_load_cancels_at_once(vm, client):
    """G-10: Stop while the model loads ends the waiting; nothing is sent afterwards."""
    client.model, client.state = None, m.EngineState.LOADING
    vm.send("q")
    vm.talk.stop()
    assert not vm.talk.is_waiting
    assert vm.talk.messages[-1].state is MessageState.STOPPED
    client.load()
    assert not client.requests
    vm.talk.regenerate(vm.talk.messages[-1].id)
    answer(client)
    assert said(vm) == [("user", "q"), ("assistant", "fine")]


def test_cancelled_load_ends_the_waiting(vm, client):
    """G-10: Stop in the strip cancels the load; the message does not go out by the next one."""
    client.model, client.state = None, m.EngineState.LOADING
    vm.send("q")
    client.failed.emit(m.Error(code=ErrorCode.CANCELLED, message="Cancelled.", id="load-1"))
    assert not vm.talk.is_waiting
    client.load()
    assert not client.requests


def test_message_sent_during_a_reply_waits_for_it(vm, client):
    """A second message is queued, survives in the draft, and is sent after the reply."""
    vm.send("one")
    vm.send("two")
    vm.set_draft("half a third")
    vm.save_draft()
    assert vm.talk.queued.text == "two"
    assert Draft.of(vm.test_store.chat(vm.talk.chat.id).queued).text == "two"
    assert len(client.requests) == 1
    answer(client, "first")
    assert not vm.talk.queued
    answer(client, "second")
    assert [t for _, t in said(vm)] == ["one", "first", "two", "second"]
    stored = vm.test_store.chat(vm.talk.chat.id)
    assert (stored.draft, stored.queued) == ("half a third", ())


def test_queued_message_after_a_crash_is_in_the_draft_before_what_was_typed(tmp_path, vm, client):
    """Nobody sends it unasked, and nothing of it is lost."""
    vm.send("one")
    vm.send("two")
    vm.set_draft("half a third")
    vm.save_draft()
    chat_id = vm.talk.chat.id
    again = make_vm(tmp_path, FakeClient())  # the first one was killed
    chat = again.test_store.chat(chat_id)
    assert (chat.draft, chat.queued) == ("two\n\nhalf a third", ())
    again.test_store.close()


def test_queued_message_taken_back_then_what_was_typed_stays(vm):
    """Both are in the composer, the older text first."""
    vm.send("one")
    vm.send("two")
    vm.set_draft("three")
    vm.talk.unqueue()
    assert vm.talk.chat.draft == "two\n\nthree"
    assert not vm.talk.queued


def test_message_when_killed_at_any_write_has_its_place_for_a_reply_and_is_no_draft(
    vm, client, monkeypatch
):
    """A-20: whatever a kill leaves on disk, what was sent is there once, and can be answered."""
    file, found = vm.test_store._file, []
    write = file.write

    def write_and_look(work):
        result = write(work)
        for chat in vm.test_store.chats():
            path = vm.test_store.path_of(chat.id)
            drafts = (chat.draft, Draft.of(chat.queued).words, vm.test_store.note("new-draft"))
            roles = [message.role for message in path]
            found.append((roles, drafts, path[-2].text if len(path) > 1 else ""))
        return result

    monkeypatch.setattr(file, "write", write_and_look)
    vm.set_draft("one")
    vm.save_draft()
    vm.send("one")
    vm.send("two")
    answer(client, "first", "reply-1")
    answer(client, "second", "reply-2")
    vm.talk.edit(vm.talk.messages[2].id, "two again")
    answer(client, "third", "reply-3")
    assert found[-1] == (["user", "assistant"] * 2, ("", "", ""), "two again")
    for roles, drafts, last_question in found:
        assert roles == ["user", "assistant"] * max(1, len(roles) // 2)
        assert last_question not in drafts


def test_queued_message_of_another_chat_is_sent_there(vm, client):
    """The queue belongs to its chat, whichever is on screen."""
    vm.send("one")
    first = vm.talk.chat.id
    vm.send("two")
    vm.new_chat()
    answer(client, "first", "reply-1")
    assert vm.talk.messages == []
    answer(client, "second", "reply-2")
    vm.open_chat(first)
    assert [t for _, t in said(vm)] == ["one", "first", "two", "second"]


def test_stop_keeps_text_and_gives_the_queue_back(vm, client):
    """Stop ends the reply with what has arrived; the queued message is in the composer again."""
    replaced = []
    vm.talk.draft_replaced.connect(lambda: replaced.append(vm.talk.chat.draft))
    vm.send("one")
    client.say("half")
    vm.send("two")
    vm.talk.stop()
    assert replaced == ["two"]
    assert client.cancelled == ["reply-1"]
    assert said(vm)[-1] == ("assistant", "half")
    assert vm.talk.messages[-1].state is MessageState.STOPPED


def test_regenerate_edit_and_switch_keep_every_version(vm, client):
    """G-09: versions are counted, flipped and read back after a restart."""
    vm.send("q")
    answer(client, "a")
    vm.talk.regenerate(vm.talk.messages[1].id)
    answer(client, "b")
    reply = vm.talk.messages[1]
    assert len(vm.talk.versions(reply)) == 2
    vm.talk.switch(reply.id, -1)
    assert said(vm)[1][1] == "a"
    vm.talk.edit(vm.talk.messages[0].id, "Q")
    answer(client, "c")
    assert said(vm) == [("user", "Q"), ("assistant", "c")]
    vm.talk.switch(vm.talk.messages[0].id, -1)
    assert said(vm) == [("user", "q"), ("assistant", "a")]
    vm.talk.switch(vm.talk.messages[0].id, -1)  # there is none before: nothing happens
    vm.talk.edit(vm.talk.messages[1].id, "A by hand")
    assert said(vm)[1][1] == "A by hand"
    assert len(vm.talk.versions(vm.talk.messages[1])) == 3


def test_regenerate_asks_without_the_old_reply(vm, client):
    """The engine sees the path up to the question, in the right roles."""
    vm.send("q")
    client.say("hm", kind="reasoning")
    answer(client, "a")
    vm.send("more")
    answer(client, "b")
    messages = client.requests["reply-2"][0]
    assert [(x.role, x.parts[0].text) for x in messages] == [
        ("user", "q"),
        ("assistant", "a"),
        ("user", "more"),
    ]
    vm.talk.regenerate(vm.talk.messages[1].id)
    assert [x.parts[0].text for x in client.requests["reply-3"][0]] == ["q"]


def test_delete_can_be_undone(vm, client):
    """A deleted message and what followed come back."""
    vm.send("q")
    answer(client, "a")
    heard = []
    vm.talk.deleted.connect(heard.append)
    vm.talk.delete(vm.talk.messages[0].id)
    assert said(vm) == []
    vm.talk.undo_delete(heard[0])
    assert said(vm) == [("user", "q"), ("assistant", "a")]


def test_delete_during_a_reply_stops_it(vm, client):
    """The reply ends, the message is gone, and its text is not found by search."""
    vm.send("q")
    client.say("lighthouse")
    vm.talk.delete(vm.talk.messages[0].id)
    assert client.cancelled == ["reply-1"]
    assert said(vm) == []
    assert not vm.test_store.search("lighthouse")


def test_engine_death_keeps_text_and_offers_to_continue(vm, client):
    """A dead engine: text kept, marked interrupted, cause shown once, Continue goes on with it."""
    vm.send("q")
    client.say("thinking", kind="reasoning")
    client.say("The first half")
    client.die()
    reply = vm.talk.messages[-1]
    assert (reply.text, reply.state) == ("The first half", MessageState.INTERRUPTED)
    assert reply.facts.error is None
    assert reply.facts.usage.reply_tokens == 2
    assert vm.crash.sentence == "The engine crashed."
    vm.talk.continue_reply(reply.id)  # waits for the engine
    assert vm.talk.is_waiting
    client.is_running = True
    client.ready.emit(m.Ready())
    assert vm.crash is None
    client.load()
    messages, _, continue_last = client.requests[client.last]
    assert continue_last
    assert [p.text for p in messages[-1].parts] == ["thinking", "The first half"]
    answer(client, " and the second")
    assert said(vm)[-1] == ("assistant", "The first half and the second")
    assert vm.talk.messages[-1].state is MessageState.DONE
    assert vm.talk.messages[-1].facts.usage.reply_tokens >= 3


def test_engine_asked_to_stop_is_no_crash(vm, client):
    """An ordered end shows no cause."""
    client.die(unexpected=False)
    assert vm.crash is None


def test_error_is_kept_with_the_reply_and_retried_in_place(vm, client):
    """G-05: cause with figures and the page that helps; the prompt stays; retry makes no branch."""
    vm.send("q")
    client.fail()
    reply = vm.talk.messages[-1]
    assert reply.state is MessageState.FAILED
    problem = chat_words.problem_of(reply.facts.error)
    assert problem.cause == "needs 9, 7 free"
    assert problem.page == "performance"
    assert said(vm)[0] == ("user", "q")
    vm.talk.regenerate(reply.id)
    answer(client)
    assert vm.talk.versions(vm.talk.messages[1]) == [reply.id]
    assert vm.talk.messages[1].facts.error is None


def test_error_after_some_text_keeps_the_text(vm, client):
    """What arrived before the error is stored; trying again makes another version."""
    vm.send("q")
    client.say("half")
    client.fail(ErrorCode.DEVICE)
    assert said(vm)[-1] == ("assistant", "half")
    vm.talk.regenerate(vm.talk.messages[-1].id)
    assert len(vm.talk.versions(vm.talk.messages[-1])) == 2


def test_app_restart_in_the_middle_opens_the_broken_chat(tmp_path, vm, client):
    """After a crash of the app the chat with the unfinished reply is on screen, text and all."""
    vm.send("q")
    client.say("half")
    vm.runner.save()
    again = make_vm(tmp_path, FakeClient())
    assert [x.text for x in again.talk.messages] == ["q", "half"]
    assert again.talk.messages[-1].state is MessageState.INTERRUPTED
    again.test_store.close()


def test_draft_is_kept_per_chat_and_over_a_restart(tmp_path, vm, client):
    """Typed text comes back with its chat, also in a chat not yet begun."""
    vm.send("q")
    answer(client)
    first = vm.talk.chat.id
    vm.set_draft("for the first")
    vm.new_chat()
    vm.set_draft("for a new one")
    vm.open_chat(first)
    assert vm.talk.chat.draft == "for the first"
    vm.new_chat()
    assert vm.talk.chat.draft == "for a new one"
    vm.close()
    again = make_vm(tmp_path, FakeClient())
    assert again.talk.chat.draft == "for a new one"
    again.test_store.close()


def test_sampling_is_per_chat_with_the_models_own_as_default(vm, client):
    """Changes hold for this chat; None goes back; nonsense is refused in words."""
    assert vm.sampling.temperature == 0.7
    vm.send("q")
    answer(client)
    first = vm.talk.chat.id
    vm.change_sampling(temperature=0.1)
    vm.new_chat()
    assert vm.sampling.temperature == 0.7
    vm.open_chat(first)
    assert vm.sampling.temperature == 0.1
    sentences = []
    vm.said.connect(sentences.append)
    vm.change_sampling(top_p=7.0)
    assert "top_p" in sentences[0]
    assert vm.sampling.top_p == 0.8
    vm.set_sampling(None)
    assert vm.sampling == MODEL.sampling


def test_general_settings_come_before_the_model(tmp_path, qapp):
    """The person's general sampling and system prompt are the start of each new chat."""

    class Store:
        value = Settings(system_prompt="General.", sampling=m.Sampling(temperature=0.2))

    vm = make_vm(tmp_path, settings=Store())
    assert vm.sampling.temperature == 0.2
    assert vm.talk.chat.system_prompt == "General."
    vm.test_store.close()


def test_context_counts_history_and_draft_apart(vm, client, qtbot):
    """The engine counts; figures come back by id, and stale answers are ignored."""
    vm.send("q")
    answer(client)
    vm.set_draft("three more words")
    vm.context._timer.timeout.emit()
    vm.context._timer.stop()
    assert len(client.counts) == 2
    client.token_count.emit(m.TokenCount(id="count-1", num_tokens=40))
    client.token_count.emit(m.TokenCount(id="count-2", num_tokens=47))
    client.token_count.emit(m.TokenCount(id="other", num_tokens=999))
    assert (vm.context.used_tokens, vm.context.draft_tokens) == (40, 7)
    assert vm.context.capacity_tokens == 4096
    client.stats.emit(m.Stats(interval_s=1, context_capacity_tokens=2048))
    assert vm.context.capacity_tokens == 2048
    vm.set_draft("")
    assert vm.context.draft_tokens == 0


def test_context_that_can_grow_then_what_it_can_be_counts(vm, client):
    """What the engine would take is not called too long; the model's own limit holds."""
    for grows_to, most in ((3072, 3072), (9999, 4096), (0, 2048)):
        pool = m.Pool(name="kv", used_bytes=0, units=2048, grows_to_units=grows_to)
        info = m.DeviceInfo(name="cpu", title="CPU", total_bytes=1, free_bytes=1)
        device = m.DeviceStatus(device=info, total_bytes=1, pools=(pool,))
        client.status.emit(m.Status(devices=(device,)))
        client.stats.emit(m.Stats(interval_s=1, context_capacity_tokens=2048))
        assert vm.context.capacity_tokens == most


def test_context_then_system_prompt_and_files_are_told_apart(vm, client):
    """Honest to the part: what is missing without them; a chat of a prompt alone is the prompt."""
    vm.set_system_prompt("Be brief.")
    vm.context._timer.timeout.emit()
    client.token_count.emit(m.TokenCount(id=f"count-{len(client.counts)}", num_tokens=9))
    assert (vm.context.used_tokens, vm.context.system_tokens, vm.context.files_tokens) == (9, 9, 0)
    vm.talk.attach(vm.talk.chat.id, (m.Part(text="1,2,3", name="a.csv"),))
    vm.send("q")
    answer(client)
    client.counts.clear()
    vm.context._timer.timeout.emit()
    whole, turns, bare = client.counts
    assert [message.role for message in turns] == [message.role for message in whole][1:]
    assert "a.csv" in whole[1].parts[0].text
    assert not any("a.csv" in part.text for message in bare for part in message.parts)
    for number, tokens in enumerate((100, 88, 60), 1):
        client.token_count.emit(m.TokenCount(id=f"count-{number}", num_tokens=tokens))
    assert (vm.context.used_tokens, vm.context.system_tokens) == (100, 12)
    assert vm.context.files_tokens == 40


def test_context_while_a_reply_grows_then_its_tokens_are_added(vm, client):
    """The meter moves with the reply; the count leaves that reply out, so nothing counts twice."""
    vm.send("q")
    vm.context._timer.timeout.emit()
    client.token_count.emit(m.TokenCount(id=f"count-{len(client.counts)}", num_tokens=20))
    client.delta.emit(m.TokenDelta(id=client.last, text="one two", num_tokens=2))
    vm.runner.flush()
    assert vm.context.used_tokens == 22
    assert [message.role for message in vm.talk.sent_messages()] == ["user"]
    client.finished.emit(m.Finished(id=client.last, reason=m.FinishReason.STOP))
    assert vm.context.used_tokens == 22
    assert [message.role for message in vm.talk.sent_messages()] == ["user", "assistant"]
    client.model = None
    assert vm.context.capacity_tokens == 0


def test_export_then_file_holds_the_chat_and_failures_are_said(vm, client, tmp_path):
    """Markdown for people, JSON with every version; a folder that is not there is named."""
    said = []
    vm.said.connect(said.append)
    vm.send("What is a cache?")
    answer(client, "Fast memory.")
    chat = vm.talk.chat
    assert vm.files.export_name(chat.id, "md") == "What is a cache.md"
    vm.files.export_chat(chat.id, tmp_path / "a.md", "md")
    text = (tmp_path / "a.md").read_text("utf-8")
    assert text.startswith("# What is a cache?\n\n## You\n")
    assert "Fast memory." in text
    vm.talk.retry_last()
    answer(client, "A store.")
    vm.files.export_chat(chat.id, tmp_path / "a.json", "json")
    kept = msgspec.json.decode((tmp_path / "a.json").read_bytes())
    replies = [(m["parts"][0]["text"], m["shown"]) for m in kept["messages"][1:]]
    assert replies == [("Fast memory.", False), ("A store.", True)]
    (tmp_path / "file").write_text("")
    vm.files.export_chat(chat.id, tmp_path / "file" / "b.md", "md")
    assert "b.md was not written" in said[-1]


def test_reasoning_is_kept_apart_and_timed(vm, client):
    """Reasoning does not mix with the answer; its tokens are counted."""
    vm.send("q")
    client.say("let me ", kind="reasoning")
    client.say("see", kind="reasoning")
    reply = vm.runner.reply_of(vm.talk.messages[-1].id)
    assert reply.is_thinking
    answer(client, "Answer")
    stored = vm.talk.messages[-1]
    assert (stored.reasoning, stored.text) == ("let me see", "Answer")
    assert stored.facts.thought_tokens == 2


def test_list_groups_by_day_and_pin(tmp_path, qapp):
    """Pinned first, then today, yesterday, earlier, by local days."""
    noon = time.mktime((2026, 3, 10, 12, 0, 0, 0, 0, -1))
    now = [noon - 10 * 86_400]
    vm = make_vm(tmp_path, clock=lambda: now[0])
    store = vm.test_store
    store.create_chat("old")
    now[0] = noon - 86_400
    store.create_chat("yesterday")
    now[0] = noon
    pinned = store.create_chat("kept")
    store.create_chat("now")
    vm.set_pinned(pinned.id, True)
    found = [(str(s.title), [r.chat.title for r in s.rows]) for s in vm.chats.sections]
    assert found == [
        ("Pinned", ["kept"]),
        ("Today", ["now"]),
        ("Yesterday", ["yesterday"]),
        ("Earlier", ["old"]),
    ]
    vm.chats.set_query("yest")
    vm.chats.refresh()
    assert [r.chat.title for r in vm.chats.sections[0].rows] == ["yesterday"]
    store.close()


def test_deleted_chat_comes_back_or_is_gone_for_good(vm, client):
    """Delete hides a chat at once; undo brings it back, the end of the app removes it."""
    vm.send("q")
    answer(client)
    chat = vm.talk.chat.id
    vm.delete_chat(chat)
    assert vm.talk.chat.id == NO_CHAT
    assert vm.chats.sections == ()
    vm.chats.undo_delete()
    assert vm.chats.sections
    vm.delete_chat(chat)
    vm.close()
    assert vm.test_store.chat(chat) is None


def test_damaged_store_is_told_once_the_page_is_there(tmp_path, qapp):
    """The notice reaches the view model although it was made after the store."""
    (tmp_path / "chats.db").write_bytes(b"garbage" * 1000)
    vm = make_vm(tmp_path)
    assert vm.notice.code == "damaged"
    assert "chats.damaged-" in chat_words.notice_text(vm.notice)
    vm.dismiss_notice()
    assert vm.notice is None
    vm.test_store.close()


def test_speed_along_a_reply_needs_some_points():
    """Rates between evenly picked moments; nothing for a short reply."""
    assert chat_words.rates_along([(0.0, 1), (1.0, 2)]) == ()
    bursts = [(i * 0.05 - (0.04 if i % 2 else 0), i * 5) for i in range(1, 41)]
    assert max(chat_words.rates_along(bursts)) < 130
    points = [(i * 0.1, i * 2) for i in range(200)]
    rates = chat_words.rates_along(points)
    assert 3 <= len(rates) <= 48
    assert all(abs(rate - 20) < 0.1 for rate in rates)
