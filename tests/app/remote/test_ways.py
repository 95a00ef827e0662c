"""Ways to a remote engine: proxies, certificates, time limits, hanging up. All on loopback."""

import socket
import sys

import pytest
from PySide6.QtNetwork import QNetworkProxy

from app.services.remote_client import RemoteClient
from app.services.remote_proxy import BadProxy, route_to
from app.services.remote_switch import TalkClient
from app.services.remote_wire import Server, is_loopback, server_of
from app.services.secrets import SecretStore
from app.services.settings import SettingsStore
from app.viewmodels.remote import RemoteViewModel
from engine.protocol import messages as m
from engine.protocol.errors import ErrorCode
from tests.app.remote.test_remote import HELLO, REPLIES, LocalStub
from tests.support.app_engine import Recorder
from tests.support.mock_openai import MockOpenAi, certificate, chunk, serve

FAR = "http://engine.invalid/v1"  # resolves nowhere: only a proxy can know it


@pytest.fixture
def server():
    with serve(MockOpenAi()) as made:
        yield made


@pytest.fixture
def make(qtbot):
    made = []

    def build(address, proxy="", **limits):
        client = RemoteClient(**limits)
        client.set_up(server_of(address, "sk-secret"), "big-moe")
        client.use_proxy(proxy)
        made.append(client)
        return client

    yield build
    for client in made:
        client.close()


def ask(qtbot, client):
    seen = Recorder(client, *REPLIES)
    with qtbot.waitSignal(client.finished, timeout=20_000):
        client.generate(HELLO, m.Sampling())
    return seen


def failure(qtbot, client):
    """Ask; the sentence and the hint of the one failure."""
    seen = ask(qtbot, client)
    assert seen.names == ["failed", "finished"]
    (error,) = seen.of("failed")
    assert "sk-secret" not in error.message + error.hint
    return error.message, error.hint


# --- proxy ----------------------------------------------------------------------------------


def test_proxy_of_the_settings_then_requests_go_through_it(qtbot, make, server):
    """It is handed the whole address, for replies and for the list alike."""
    client = make(FAR, server.url)
    seen = ask(qtbot, client)
    assert "".join(d.text for d in seen.of("delta")) == "Hello you"
    with qtbot.waitSignal(client.listed, timeout=10_000):
        client.list_models()
    paths = [path for path, _, _ in server.requests]
    assert paths == [f"{FAR}/chat/completions", f"{FAR}/models"]
    assert server.requests[0][1]["Host"] == "engine.invalid"


@pytest.mark.parametrize("proxy", ["http://127.0.0.1:9", "not a proxy"])
def test_loopback_when_a_proxy_is_set_then_never_through_it(qtbot, make, server, proxy):
    """An engine on this computer is asked directly; even a wrong setting is no matter."""
    seen = ask(qtbot, make(server.url, proxy))
    assert seen.names[-1] == "finished"
    assert server.requests[0][0] == "/v1/chat/completions"


def test_proxy_of_the_system_then_followed_unless_the_setting_says_direct(
    qtbot, make, server, monkeypatch
):
    """As the downloads do; exceptions of the system hold."""
    monkeypatch.setenv("http_proxy", server.url)
    ask(qtbot, make(FAR))
    assert len(server.requests) == 1
    assert "No address is known for engine.invalid" in failure(qtbot, make(FAR, "direct"))[0]
    monkeypatch.setenv("no_proxy", "engine.invalid")
    assert "No address is known for engine.invalid" in failure(qtbot, make(FAR))[0]
    assert len(server.requests) == 1


def test_https_through_a_proxy_then_it_sees_the_host_only(qtbot, make, server):
    """Case D-11: a tunnel is asked for, without the key; its refusal names the proxy."""
    words, hint = failure(qtbot, make("https://engine.invalid", server.url))
    assert server.url.removeprefix("http://") in words
    assert hint == "Check the proxy in Settings."
    assert server.requests
    for path, headers, _ in server.requests:
        assert path == "engine.invalid:443"
        assert "Authorization" not in headers


@pytest.mark.parametrize("address", [FAR, "https://engine.invalid"])
def test_dead_proxy_then_named_without_its_password(qtbot, make, address):
    """Case D-11: within the connection's own time, and it is the proxy that is named."""
    words, hint = failure(qtbot, make(address, "http://me:hunter2@127.0.0.1:9"))
    assert words == "Nothing answers at the proxy 127.0.0.1:9."
    assert "hunter2" not in words + hint


@pytest.mark.parametrize("address", [FAR, "https://engine.invalid"])
def test_proxy_that_wants_a_login_then_said_how(qtbot, make, server, address):
    """Case D-11: no window asks; the sentence says where it is written."""
    server.status, server.headers = 407, {"Proxy-Authenticate": 'Basic realm="x"'}
    words, hint = failure(qtbot, make(address, server.url))
    assert "wants a login" in words
    assert "user:password@host" in hint


def test_proxy_that_is_no_address_then_nothing_is_sent(qtbot, make):
    """A typing error never means around the proxy."""
    client = make(FAR, "ftp://proxy")
    assert "nothing was sent" in failure(qtbot, client)[0]
    with qtbot.waitSignal(client.list_failed, timeout=5_000) as told:
        client.list_models()
    assert told.args[0].code is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("scheme", ["socks5", "socks5h"])
def test_proxy_of_the_system_when_socks_then_spoken_to_as_such(qtbot, make, monkeypatch, scheme):
    """SOCKS 5 begins with the byte 5; the setting itself takes http only, as the downloads do."""
    with socket.create_server(("127.0.0.1", 0)) as proxy:
        proxy.setblocking(False)
        port = proxy.getsockname()[1]
        monkeypatch.setenv("http_proxy", f"{scheme}://me:pw@127.0.0.1:{port}")
        route = route_to(Server(FAR), "")
        assert route.proxy.type() is QNetworkProxy.ProxyType.Socks5Proxy
        assert (route.proxy.user(), route.name.shown) == ("me", f"127.0.0.1:{port}")
        make(FAR).generate(HELLO, m.Sampling())
        heard, got = [], []

        def is_greeted():
            try:
                if not heard:
                    heard.append(proxy.accept()[0])
                    heard[0].setblocking(False)
                got.append(heard[0].recv(1))
            except BlockingIOError:
                return False
            return True

        qtbot.waitUntil(is_greeted, timeout=10_000)
        heard[0].close()
        assert got == [b"\x05"]
    monkeypatch.setenv("http_proxy", f"{scheme}://proxy.example")
    assert route_to(Server(FAR), "").proxy.port() == 1080
    with pytest.raises(BadProxy, match="proxy in Settings"):
        route_to(Server(FAR), f"{scheme}://proxy.example")


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("socks4://me:hunter2@proxy.example:1080", "socks4://proxy.example:1080"),
        ("me:hunter2@proxy.example:x", "proxy.example:x"),
        ("http://me:hunt://er2@proxy.example:0", "http://proxy.example:0"),
        ("me:hunt://er2@proxy.example:0", "proxy.example:0"),
        ("http://me:hunter2@[::1", "http://[::1"),
    ],
)
def test_proxy_of_the_system_when_useless_then_it_is_blamed(
    qtbot, make, monkeypatch, address, shown
):
    """Case D-11: not the setting, which is empty; nothing is sent, and a way out is said."""
    monkeypatch.setenv("http_proxy", address)
    words, hint = failure(qtbot, make(FAR))
    assert words == f"The proxy {shown} cannot be used; nothing was sent."
    assert "the environment variable http_proxy" in hint
    assert '"direct"' in hint
    assert "hunt" not in words + hint


@pytest.fixture
def name_proxy(monkeypatch):
    """Name a proxy in one of the three places; returns what the setting is then."""

    def name(address, source, scheme="http"):
        if source == "settings":
            return address
        if source == "system":  # where a system has such settings
            known = {"http": address, "https": address}
            monkeypatch.setattr("urllib.request.getproxies", lambda: known)
        else:
            monkeypatch.setenv(source, address)
        return ""

    return name


ORIGINS = {
    "settings": "Check the proxy in Settings.",
    "system": "It comes from the network settings of this PC. Correct it there",
    "http_proxy": "It comes from the environment variable http_proxy. Correct it there",
    "HTTP_PROXY": "It comes from the environment variable HTTP_PROXY. Correct it there",
}


@pytest.mark.parametrize("source", ORIGINS)
def test_dead_proxy_then_who_named_it_is_said(qtbot, make, name_proxy, source):
    """Case D-11: an empty setting is not to blame for a proxy that came from elsewhere."""
    if sys.platform == "win32" and source == "http_proxy":
        pytest.skip("names of variables have no case there")
    setting = name_proxy("http://me:hunter2@127.0.0.1:9", source)
    words, hint = failure(qtbot, make(FAR, setting))
    assert words == "Nothing answers at the proxy 127.0.0.1:9."
    assert hint.startswith(ORIGINS[source])
    assert source == "settings" or '"direct", in Settings' in hint


@pytest.mark.parametrize(
    ("source", "origin"),
    [("settings", ""), ("system", "network settings of this PC"), ("http_proxy", "http_proxy")],
)
def test_login_when_wanted_then_who_named_the_proxy_is_said(
    qtbot, make, server, name_proxy, source, origin
):
    """Case D-11: and how a login is written."""
    server.status, server.headers = 407, {"Proxy-Authenticate": 'Basic realm="x"'}
    _, hint = failure(qtbot, make(FAR, name_proxy(server.url, source)))
    assert origin in hint
    assert "http://user:password@host:port" in hint
    assert ("It comes from" in hint) == bool(origin)


def test_route_when_both_cases_of_a_variable_are_set_then_the_one_in_force_is_named(monkeypatch):
    """The lower case wins, and a variable beats the system's settings."""
    if sys.platform == "win32":
        pytest.skip("names of variables have no case there")
    monkeypatch.setenv("HTTP_PROXY", "http://upper.example:1")
    monkeypatch.setenv("http_proxy", "http://lower.example:1")
    monkeypatch.setenv("https_proxy", "http://other.example:1")
    name = route_to(Server(FAR), "").name
    assert (name.shown, name.source) == ("lower.example:1", "http_proxy")


@pytest.mark.parametrize(
    ("source", "begin"),
    [
        ("settings", "Only http:// proxies work here"),
        ("system", "It comes from the network settings of this PC. Only http://"),
        ("HTTP_PROXY", "It comes from the environment variable HTTP_PROXY. Only http://"),
    ],
)
def test_proxy_by_https_then_nothing_is_sent(qtbot, make, server, name_proxy, source, begin):
    """Case D-11: no TLS to a proxy is possible, so neither is it spoken to without."""
    address = server.url.replace("http://", "https://me:hunter2@")
    client = make(FAR, name_proxy(address, source))
    words, hint = failure(qtbot, client)
    shown = server.url.removeprefix("http://")
    assert words == f"The proxy {shown} is asked for by https; nothing was sent."
    assert hint.startswith(begin)
    with qtbot.waitSignal(client.list_failed, timeout=5_000) as told:
        client.list_models()
    assert told.args[0].message == words
    assert server.requests == []


def test_route_then_login_is_decoded_and_not_shown():
    """What people write, and what they see."""
    route = route_to(Server(FAR), "me:a%40b@proxy.example:3128")
    proxy = route.proxy
    assert (proxy.hostName(), proxy.port()) == ("proxy.example", 3128)
    assert (proxy.user(), proxy.password()) == ("me", "a@b")
    assert route.name.shown == "proxy.example:3128"
    for bad in ("http://", "http://host:0", "http://host:x"):
        with pytest.raises(BadProxy):
            route_to(Server(FAR), bad)


@pytest.mark.parametrize(
    ("host", "is_local"),
    [("127.0.0.1", True), ("127.8.0.1", True), ("::1", True), ("localhost", True),
     ("a.localhost", True), ("10.0.0.1", False), ("localhost.example", False), ("", False)],
)  # fmt: skip
def test_loopback_then_by_name_and_address(host, is_local):
    """Names that only look so are not this computer."""
    assert is_loopback(host) is is_local


def test_settings_when_the_proxy_changes_then_the_next_request_takes_it(qtbot, tmp_path, server):
    """One setting for downloads and the remote engine; no restart."""
    settings, client = SettingsStore(tmp_path / "settings.json"), RemoteClient()
    vm = RemoteViewModel(
        settings, client, TalkClient(LocalStub(), client), lambda _: SecretStore(lambda: None)
    )
    vm.set_address(FAR)
    vm.set_model("big-moe")
    vm.set_on(True)
    qtbot.waitUntil(lambda: client.model is not None)
    settings.set(hub_proxy=server.url)
    ask(qtbot, client)
    assert server.requests[0][0] == f"{FAR}/chat/completions"
    vm.close()


# --- certificates ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "days", "words"),
    [
        ("localhost", (-1, 1), "is not trusted"),
        ("localhost", (-9, -2), "is not valid today"),
        ("other.example", (-1, 1), "is for another name"),
    ],
)
def test_certificate_when_it_is_no_good_then_the_kind_is_said_and_nothing_sent(
    qtbot, make, tmp_path, name, days, words
):
    """Of one's own, out of date, of somebody else: none is overlooked."""
    with serve(MockOpenAi(), certificate(tmp_path, name, days)) as server:
        url = server.url.replace("127.0.0.1", "localhost")
        message, hint = failure(qtbot, make(url))
        assert words in message
        assert hint
        assert server.requests == []


def test_https_to_a_server_without_tls_then_said(qtbot, make, server):
    """The address was written without http://, so https was taken."""
    words, hint = failure(qtbot, make(server.url.removeprefix("http://")))
    assert "No secure connection" in words
    assert "http://" in hint


# --- limits and ends ------------------------------------------------------------------------


def test_server_that_never_answers_then_an_end_and_a_sentence(qtbot, make):
    """Accepts and says nothing; the list of models does not wait as long as a prompt may."""
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        client = make(f"http://127.0.0.1:{deaf.getsockname()[1]}", first_s=0.1, list_s=0.1)
        assert "silent for too long" in failure(qtbot, client)[0]
        with qtbot.waitSignal(client.list_failed, timeout=10_000) as told:
            client.list_models()
        assert "silent for too long" in told.args[0].message


def test_list_when_the_address_is_wrong_then_no_model_is_blamed(qtbot, make, server):
    """404 before a model was chosen."""
    server.status = 404
    client = make(server.url)
    client.set_up(server_of(server.url), "")
    with qtbot.waitSignal(client.list_failed, timeout=10_000) as told:
        client.list_models()
    assert "nothing at this address" in told.args[0].message


def test_cancel_during_a_stream_then_the_server_sees_it_and_what_came_is_kept(qtbot, make, server):
    """Stop ends the work over there as well: the connection is closed."""
    server.events = [chunk("Half a"), None, chunk("late")]
    client = make(server.url)
    seen = Recorder(client, *REPLIES)
    with qtbot.waitSignal(client.delta, timeout=10_000):
        reply = client.generate(HELLO, m.Sampling())
    with qtbot.waitSignal(client.finished):
        client.cancel(reply)
    qtbot.waitUntil(server.hung_up.is_set, timeout=10_000)
    assert "".join(d.text for d in seen.of("delta")) == "Half a"
    assert seen.of("finished")[0].reason is m.FinishReason.CANCELLED
    assert client.open_replies == ()
