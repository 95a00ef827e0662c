"""Whether this build can speak TLS; a step of the smoke run.

Qt finds its TLS in a plugin, and on Linux the plugin finds OpenSSL by name while the app runs. Such
a lack stops no start: updates and remote engines fail at the first https address. So the step lets
Qt begin a conversation with a listener of this process. It needs no network and no certificate.
"""

from typing import Any

from PySide6.QtNetwork import (
    QAbstractSocket,
    QHostAddress,
    QNetworkProxy,
    QSslConfiguration,
    QSslSocket,
    QTcpServer,
)

from app.smoke_wait import StepFailed, Waiter

HELLO = b"\x16\x03"  # how every TLS client begins: a handshake record, major version 3
REFUSAL = bytes((0x15, 3, 3, 0, 2, 2, 40))  # an alert: fatal, handshake failure
LIMIT_S = 10


def speak_tls() -> dict[str, Any]:
    """Say hello by TLS and be refused in TLS.

    Returns: which library did it, and how many authorities the system trusts.

    Raises:
        StepFailed: Qt found no TLS, or what it found does not work.
    """
    if not QSslSocket.supportsSsl():
        raise StepFailed(
            "Qt has no TLS, so https addresses cannot be reached. It found these backends: "
            f"{', '.join(QSslSocket.availableBackends()) or 'none'}. Qt's tls plugins must be in "
            "the build, and on Linux libssl and libcrypto too."
        )
    wait, server, client = Waiter(), QTcpServer(), QSslSocket()
    for end in (server, client):
        end.setProxy(QNetworkProxy(QNetworkProxy.ProxyType.NoProxy))
    if not server.listen(QHostAddress(QHostAddress.SpecialAddress.LocalHost)):
        raise StepFailed(f"No port of this machine can be listened on: {server.errorString()}.")

    def call() -> None:
        client.connectToHostEncrypted(server.serverAddress().toString(), server.serverPort())

    try:
        wait.signal(server.newConnection, "A TLS connection", LIMIT_S, act=call)
        peer = server.nextPendingConnection()
        wait.until(
            lambda: peer.bytesAvailable() >= len(HELLO), peer.readyRead, "A TLS hello", LIMIT_S
        )
        said = bytes(peer.readAll().data())
        if not said.startswith(HELLO):
            raise StepFailed(f"Qt began a TLS connection with {said[:8].hex(' ')}.")
        (error,) = wait.signal(
            client.errorOccurred, "The end of TLS", LIMIT_S, act=lambda: peer.write(REFUSAL)
        )
        if error != QAbstractSocket.SocketError.SslHandshakeFailedError:
            raise StepFailed(f"A refusal in TLS was not understood: {client.errorString()}.")
    finally:
        client.abort()
        server.close()
    return {
        "backend": QSslSocket.activeBackend(),
        "library": QSslSocket.sslLibraryVersionString(),
        "authorities": len(QSslConfiguration.systemCaCertificates()),
    }
