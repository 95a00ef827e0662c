"""An OpenAI-compatible server on loopback that streams, drops, stalls and refuses as it is told.

Being told whole addresses, it can stand for a proxy too; tunnels it refuses.
"""

import datetime
import json
import select
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


def chunk(content: str = "", **more: object) -> bytes:
    """One event of the stream."""
    delta = {"content": content} if content else {}
    reason = more.pop("finish_reason", None)
    body = {"choices": [{"index": 0, "delta": {**delta, **more}, "finish_reason": reason}]}
    return b"data: " + json.dumps(body).encode() + b"\n\n"


USAGE = (
    b'data: {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 3,'
    b' "prompt_tokens_details": {"cached_tokens": 4}}}\n\n'
)
DONE = b"data: [DONE]\n\n"


@dataclass
class MockOpenAi:
    """What the server does, and what it was asked.

    Attributes:
        events: of a streamed reply; None stalls until `released`.
        status, body, headers: instead of a reply, where `status` is not 200.
        is_cut: close the connection after the events, without the end of the body.
        hung_up: the client closed the connection during a stall.
    """

    events: list = field(default_factory=lambda: [chunk("Hello"), chunk(" you"), USAGE, DONE])
    models: list = field(default_factory=lambda: ["big-moe", "small"])
    status: int = 200
    body: bytes = b""
    headers: dict = field(default_factory=dict)
    is_cut: bool = False
    requests: list = field(default_factory=list)
    released: threading.Event = field(default_factory=threading.Event)
    hung_up: threading.Event = field(default_factory=threading.Event)
    url: str = ""


class Handler(BaseHTTPRequestHandler):
    """Answers as the mock of its server says."""

    protocol_version = "HTTP/1.1"

    @property
    def mock(self) -> MockOpenAi:
        return self.server.mock

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        self.note(b"")
        found = {"data": [{"id": name} for name in self.mock.models]}
        if self.mock.status == 200:
            self.plain(200, json.dumps(found).encode())
        else:
            self.plain(self.mock.status, self.mock.body)

    def do_CONNECT(self) -> None:
        self.note(b"")
        self.plain(502 if self.mock.status == 200 else self.mock.status, b"")

    def do_POST(self) -> None:
        self.note(self.rfile.read(int(self.headers["Content-Length"])))
        if self.mock.status != 200:
            self.plain(self.mock.status, self.mock.body)
            return
        with suppress(BrokenPipeError, ConnectionResetError):
            self.stream()
        self.close_connection = True

    def note(self, body: bytes) -> None:
        sent = json.loads(body) if body else None
        self.mock.requests.append((self.path, dict(self.headers.items()), sent))

    def plain(self, status: int, body: bytes) -> None:
        self.send_response(status)
        for name, value in self.mock.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def stream(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for event in self.mock.events:
            if event is None:
                self.stall()
                continue
            self.wfile.write(b"%x\r\n%b\r\n" % (len(event), event))
            self.wfile.flush()
        if not self.mock.is_cut:
            self.wfile.write(b"0\r\n\r\n")

    def stall(self) -> None:
        """Say nothing until released, or until the client is gone."""
        while not self.mock.released.wait(0.02):
            readable, _, _ = select.select([self.connection], [], [], 0)
            if readable and not self.connection.recv(1, socket.MSG_PEEK):
                self.mock.hung_up.set()
                return


def certificate(folder: Path, name: str, days: tuple[int, int] = (-1, 1)) -> ssl.SSLContext:
    """Return a server's side of TLS with a certificate of its own, valid from and to some days."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    who = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    begin, end = (datetime.datetime.now(datetime.UTC) + datetime.timedelta(day) for day in days)
    made = (
        x509.CertificateBuilder(who, who, key.public_key(), x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(end)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    secret = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    path = folder / "server.pem"
    path.write_bytes(secret + made.public_bytes(serialization.Encoding.PEM))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path)
    return context


class Server(ThreadingHTTPServer):
    """A handshake that fails is the client's affair."""

    def handle_error(self, *_: object) -> None:
        pass


@contextmanager
def serve(mock: MockOpenAi, tls: ssl.SSLContext | None = None) -> Iterator[MockOpenAi]:
    """Run the server while the block lasts."""
    server = Server(("127.0.0.1", 0), Handler)
    server.daemon_threads, server.mock = True, mock
    if tls is not None:
        server.socket = tls.wrap_socket(
            server.socket, server_side=True, do_handshake_on_connect=False
        )
    mock.url = f"http{'s' if tls else ''}://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield mock
    finally:
        mock.released.set()
        server.shutdown()
        server.server_close()
        thread.join(5)
