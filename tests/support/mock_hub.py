"""A model hub on loopback that behaves as badly as it is told: a thread, no outside network.

Counts every byte and request. Faults are set as attributes or per file in `faults`.
"""

import hashlib
import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

REPO = "maker/tiny-moe"
COMMIT = "c0ffee" + "0" * 34
BLOCK = 16 * 1024


@dataclass
class Fault:
    """What is wrong with the answers for one file; counts down where it is a number.

    Attributes:
        cut_at: close the connection after this offset of the file, `cuts` times.
        whole: answer a range with the whole body, this many times.
        damage: flip a byte, this many times.
        short_by: promise and send so many bytes fewer, `shorts` times: truncated, with a good end.
        status: answer this instead, `statuses` times.
        gate: called with (offset) before each block; may block.
    """

    cut_at: int = 0
    cuts: int = 0
    whole: int = 0
    damage: int = 0
    short_by: int = 0
    shorts: int = 0
    status: int = 0
    statuses: int = 0
    gate: Callable[[int], None] | None = None


@dataclass
class MockHub:
    """Serves one repository from a folder.

    Attributes:
        served: body bytes by file. requests: (path, headers) in order.
        need_token: answer 401 without this token, 403 with another one.
    """

    folder: Path
    commit: str = COMMIT
    need_token: str = ""
    is_gated: bool = False
    faults: dict[str, Fault] = field(default_factory=dict)
    served: Counter = field(default_factory=Counter)
    requests: list = field(default_factory=list)
    wrong_hash: tuple[str, ...] = ()
    is_bare: bool = False  # a mirror that lists names only
    redirect_to: str = ""
    hits: list = field(default_factory=list)  # of the search: dicts as the hub sends them
    configs: dict = field(default_factory=dict)  # repository -> config.json, or a status
    url: str = ""

    def listing(self) -> bytes:
        siblings = []
        for path in sorted(self.folder.iterdir()):
            raw = path.read_bytes()
            sha = hashlib.sha256(raw).hexdigest()
            blob = hashlib.sha1(b"blob %d\0" % len(raw) + raw).hexdigest()
            entry = {"rfilename": path.name, "size": len(raw), "blobId": blob}
            if path.suffix == ".safetensors":
                sha = "0" * 64 if path.name in self.wrong_hash else sha
                entry["lfs"] = {"sha256": sha, "size": len(raw), "pointerSize": 134}
            siblings.append({"rfilename": path.name} if self.is_bare else entry)
        siblings.append({"rfilename": "../evil.json", "size": 3, "blobId": "0"})
        siblings.append({"rfilename": "original/params.safetensors", "size": 1 << 50})
        return json.dumps({"id": REPO, "sha": self.commit, "siblings": siblings}).encode()

    def fault(self, name: str) -> Fault:
        return self.faults.setdefault(name, Fault())

    @property
    def paths(self) -> list[str]:
        return [path for path, _ in self.requests]


@contextmanager
def serve(hub: MockHub) -> Iterator[MockHub]:
    """Run the hub while the block lasts."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            path = unquote(urlsplit(self.path).path)
            hub.requests.append((path, dict(self.headers.items())))
            try:
                answer(self, hub, path)
            except (BrokenPipeError, ConnectionResetError):
                self.close_connection = True

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)


def short(handler: BaseHTTPRequestHandler, status: int, body: bytes = b"", **headers: str) -> None:
    handler.send_response(status)
    for name, value in headers.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body)


def search(handler: BaseHTTPRequestHandler, hub: MockHub) -> None:
    """Answer the search by words of the name and all tags."""
    asked = parse_qs(urlsplit(handler.path).query)
    fault = hub.fault("search")
    if fault.gate is not None:
        fault.gate(0)
    if fault.status:
        short(handler, fault.status)
        return
    words, tags = asked["search"][0].casefold(), set(asked.get("filter", []))
    found = [h for h in hub.hits if words in h["id"].casefold() and tags <= set(h.get("tags", []))]
    short(handler, 200, json.dumps(found[: int(asked["limit"][0])]).encode())


def answer(handler: BaseHTTPRequestHandler, hub: MockHub, path: str) -> None:
    if path == "/api/models":
        search(handler, hub)
        return
    repo = "/".join(path.split("/")[1:3])
    if repo in hub.configs and path.endswith("/config.json"):
        config = hub.configs[repo]
        if isinstance(config, int):
            short(handler, config, X_Error_Code="GatedRepo")
        else:
            short(handler, 200, json.dumps(config).encode())
        return
    if path.startswith(f"/api/models/{REPO}/revision/"):
        fault = hub.fault("listing")
        if fault.statuses:
            fault.statuses -= 1
            short(handler, fault.status, Retry_After="0")
        elif hub.need_token and not hub.is_gated and not allowed(handler, hub):
            pass
        else:
            short(handler, 200, hub.listing())
        return
    head, _, name = path.rpartition("/")
    file = hub.folder / name
    if head not in (f"/{REPO}/resolve/{hub.commit}", "/cdn") or not file.is_file():
        short(handler, 404, b"Entry not found")
    elif head == "/cdn" or not hub.need_token or allowed(handler, hub):
        if hub.redirect_to and head != "/cdn":
            short(handler, 302, Location=f"{hub.redirect_to}/cdn/{name}")
        else:
            send_file(handler, hub, file)


def allowed(handler: BaseHTTPRequestHandler, hub: MockHub) -> bool:
    given = handler.headers.get("Authorization", "")
    if given == f"Bearer {hub.need_token}":
        return True
    code = "GatedRepo" if hub.is_gated else "RepoNotFound"
    short(handler, 403 if given and hub.is_gated else 401, X_Error_Code=code)
    return False


def send_file(handler: BaseHTTPRequestHandler, hub: MockHub, file: Path) -> None:
    raw, fault = file.read_bytes(), hub.fault(file.name)
    if fault.statuses:
        fault.statuses -= 1
        short(handler, fault.status, Retry_After="0")
        return
    asked = handler.headers.get("Range", "")
    start = int(asked.removeprefix("bytes=").rstrip("-")) if asked else 0
    if asked and fault.whole:
        fault.whole -= 1
        start = 0
    elif start >= len(raw) > 0:
        short(handler, 416, Content_Range=f"bytes */{len(raw)}")
        return
    elif asked:
        handler.send_response(206)
        handler.send_header("Content-Range", f"bytes {start}-{len(raw) - 1}/{len(raw)}")
    if not (asked and start):
        handler.send_response(200)
    if fault.damage:
        fault.damage -= 1
        raw = raw[:-1] + bytes([raw[-1] ^ 1])
    if fault.shorts:
        fault.shorts -= 1
        raw = raw[: max(start, len(raw) - fault.short_by)]
    handler.send_header("Content-Length", str(len(raw) - start))
    handler.end_headers()
    end = len(raw)
    if fault.cuts:
        fault.cuts -= 1
        end = fault.cut_at
    while start < end:
        if fault.gate is not None:
            fault.gate(start)
        block = raw[start : min(start + BLOCK, end)]
        handler.wfile.write(block)
        hub.served[file.name] += len(block)
        start += len(block)
    if end < len(raw):
        handler.close_connection = True


def write_repo(folder: Path, seed: int = 1) -> Path:
    """Write a small repository: a real tiny checkpoint in three shards, and things nobody needs."""
    from tests.support.checkpoints import write_checkpoint

    write_checkpoint(folder)
    (folder / "LICENSE").write_text("Apache-2.0")
    (folder / "README.md").write_text("# A model")
    (folder / "pytorch_model.bin").write_bytes(b"\0" * 4096)
    (folder / "consolidated.safetensors").write_bytes(b"\0" * 4096)
    return folder
