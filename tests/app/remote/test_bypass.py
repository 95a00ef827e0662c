"""Exceptions from the proxy: of the environment and of the registry, without a name server."""

import sys
import types
from urllib.parse import urlsplit

import pytest

from app.services.remote_bypass import holds, is_passed_by
from app.services.remote_proxy import route_to
from app.services.remote_wire import Server

FAR = "https://engine.corp.example:8443/v1"


@pytest.fixture
def registry(monkeypatch):
    """A Windows with these values in its registry, where looking up a name is an error."""
    values = {}

    class Key:
        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

    def query(_key, name):
        if name not in values:
            raise FileNotFoundError(name)
        return values[name], 1

    def refuse(*_):
        raise AssertionError("a name was looked up")

    fake = types.SimpleNamespace(HKEY_CURRENT_USER=1, OpenKey=lambda *_: Key(), QueryValueEx=query)
    monkeypatch.setitem(sys.modules, "winreg", fake)
    monkeypatch.setattr("app.services.remote_bypass.sys.platform", "win32")
    for name in ("urllib.request.proxy_bypass", "socket.gethostbyname", "socket.getfqdn"):
        monkeypatch.setattr(name, refuse)
    known = {"https": "http://proxy.example:3128"}
    monkeypatch.setattr("urllib.request.getproxies", lambda: known)
    return values


@pytest.mark.parametrize(
    ("exceptions", "address", "is_excepted"),
    [
        ("", FAR, False),
        ("engine.corp.example", FAR, True),
        ("Engine.CORP.example", FAR, True),
        ("*.corp.example", FAR, True),
        ("other.example; *.corp.example;<local>", FAR, True),
        ("engine.corp", FAR, False),
        ("corp.example", FAR, False),
        ("engine?corp.example", FAR, True),
        ("engine-corp-example", FAR, False),
        ("*.corp.example:8443", FAR, True),
        ("*.corp.example:443", FAR, False),
        ("*.corp.example:443", "https://engine.corp.example", True),
        ("https://*.corp.example", FAR, True),
        ("http://*.corp.example", FAR, False),
        ("<local>", FAR, False),
        ("<local>", "http://engine", True),
        ("<local>", "http://[fd00::1]:80", False),
        ("<-loopback>", "http://engine", False),
        ("10.*", "http://10.1.2.3:80", True),
        ("10.*", "http://engine", False),
        ("[fd00::1]", "http://[fd00::1]:80", True),
        ("[fd00::1]:81", "http://[fd00::1]:80", False),
        ("[::1", "http://engine", False),
        ("*", FAR, True),
    ],
)
def test_exceptions_of_windows_then_held_against_the_name_as_written(
    exceptions, address, is_excepted
):
    """Whole names, in any letters; a port or a scheme narrows them."""
    assert holds(exceptions, urlsplit(address)) is is_excepted


def test_route_on_windows_then_exceptions_hold_and_no_name_is_looked_up(registry):
    """Runs on the window's thread: a name server that is gone would freeze it."""
    assert route_to(Server(FAR), "").name.shown == "proxy.example:3128"
    registry |= {"ProxyEnable": 1, "ProxyOverride": "*.other.example;<local>"}
    assert route_to(Server(FAR), "").name.shown == "proxy.example:3128"
    registry["ProxyOverride"] = "*.corp.example"
    assert route_to(Server(FAR), "").name.shown == ""
    registry["ProxyEnable"] = 0
    assert route_to(Server(FAR), "").name.shown == "proxy.example:3128"


def test_route_on_windows_when_a_variable_is_set_then_the_registry_is_not_asked(
    registry, monkeypatch
):
    """Variables beat the system's settings, exceptions too; they are text and look up nothing."""
    registry |= {"ProxyEnable": 1, "ProxyOverride": "*"}
    asked = []
    monkeypatch.setattr("urllib.request.proxy_bypass", asked.append)
    monkeypatch.setenv("https_proxy", "http://other.example:1")
    assert not is_passed_by(urlsplit(FAR))
    assert asked == ["engine.corp.example:8443"]


@pytest.mark.parametrize(
    ("exception", "is_excepted"),
    [("corp.example", True), ("engine.corp.example:8443", True), ("corp.example:1", False)],
)
def test_exception_of_the_environment_then_it_may_name_a_port(monkeypatch, exception, is_excepted):
    """As the jobs of the hub read them."""
    monkeypatch.setenv("https_proxy", "http://proxy.example:3128")
    monkeypatch.setenv("no_proxy", exception)
    assert is_passed_by(urlsplit(FAR)) is is_excepted
