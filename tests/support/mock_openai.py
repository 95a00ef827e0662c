"""An OpenAI-compatible server on loopback that streams, drops, stalls and refuses as it is told."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


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
    """

    events: list = field(default_factory=lambda: [chunk("Hello"), chunk(" you"), USAGE, DONE])
    models: list = field(default_factory=lambda: ["big-moe", "small"])
    status: int = 200
    body: bytes = b""
    headers: dict = field(default_factory=dict)
    is_cut: bool = False
    requests: list = field(default_factory=list)
    released: threading.Event = field(default_factory=threading.Event)
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
                self.mock.released.wait(30)
                continue
            self.wfile.write(b"%x\r\n%b\r\n" % (len(event), event))
            self.wfile.flush()
        if not self.mock.is_cut:
            self.wfile.write(b"0\r\n\r\n")


@contextmanager
def serve(mock: MockOpenAi) -> Iterator[MockOpenAi]:
    """Run the server while the block lasts."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads, server.mock = True, mock
    mock.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield mock
    finally:
        mock.released.set()
        server.shutdown()
        server.server_close()
        thread.join(5)
