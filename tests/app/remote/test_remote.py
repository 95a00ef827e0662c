"""The remote engine against a server on loopback that streams, drops, stalls and refuses."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PySide6.QtCore import QObject, Signal

from app.services.remote_client import RemoteClient
from app.services.remote_switch import TalkClient
from app.services.remote_wire import Server, Stream, error_text, request_body, server_of
from app.services.secrets import SecretStore
from app.services.settings import SettingsStore
from app.viewmodels.remote import RemoteViewModel
from app.views.models_remote import remote_rows
from app.widgets.look import use
from app.widgets.setting_rows import Group
from engine.protocol import messages as m
from engine.protocol.errors import ErrorCode
from tests.app.discover.parts import StubKeyring
from tests.app.walk import clipped, controls, settle, spoken_name
from tests.support.app_engine import Recorder
from tests.support.mock_openai import DONE, USAGE, MockOpenAi, chunk, serve

HELLO = (m.ChatMessage(role="user", parts=(m.Part(text="hello"),)),)
REPLIES = ("started", "delta", "tool_call", "failed", "finished")


@pytest.fixture
def server():
    with serve(MockOpenAi()) as made:
        yield made


@pytest.fixture
def client(qtbot, server):
    made = RemoteClient()
    made.set_up(server_of(server.url, "sk-secret"), "big-moe")
    yield made
    made.close()


def ask(qtbot, client, **more):
    seen = Recorder(client, *REPLIES)
    with qtbot.waitSignal(client.finished, timeout=10_000):
        client.generate(HELLO, m.Sampling(), **more)
    return seen


def texts(seen, kind="text"):
    return "".join(d.text for d in seen.of("delta") if d.kind == kind)


def test_reply_when_streamed_then_as_from_the_local_engine(qtbot, client, server):
    """Started once, reasoning and text apart, usage, speed, reason; one end."""
    thoughts = [chunk(reasoning_content="Let me "), chunk(reasoning="see.")]
    server.events = [b": alive\n\n", *thoughts, chunk("Hi"), chunk("!", finish_reason="length")]
    server.events += [USAGE, DONE]
    seen = ask(qtbot, client)
    assert seen.names == ["started", *["delta"] * 4, "finished"]
    assert (texts(seen), texts(seen, "reasoning")) == ("Hi!", "Let me see.")
    (end,) = seen.of("finished")
    assert end.reason is m.FinishReason.LENGTH
    assert end.usage == m.Usage(prompt_tokens=7, reply_tokens=3, reused_tokens=4)
    assert end.trace.ttft_s > 0
    assert client.open_replies == ()


def test_reply_then_the_request_says_what_was_chosen_and_no_more(qtbot, client, server):
    """Defaults are left out: not every server knows every name."""
    ask(qtbot, client, template_args={"enable_thinking": False})
    path, headers, body = server.requests[0]
    assert path == "/v1/chat/completions"
    assert headers["Authorization"] == "Bearer sk-secret"
    assert body == {
        "model": "big-moe",
        "messages": [{"role": "user", "content": "hello"}],
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_tokens": 512,
        "temperature": 1.0,
        "chat_template_kwargs": {"enable_thinking": False},
    }
    chosen = m.Sampling(top_k=5, stop=("END",), seed=3)
    body = json.loads(request_body("x", HELLO, chosen, continue_last=True))
    assert (body["top_k"], body["stop"], body["seed"]) == (5, ["END"], 3)
    assert body["continue_final_message"] is True
    assert "min_p" not in body


def test_reply_with_tool_calls_in_pieces_then_told_whole(qtbot, client, server):
    """Names and arguments come in fragments by index."""
    first = {"index": 0, "id": "c1", "function": {"name": "find", "arguments": '{"a"'}}
    more = {"index": 0, "function": {"arguments": ": 1}"}}
    server.events = [chunk(tool_calls=[first]), chunk(tool_calls=[more]), DONE]
    (call,) = ask(qtbot, client).of("tool_call")
    assert (call.call_id, call.name, call.arguments) == ("c1", "find", '{"a": 1}')


@pytest.mark.parametrize(
    ("status", "code", "words"),
    [
        (401, ErrorCode.TOKEN, "does not accept the key"),
        (403, ErrorCode.TOKEN, "does not accept the key"),
        (404, ErrorCode.NOT_FOUND, "has no model big-moe"),
        (422, ErrorCode.INVALID_REQUEST, "does not take this request"),
        (429, ErrorCode.NETWORK, "is busy"),
        (503, ErrorCode.NETWORK, "out of order (HTTP 503)"),
        (307, ErrorCode.NETWORK, "not followed"),
    ],
)
def test_refused_then_a_sentence_with_the_servers_own_words(
    qtbot, client, server, status, code, words
):
    """Kind, cause, what to do; the key goes nowhere else, not even after a redirect."""
    server.status, server.body = status, b'{"error": {"message": "no such luck"}}'
    server.headers = {"Location": f"{server.url}/elsewhere"} if status == 307 else {}
    seen = ask(qtbot, client)
    (error,) = seen.of("failed")
    assert error.code is code
    assert words in error.message
    assert error.message.endswith("It says: no such luck")
    assert "sk-secret" not in error.message + error.hint
    assert seen.names == ["failed", "finished"]
    assert seen.of("finished")[0].reason is m.FinishReason.ERROR
    assert len(server.requests) == 1


@pytest.mark.parametrize("is_cut", [True, False])
def test_cut_stream_then_said_and_what_came_was_told(qtbot, client, server, is_cut):
    """The end of the bytes is not the end of the reply."""
    server.events, server.is_cut = [chunk("Half a")], is_cut
    seen = ask(qtbot, client)
    assert texts(seen) == "Half a"
    assert "was cut" in seen.of("failed")[0].message


def test_stall_then_hung_up_with_a_sentence(qtbot, server):
    """Silence has an end, also in the middle of a reply."""
    server.events = [chunk("Half"), None]
    client = RemoteClient(first_s=10, stall_s=0.1)
    client.set_up(server_of(server.url), "big-moe")
    seen = ask(qtbot, client)
    assert texts(seen) == "Half"
    assert "silent for too long" in seen.of("failed")[0].message


def test_error_in_the_stream_then_its_words(qtbot, client, server):
    """A server that runs out of memory says so in the middle."""
    server.events = [chunk("Half"), b'data: {"error": {"message": "out of memory"}}\n\n']
    assert "broke off: out of memory" in ask(qtbot, client).of("failed")[0].message


def test_no_such_server_then_said(qtbot, client, server):
    """A login page, and a port where nobody listens."""
    server.events = [b"data: <html>\n\n"]
    assert "OpenAI-compatible" in ask(qtbot, client).of("failed")[0].message
    client.set_up(Server("http://127.0.0.1:9/v1"), "big-moe")
    assert "Nothing answers at 127.0.0.1:9" in ask(qtbot, client).of("failed")[0].message


def test_cancel_then_one_end_at_once(qtbot, client, server):
    """The connection is closed; nothing comes after the end."""
    server.events = [chunk("Half"), None, chunk("late"), DONE]
    seen = Recorder(client, *REPLIES)
    with qtbot.waitSignal(client.delta):
        reply = client.generate(HELLO, m.Sampling())
    client.cancel(reply)
    assert seen.names == ["started", "delta", "finished"]
    assert seen.of("finished")[0].reason is m.FinishReason.CANCELLED
    assert client.open_replies == ()
    client.cancel(reply)
    assert len(seen.names) == 3


@given(st.lists(st.integers(0, 400), max_size=8))
def test_stream_when_cut_into_any_pieces_then_the_same_deltas(cuts):
    """Bytes arrive as the network likes."""
    data = (
        chunk("Grüße") + chunk(reasoning_content="hm\n") + b"\r\n" + chunk(" 你好") + USAGE + DONE
    )
    stream, found, place = Stream("r"), [], 0
    for cut in [*sorted(cuts), len(data)]:
        found += stream.feed(data[place : max(place, cut)])
        place = max(place, cut)
    found += stream.close()
    assert [(d.kind, d.text) for d in found] == [
        ("text", "Grüße"), ("reasoning", "hm\n"), ("text", " 你好"),
    ]  # fmt: skip
    assert stream.is_done
    assert stream.usage.reply_tokens == 3


@pytest.mark.parametrize(
    ("text", "base", "is_open"),
    [
        ("https://host", "https://host/v1", False),
        ("host.example:8000/", "https://host.example:8000/v1", False),
        ("http://10.0.0.5:8000/api/v2/", "http://10.0.0.5:8000/api/v2", True),
        ("http://localhost:1234", "http://localhost:1234/v1", False),
    ],
)
def test_address_then_as_people_write_it(text, base, is_open):
    """A bare host gets https and /v1; what others can read is known."""
    server = server_of(text, " key ")
    assert (server.base, server.is_open, server.key) == (base, is_open, "key")
    assert "key" not in repr(server).replace("Server", "")


@pytest.mark.parametrize("text", ["", "ftp://host", "https://", "https://host:0", "a b", "h/?k=1"])
def test_address_when_none_then_refused(text):
    """Nothing is sent to a typing error."""
    assert server_of(text) is None


@pytest.mark.parametrize("body", [b"", b"<html>", b"[1]", b'{"error": {"code": 5}}'])
def test_error_text_when_unreadable_then_none(body):
    """No page of HTML in a sentence."""
    assert error_text(body) == ""


class LocalStub(QObject):
    """The local engine as the switch sees it."""

    ready = Signal(object)
    state_changed = Signal(object)
    loaded = Signal(object)
    unloaded = Signal(object)
    started = Signal(object)
    delta = Signal(object)
    tool_call = Signal(object)
    finished = Signal(object)
    stats = Signal(object)
    status = Signal(object)
    token_count = Signal(object)
    failed = Signal(object)
    stopped = Signal(object)
    is_running, model, state, open_replies = True, None, m.EngineState.IDLE, ()

    def __init__(self):
        super().__init__()
        self.asked, self.cancelled = [], []

    def generate(self, *given):
        self.asked.append(given)
        return "reply-1"

    def cancel(self, request_id):
        self.cancelled.append(request_id)

    def count_tokens(self, messages):
        return "count-1"


class Parts:
    """The settings page's view model on a real client."""

    def __init__(self, folder, ring=None):
        self.settings = SettingsStore(folder / "settings.json")
        self.local, self.client = LocalStub(), RemoteClient()
        self.talk = TalkClient(self.local, self.client)
        self.entries = []
        self.ring = ring
        self.vm = self.make()

    def make(self):
        def secrets(host):
            self.entries.append(host)
            return SecretStore(lambda: self.ring, f"remote engine {host}")

        return RemoteViewModel(self.settings, self.client, self.talk, secrets)


@pytest.fixture
def parts(qtbot, tmp_path):
    use("dark", 1.0, "en", True)
    made = Parts(tmp_path)
    yield made
    made.vm.close()


def choose(qtbot, parts, server):
    parts.vm.set_address(server.url)
    parts.vm.set_key("sk-secret")
    with qtbot.waitSignal(parts.client.listed, timeout=10_000):
        parts.vm.list_models()


def test_off_then_nothing_is_ever_sent(qtbot, parts, server):
    """Address, key and model alone send nothing, nor does a reply of the local engine."""
    parts.vm.set_address(server.url)
    parts.vm.set_key("sk-secret")
    parts.vm.set_model("big-moe")
    assert parts.talk.generate(HELLO, m.Sampling()) == "reply-1"
    assert not parts.talk.is_remote
    assert parts.vm.shown_name == ""
    assert server.requests == []


def test_on_then_the_chat_is_answered_there_and_says_so(qtbot, parts, server):
    """Models from /v1/models, the first one chosen; off again is at once."""
    choose(qtbot, parts, server)
    assert parts.vm.models == ("big-moe", "small")
    assert parts.vm.model == "big-moe"
    with qtbot.waitSignal(parts.talk.switched):
        parts.vm.set_on(True)
    host = server.url.removeprefix("http://")
    assert (parts.vm.host, parts.vm.shown_name) == (host, f"big-moe @ {host}")
    assert parts.talk.model.quant == "remote"
    assert parts.talk.is_running
    with qtbot.waitSignal(parts.talk.finished, timeout=10_000):
        parts.talk.generate(HELLO, m.Sampling())
    assert parts.local.asked == []
    assert parts.talk.count_tokens(HELLO) == ""
    parts.vm.set_on(False)
    assert parts.talk.generate(HELLO, m.Sampling()) == "reply-1"


def test_switch_when_a_local_reply_runs_then_it_ends_there(qtbot, parts, server):
    """Deltas and ends come through; the local engine's own affairs do not."""
    choose(qtbot, parts, server)
    parts.vm.set_on(True)
    seen = Recorder(parts.talk, "delta", "finished", "stopped", "status")
    parts.local.delta.emit(m.TokenDelta(id="reply-1", text="x"))
    parts.local.status.emit(m.Status())
    parts.local.stopped.emit(None)
    parts.local.finished.emit(m.Finished(id="reply-1", reason=m.FinishReason.STOP))
    assert seen.names == ["delta", "finished"]
    parts.talk.cancel("reply-1")
    assert parts.local.cancelled == ["reply-1"]


def test_address_when_changed_then_off_and_the_key_stays_with_its_server(qtbot, parts, server):
    """A key never goes to a host that it was not given for."""
    choose(qtbot, parts, server)
    parts.vm.set_on(True)
    parts.vm.set_address("https://other.example")
    assert not parts.vm.is_on
    assert not parts.talk.is_remote
    assert not parts.vm.has_key
    assert parts.vm.model == ""


def test_key_then_in_the_keyring_and_in_no_file(qtbot, tmp_path):
    """Under the server's name; read again at the next start only if it is on."""
    ring = StubKeyring()
    parts = Parts(tmp_path, ring)
    parts.vm.set_address("https://host.example")
    parts.vm.set_key("sk-secret")
    qtbot.waitUntil(lambda: ring.kept == "sk-secret")
    assert parts.entries == ["host.example"]
    assert "sk-secret" not in (tmp_path / "settings.json").read_text()
    parts.vm.set_model("big-moe")
    parts.vm.set_on(True)
    again = Parts(tmp_path, ring)
    qtbot.waitUntil(lambda: again.talk.is_remote)
    assert again.vm.has_key


def test_on_when_something_is_missing_then_said(parts):
    """Address first, then a model; a typing error changes nothing."""
    parts.vm.set_on(True)
    assert (parts.vm.is_on, "address first" in parts.vm.problem) == (False, True)
    parts.vm.set_address("not an address")
    assert "no address" in parts.vm.problem
    assert parts.vm.address == ""
    parts.vm.set_address("https://host.example")
    parts.vm.set_on(True)
    assert parts.vm.problem == "Choose a model first."


@pytest.mark.parametrize("status", [200, 401])
def test_list_when_there_is_no_answer_then_said(qtbot, parts, server, status):
    """An odd answer and a refused key."""
    server.status, server.models = status, [5]
    parts.vm.set_address(server.url)
    with qtbot.waitSignal(parts.client.list_failed, timeout=10_000):
        parts.vm.list_models()
    assert ("key" if status == 401 else "OpenAI-compatible") in parts.vm.problem
    assert not parts.vm.is_asking


@pytest.mark.parametrize("language", ["en", "zh_CN", "pseudo"])
def test_rows_then_named_whole_and_bound(qtbot, parts, server, language):
    """The section, off, on and refused."""
    use("light", 1.0, language, True)
    rows = remote_rows(parts.vm)
    group = Group("Remote engine", list(rows))
    qtbot.addWidget(group)
    group.resize(640, 400)
    group.show()
    rows[0].toggle.click()
    settle()
    assert parts.vm.problem
    assert not rows[0].toggle.isChecked()
    choose(qtbot, parts, server)
    rows[0].toggle.click()
    settle()
    assert parts.vm.is_on
    assert rows[2].field.text() == ""
    assert [rows[3].combo.itemText(i) for i in range(2)] == ["big-moe", "small"]
    assert not [w for w in controls(group) if not spoken_name(w)]
    assert clipped(group) == []
    use("dark", 1.0, "en", True)
