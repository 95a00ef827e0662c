"""Which proxy stands before a remote engine: of the settings or the system, never for this PC.

Reads addresses as the jobs of the hub read them (`engine.jobs.hub`): "" follows the system,
"direct" uses none. Sends nothing.
"""

import os
import urllib.request
from dataclasses import dataclass
from urllib.parse import SplitResult, unquote, urlsplit

from PySide6.QtNetwork import QNetworkProxy

from app.services.remote_bypass import is_passed_by
from app.services.remote_faults import (
    NO_PROXY,
    OF_SETTINGS,
    OF_SYSTEM,
    ProxyName,
    bad_proxy,
    tls_proxy,
    useless_proxy,
)
from app.services.remote_wire import Server, is_loopback
from engine.protocol import messages as m

DIRECT = "direct"


_SOCKS = ("socks5", "socks5h")
_PORTS = {"http": 80, "socks5": 1080, "socks5h": 1080}


class BadProxy(Exception):
    """The proxy is of no use; nothing may be sent around it. `error` says it to people."""

    def __init__(self, error: m.Error) -> None:
        super().__init__(error.message)
        self.error = error


@dataclass(frozen=True, slots=True)
class Route:
    """How a request leaves.

    Attributes:
        proxy: for the request.
        name: the proxy for people.
    """

    proxy: QNetworkProxy
    name: ProxyName = NO_PROXY


def route_to(server: Server, setting: str) -> Route:
    """Return the way to a server. Raises: BadProxy."""
    parts = urlsplit(server.base)
    setting = setting.strip()
    address = "" if is_loopback(parts.hostname or "") else _address(setting, parts)
    if not address:
        return Route(QNetworkProxy(QNetworkProxy.ProxyType.NoProxy))
    source = OF_SETTINGS if setting else _variable(parts.scheme) or OF_SYSTEM
    found = _read(address, source)
    kind = QNetworkProxy.ProxyType.HttpProxy
    if found.scheme in _SOCKS:
        kind = QNetworkProxy.ProxyType.Socks5Proxy
    proxy = QNetworkProxy(
        kind,
        found.hostname or "",
        found.port or _PORTS[found.scheme],
        unquote(found.username or ""),
        unquote(found.password or ""),
    )
    return Route(proxy, ProxyName(_shown(found.netloc), source))


def _address(setting: str, server: SplitResult) -> str:
    if setting:
        return "" if setting == DIRECT else setting
    if is_passed_by(server):
        return ""
    return urllib.request.getproxies().get(server.scheme, "")


def _variable(scheme: str) -> str:
    """Return the environment variable that names a proxy, which beats the system's settings."""
    name = f"{scheme}_proxy"
    set_now = [one for one, value in os.environ.items() if value and one.lower() == name]
    return name if name in set_now else "".join(set_now[:1])


def _read(address: str, source: str) -> SplitResult:
    """Return the parts of an address; SOCKS is for others than ours, as jobs know none."""
    is_ours = source == OF_SETTINGS
    schemes = ("http", "https", *(() if is_ours else _SOCKS))
    try:
        parts = urlsplit(address if "://" in address else f"http://{address}")
        is_good = parts.scheme in schemes and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_good = False
    if not is_good:
        useless = ProxyName(_shown(address), source)
        raise BadProxy(bad_proxy() if is_ours else useless_proxy(useless))
    if parts.scheme == "https":  # Qt cannot speak TLS to a proxy
        raise BadProxy(tls_proxy(ProxyName(_shown(parts.netloc), source)))
    return parts


def _shown(address: str) -> str:
    """Return an address, which may be none, without user and password."""
    scheme, mark, rest = address.partition("://")
    if not mark or not scheme.isalnum():  # it is part of a password
        return address.rpartition("@")[2]
    return f"{scheme}://{rest.rpartition('@')[2]}"
