"""Who is blamed for a proxy before the hub: Settings, the environment, or the system's settings."""

import sys
import urllib.request
from email.message import Message

import pytest

from engine.jobs.hub import Hub
from engine.jobs.hub_errors import HubPlace, refused
from engine.protocol.errors import InvalidRequest, NetworkError

DEAD = "http://me:hunter2@127.0.0.1:9"
FAR = "http://hub.invalid"  # resolves nowhere


@pytest.fixture(autouse=True)
def no_proxy_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the machine that runs the tests says."""
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


def failure(setting: str = "") -> NetworkError:
    """Ask the hub; the failure."""
    with pytest.raises(NetworkError) as caught:
        Hub(FAR, setting).search("x", (), 1)
    assert "hunter2" not in caught.value.message + caught.value.hint
    return caught.value


def test_dead_proxy_of_the_settings_then_they_are_named() -> None:
    """Case D-11."""
    problem = failure(DEAD)
    assert "Nothing answers at the proxy http://127.0.0.1:9" in problem.message
    assert problem.hint == "Check the proxy in Settings."


@pytest.mark.parametrize("name", ["http_proxy", "HTTP_PROXY"])
def test_dead_proxy_of_the_environment_then_the_variable_is_named(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Case D-11: the setting is empty and not to blame."""
    if sys.platform == "win32" and name.islower():
        pytest.skip("names of variables have no case there")
    monkeypatch.setenv(name, DEAD)
    problem = failure()
    assert "Nothing answers at the proxy http://127.0.0.1:9" in problem.message
    assert problem.hint == (
        f"It comes from the environment variable {name}. Correct it there, or write another one, "
        'or "direct", in Settings.'
    )


def test_dead_proxy_of_the_system_then_its_network_settings_are_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Case D-11: where a system has such settings, and no variable beats them."""
    monkeypatch.setattr(urllib.request, "getproxies", lambda: {"http": DEAD})
    problem = failure()
    assert "Nothing answers at the proxy" in problem.message
    assert problem.hint.startswith("It comes from the network settings of this PC. Correct it")


def test_hub_when_it_is_passed_by_then_no_proxy_is_blamed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Exceptions of the environment hold for a proxy from anywhere."""
    monkeypatch.setenv("no_proxy", "hub.invalid")
    for setting in ("", DEAD):
        monkeypatch.setenv("http_proxy", DEAD)
        problem = failure(setting)
        assert "hub.invalid" in problem.message
        assert "proxy" not in problem.message + problem.hint


@pytest.mark.parametrize(
    "address",
    ["http://me:hunter2@[::1", "http://me:hunter2@proxy:x", "socks5://me:hunter2@proxy:1080",
     "http://", "me:hunter2@proxy:0", "http:/me:hunter2@proxy", "me:hunt://er2@proxy:0"],
)  # fmt: skip
@pytest.mark.parametrize("source", ["http_proxy", "system"])
def test_proxy_that_is_none_then_named_with_its_source_before_anything_is_sent(
    monkeypatch: pytest.MonkeyPatch, address: str, source: str
) -> None:
    """Case D-11: a typing error in a variable is said at once, and never with its password."""
    if source == "system":
        monkeypatch.setattr(urllib.request, "getproxies", lambda: {"http": address})
    else:
        monkeypatch.setenv("http_proxy", address)
    with pytest.raises(InvalidRequest, match="cannot be used; nothing was sent") as caught:
        Hub(FAR)
    assert "hunt" not in caught.value.message + caught.value.hint
    origin = "network settings of this PC" if source == "system" else "variable http_proxy"
    assert origin in caught.value.hint
    Hub(FAR, "direct")
    Hub("https://hub.invalid")  # is not asked through it


@pytest.mark.parametrize("address", ["127.0.0.1:9", "me:hunter2@127.0.0.1:9", DEAD, f"{DEAD}/"])
def test_proxy_of_the_environment_then_with_or_without_scheme_and_login(
    monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    """As such variables are written."""
    monkeypatch.setenv("http_proxy", address)
    assert "Nothing answers at the proxy http://127.0.0.1:9" in failure().message


def test_hub_when_its_port_is_passed_by_then_no_proxy_is_blamed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Case D-11: an exception may name a port; another port goes through the proxy."""
    monkeypatch.setenv("http_proxy", DEAD)
    monkeypatch.setenv("no_proxy", "127.0.0.1:1")
    with pytest.raises(NetworkError, match=r"at 127\.0\.0\.1: the connection was refused"):
        Hub("http://127.0.0.1:1").search("x", (), 1)
    with pytest.raises(NetworkError, match=r"at the proxy"):
        Hub("http://127.0.0.1:2").search("x", (), 1)


@pytest.mark.parametrize(
    ("source", "origin"),
    [
        ("settings", ""),
        ("system", "It comes from the network settings of this PC. "),
        ("https_proxy", "It comes from the environment variable https_proxy. "),
    ],
)
def test_login_when_wanted_then_the_source_and_how_it_is_written(source: str, origin: str) -> None:
    """Case D-11: a login is written in Settings, also for a proxy from elsewhere."""
    place = HubPlace(FAR, DEAD, proxy_source=source)
    problem = refused(407, Message(), "a/b", place)
    assert problem.hint == f"{origin}Write it as http://user:password@host:port in Settings."
