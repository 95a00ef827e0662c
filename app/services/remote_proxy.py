"""Which proxy stands before a remote engine: the one of the settings, never before this computer.

Reads addresses as the jobs of the hub read them (`engine.jobs.hub`): "" follows the system,
"direct" uses none. Sends nothing.
"""

import urllib.request
from dataclasses import dataclass
from urllib.parse import SplitResult, unquote, urlsplit

from PySide6.QtNetwork import QNetworkProxy

from app.services.remote_wire import Server, is_loopback

DIRECT = "direct"


class BadProxy(Exception):
    """The proxy of the settings is no address; nothing may be sent around it."""


@dataclass(frozen=True, slots=True)
class Route:
    """How a request leaves.

    Attributes:
        proxy: for the request.
        shown: the proxy for people, without user and password; "" = none.
    """

    proxy: QNetworkProxy
    shown: str = ""


def route_to(server: Server, setting: str) -> Route:
    """Return the way to a server. Raises: BadProxy."""
    parts = urlsplit(server.base)
    host = parts.hostname or ""
    address = "" if is_loopback(host) else _address(setting.strip(), parts.scheme, host)
    if not address:
        return Route(QNetworkProxy(QNetworkProxy.ProxyType.NoProxy))
    found = _read(address)
    proxy = QNetworkProxy(
        QNetworkProxy.ProxyType.HttpProxy,
        found.hostname or "",
        found.port or (443 if found.scheme == "https" else 80),
        unquote(found.username or ""),
        unquote(found.password or ""),
    )
    return Route(proxy, found.netloc.rpartition("@")[2])


def _address(setting: str, scheme: str, host: str) -> str:
    if setting:
        return "" if setting == DIRECT else setting
    if urllib.request.proxy_bypass(host):
        return ""
    return urllib.request.getproxies().get(scheme, "")


def _read(address: str) -> SplitResult:
    try:
        parts = urlsplit(address if "://" in address else f"http://{address}")
        is_good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_good = False
    if not is_good:
        raise BadProxy
    return parts
