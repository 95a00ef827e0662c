"""Why a remote engine could not be asked, or broke off: Qt's network errors as sentences.

Pure: knows Qt's enumerations and no socket. Called by `app.services.remote_client`.
"""

from collections.abc import Collection
from dataclasses import dataclass

from PySide6.QtNetwork import QNetworkReply, QSslError

from app.wording import tr
from engine.protocol import messages as m
from engine.protocol.errors import ErrorCode

_Net = QNetworkReply.NetworkError
_Tls = QSslError.SslError
_PROXY = {
    _Net.ProxyConnectionRefusedError,
    _Net.ProxyConnectionClosedError,
    _Net.ProxyNotFoundError,
    _Net.ProxyTimeoutError,
    _Net.ProxyAuthenticationRequiredError,
    _Net.UnknownProxyError,
}
_DATES = {_Tls.CertificateExpired, _Tls.CertificateNotYetValid}


OF_SETTINGS, OF_SYSTEM = "settings", "system"


@dataclass(frozen=True, slots=True)
class ProxyName:
    """A proxy as people know it.

    Attributes:
        shown: its address without user and password; "" = none stands before the server.
        source: `OF_SETTINGS`, `OF_SYSTEM` (its network settings), or an environment variable.
    """

    shown: str = ""
    source: str = OF_SETTINGS


NO_PROXY = ProxyName()


@dataclass(frozen=True, slots=True)
class Fault:
    """How a connection ended.

    Attributes:
        error: of Qt.
        host, proxy: where it went.
        text: Qt's own words.
        has_begun: an answer had begun.
        certificate: what was found wrong with the server's certificate.
    """

    error: QNetworkReply.NetworkError
    host: str
    proxy: ProxyName = NO_PROXY
    text: str = ""
    has_begun: bool = False
    certificate: Collection[QSslError.SslError] = ()


def lost(fault: Fault) -> m.Error:
    """Return the sentence for a connection that was not made, or broke."""
    host = fault.host
    if fault.error == _Net.SslHandshakeFailedError:
        return _untrusted(fault)
    if fault.error in _PROXY:
        return _proxy(fault)
    if fault.error == _Net.HostNotFoundError:
        return network(tr("No address is known for {host}.", host=host))
    if fault.error == _Net.ConnectionRefusedError:
        return network(tr("Nothing answers at {host}.", host=host))
    if fault.error == _Net.TimeoutError:
        return network(tr("No answer from {host} in time.", host=host))
    if fault.has_begun or fault.error == _Net.RemoteHostClosedError:
        return cut(host)
    if fault.proxy.shown:  # Qt calls a refused tunnel an unknown error
        return _proxy(fault)
    return network(tr("{host} cannot be reached: {reason}", host=host, reason=fault.text))


def cut(host: str) -> m.Error:
    """Return the sentence for an answer without an end."""
    return network(tr("The connection to {host} was cut before the reply was whole.", host=host))


def silent(host: str) -> m.Error:
    """Return the sentence for an answer that was waited for too long."""
    return network(tr("{host} has been silent for too long.", host=host))


def no_such_server(host: str) -> m.Error:
    """Return the sentence for an answer that is none."""
    words = tr("{host} did not answer as an OpenAI-compatible server does.", host=host)
    return network(words, tr("Check the address in Settings; it often ends in /v1."))


def bad_proxy() -> m.Error:
    """Return the sentence for a proxy that is no address: nothing was sent."""
    return m.Error(
        code=ErrorCode.INVALID_REQUEST,
        message=tr("The proxy in Settings is no address; nothing was sent."),
        hint=tr("Write it as http://user:password@host:port in Settings."),
    )


def useless_proxy(proxy: ProxyName) -> m.Error:
    """Return the sentence for a proxy from elsewhere that is of no use: nothing was sent."""
    return m.Error(
        code=ErrorCode.INVALID_REQUEST,
        message=tr("The proxy {proxy} cannot be used; nothing was sent.", proxy=proxy.shown),
        hint=_check(proxy),
    )


def tls_proxy(proxy: ProxyName) -> m.Error:
    """Return the sentence for a proxy that would be spoken to over TLS: nothing was sent."""
    hint = _by_source(
        proxy,
        settings=tr('Only http:// proxies work here; write one in Settings, or "direct" for none.'),
        system=tr(
            "It comes from the network settings of this PC. Only http:// proxies work here; write "
            'one in Settings, or "direct" for none.'
        ),
        variable=tr(
            "It comes from the environment variable {name}. Only http:// proxies work here; write "
            'one in Settings, or "direct" for none.',
            name=proxy.source,
        ),
    )
    words = tr("The proxy {proxy} is asked for by https; nothing was sent.", proxy=proxy.shown)
    return m.Error(code=ErrorCode.INVALID_REQUEST, message=words, hint=hint)


def network(words: str, hint: str = "") -> m.Error:
    """Return an error of the network."""
    hint = hint or tr("Check the network and the server; what came is kept.")
    return m.Error(code=ErrorCode.NETWORK, message=words, hint=hint)


def proxy_login(proxy: ProxyName) -> m.Error:
    """Return the sentence for a proxy that wants to know who asks."""
    words = tr("The proxy {proxy} wants a login, or does not accept it.", proxy=proxy.shown)
    hint = _by_source(
        proxy,
        settings=tr("Write it as http://user:password@host:port in Settings."),
        system=tr(
            "It comes from the network settings of this PC. Write it as "
            "http://user:password@host:port in Settings."
        ),
        variable=tr(
            "It comes from the environment variable {name}. Write it there or in Settings as "
            "http://user:password@host:port.",
            name=proxy.source,
        ),
    )
    return network(words, hint)


def _check(proxy: ProxyName) -> str:
    """Say where a proxy that does not work is to be corrected."""
    return _by_source(
        proxy,
        settings=tr("Check the proxy in Settings."),
        system=tr(
            "It comes from the network settings of this PC. Correct it there, or write another "
            'one, or "direct", in Settings.'
        ),
        variable=tr(
            "It comes from the environment variable {name}. Correct it there, or write another "
            'one, or "direct", in Settings.',
            name=proxy.source,
        ),
    )


def _by_source(proxy: ProxyName, settings: str, system: str, variable: str) -> str:
    """Return the words for where a proxy comes from."""
    return {OF_SETTINGS: settings, OF_SYSTEM: system}.get(proxy.source, variable)


def _proxy(fault: Fault) -> m.Error:
    error, proxy = fault.error, fault.proxy.shown
    if error == _Net.ProxyAuthenticationRequiredError:
        return proxy_login(fault.proxy)
    words = tr("The proxy {proxy} cannot be used: {reason}", proxy=proxy, reason=fault.text)
    if error == _Net.ProxyConnectionRefusedError:
        words = tr("Nothing answers at the proxy {proxy}.", proxy=proxy)
    elif error == _Net.ProxyNotFoundError:
        words = tr("No address is known for the proxy {proxy}.", proxy=proxy)
    elif error == _Net.ProxyTimeoutError:
        words = tr("No answer from the proxy {proxy} in time.", proxy=proxy)
    return network(words, _check(fault.proxy))


def _untrusted(fault: Fault) -> m.Error:
    """Return the sentence for a connection that is not secure; nothing was sent over it."""
    host, found = fault.host, set(fault.certificate)
    if not found:
        hint = tr("If the server has no TLS, write http:// before its address in Settings.")
        return network(tr("No secure connection to {host} came about.", host=host), hint)
    if found & _DATES:
        hint = tr("The clock of this PC may be wrong; else the server needs a new certificate.")
        return network(tr("The certificate of {host} is not valid today.", host=host), hint)
    if _Tls.HostNameMismatch in found:
        hint = tr("Check the address in Settings; it must have the name in the certificate.")
        return network(tr("The certificate of {host} is for another name.", host=host), hint)
    hint = tr("The clock may be wrong, or the server has a certificate of its own.")
    return network(tr("The certificate of {host} is not trusted.", host=host), hint)
