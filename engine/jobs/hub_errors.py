"""What can go wrong between here and a hub, as one sentence for each kind (cases D-10, D-11).

Never holds a token or a password. Called by `engine.jobs.hub`.
"""

import socket
import ssl
from dataclasses import dataclass
from email.message import Message
from urllib.parse import urlsplit

from engine.protocol.errors import (
    EngineError,
    GatedModel,
    InvalidRequest,
    NetworkError,
    NotOnHub,
    TokenNeeded,
)

_TRANSIENT = (408, 425, 429, 500, 502, 503, 504)


OF_SETTINGS, OF_SYSTEM = "settings", "system"


@dataclass(frozen=True, slots=True)
class HubPlace:
    """Where requests go.

    Attributes:
        endpoint: the hub.
        proxy: the proxy before it; "" = none.
        has_token: whether a token is sent.
        proxy_source: `OF_SETTINGS`, `OF_SYSTEM` (its network settings), or an environment variable.
    """

    endpoint: str
    proxy: str = ""
    has_token: bool = False
    proxy_source: str = OF_SETTINGS


class RangeRefused(NetworkError):
    """The server has no bytes from the wanted offset on (HTTP 416)."""


def refused(status: int, headers: "Message[str, str]", repo: str, place: HubPlace) -> EngineError:
    """Return the error for an HTTP status of 400 and above."""
    page = f"{place.endpoint}/{repo}"
    if status == 407:
        return _proxy_login(place)
    if status == 401:
        return _no_entry(repo, page, headers.get("X-Error-Code", ""), place)
    if status == 403:
        return GatedModel(
            f"Access to {repo} must be granted first: its licence is accepted on its page.",
            f"Open {page}, accept, then try again.",
        )
    if status in (404, 410):
        return NotOnHub(
            f"{place.endpoint} has no {repo} with this file and revision.",
            "Check the name; it may have been renamed or taken away.",
        )
    if status == 416:
        return RangeRefused(f"{place.endpoint} has fewer bytes than it lists.", "", may_retry=True)
    if status in _TRANSIENT:
        wait = headers.get("Retry-After", "")
        return NetworkError(
            f"{place.endpoint} is busy or out of order (HTTP {status}).",
            "Try again later.",
            may_retry=True,
            is_busy=True,
            wait_s=float(wait) if wait.isdecimal() else 0.0,
        )
    return NetworkError(
        f"{place.endpoint} refused the request (HTTP {status}).",
        "Check hub and proxy in Settings.",
    )


def lost(problem: Exception, place: HubPlace) -> NetworkError:
    """Return the error for a connection that was not made, or broke."""
    if any(mark in str(problem) for mark in ("failed: 407", "Error 407")):
        return _proxy_login(place)
    hint = "Check the network connection, then try again."
    if isinstance(problem, ssl.SSLCertVerificationError):
        return NetworkError(
            f"The certificate of {_host(place.endpoint)} is not trusted: {problem.verify_message}.",
            "The clock may be wrong, or a program on this network reads along.",
        )
    who = _host(place.endpoint)
    if place.proxy:
        who, hint = f"the proxy {_shown(place.proxy)}", _check_proxy(place)
    if isinstance(problem, socket.gaierror):
        return NetworkError(
            f"No address is known for {who}: no network, or a typing error.", hint, may_retry=True
        )
    if isinstance(problem, ConnectionRefusedError):
        return NetworkError(
            f"Nothing answers at {who}: the connection was refused.", hint, may_retry=True
        )
    if isinstance(problem, TimeoutError):
        return NetworkError(f"No answer from {who} in time.", hint, may_retry=True)
    if isinstance(problem, OSError) and "Tunnel" in str(problem):
        return NetworkError(f"The connection through {who} failed: {problem}.", hint)
    return NetworkError(f"The connection to {who} was lost.", hint, may_retry=True)


def useless_proxy(place: HubPlace) -> InvalidRequest:
    """Return the error for a proxy that is no address: nothing was sent."""
    return InvalidRequest(
        f"The proxy {_shown(place.proxy)} cannot be used; nothing was sent.", _check_proxy(place)
    )


def _no_entry(repo: str, page: str, code: str, place: HubPlace) -> TokenNeeded:
    if place.has_token:
        return TokenNeeded(
            f"The hub does not accept the access token for {repo}.",
            "It may have expired, or may not read this model; enter another one.",
        )
    if code == "GatedRepo":
        return TokenNeeded(
            f"{repo} is only given to people who are signed in: an access token is needed.",
            f"Accept its licence at {page}, then enter a token.",
        )
    return TokenNeeded(
        f"{repo} does not exist, or is private and needs an access token.",
        "Check the name, or enter a token.",
    )


def _proxy_login(place: HubPlace) -> NetworkError:
    return NetworkError(
        f"The proxy {_shown(place.proxy)} wants a login, or does not accept it.",
        f"{_origin(place)}Write it as http://user:password@host:port in Settings.",
    )


def _check_proxy(place: HubPlace) -> str:
    """Say where a proxy that does not work is to be corrected."""
    origin = _origin(place)
    if not origin:
        return "Check the proxy in Settings."
    return f'{origin}Correct it there, or write another one, or "direct", in Settings.'


def _origin(place: HubPlace) -> str:
    """Say who names the proxy; "" if Settings do."""
    if place.proxy_source == OF_SETTINGS:
        return ""
    if place.proxy_source == OF_SYSTEM:
        return "It comes from the network settings of this PC. "
    return f"It comes from the environment variable {place.proxy_source}. "


def _host(address: str) -> str:
    return urlsplit(address).hostname or address


def _shown(address: str) -> str:
    """Return an address, which may be none, without user and password."""
    scheme, mark, rest = address.partition("://")
    if not mark or not scheme.isalnum():  # it is part of a password
        scheme, rest = "http", address
    return f"{scheme}://{rest.rpartition('@')[2]}"
