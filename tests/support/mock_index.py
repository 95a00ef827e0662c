"""A package index on loopback, and small wheels: what the runtime's installation is tried on.

Serves `/simple/NAME/` and the files, resumably; faults are those of `mock_hub`.
"""

import hashlib
import json
import threading
import zipfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import msgspec

from engine.protocol.runtime_lock import RuntimeLock, Wheel, this_platform, this_python
from tests.support.mock_hub import Fault, send_file, short


@dataclass
class MockIndex:
    """Serves the wheels of a folder.

    Attributes:
        served: body bytes by file. requests: paths in order.
        is_html: answer as an old index does.
        page: answer this instead of a list.
    """

    folder: Path
    faults: dict[str, Fault] = field(default_factory=dict)
    served: Counter = field(default_factory=Counter)
    requests: list[str] = field(default_factory=list)
    is_html: bool = False
    page: bytes = b""
    url: str = ""

    def fault(self, name: str) -> Fault:
        return self.faults.setdefault(name, Fault())

    def listing(self, package: str) -> bytes:
        files = [p.name for p in sorted(self.folder.glob("*.whl")) if p.name.startswith(package)]
        if self.page:
            return self.page
        if self.is_html:
            links = "".join(f'<a href="../../files/{name}#sha256=0">{name}</a>' for name in files)
            return f"<!DOCTYPE html><html><body>{links}</body></html>".encode()
        entries = [{"filename": name, "url": f"{self.url}/files/{name}"} for name in files]
        return json.dumps({"files": entries}).encode()


@contextmanager
def serve_index(index: MockIndex) -> Iterator[MockIndex]:
    """Run the index while the block lasts; its address for the job is `url + "/simple"`."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            index.requests.append(self.path)
            head, _, name = self.path.rstrip("/").rpartition("/")
            file = index.folder / name
            try:
                if head == "/simple":
                    short(self, 200, index.listing(name))
                elif head == "/files" and file.is_file():
                    send_file(self, index, file)
                else:
                    short(self, 404)
            except (BrokenPipeError, ConnectionResetError):
                self.close_connection = True

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    index.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield index
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)


def write_wheel(folder: Path, name: str, files: dict[str, bytes]) -> Wheel:
    """Write a wheel of version 1.0 and return its line of a lock."""
    path = folder / f"{name}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for place, data in files.items():
            archive.writestr(place, data)
        archive.writestr(f"{name}-1.0.dist-info/METADATA", f"Name: {name}\nVersion: 1.0\n")
    with zipfile.ZipFile(path) as archive:
        unpacked = sum(entry.file_size for entry in archive.infolist())
    raw = path.read_bytes()
    return Wheel(
        name=name,
        version="1.0",
        file=path.name,
        size=len(raw),
        unpacked=unpacked,
        sha256=hashlib.sha256(raw).hexdigest(),
    )


def make_lock(*wheels: Wheel) -> RuntimeLock:
    """Return a lock for this interpreter."""
    return RuntimeLock(platform=this_platform(), python=this_python(), build="cpu", wheels=wheels)


def write_lock(path: Path, lock: RuntimeLock) -> Path:
    """Write a lock file."""
    path.write_bytes(msgspec.json.encode(lock))
    return path


def write_bundle(path: Path, lock: RuntimeLock, folder: Path) -> Path:
    """Write an offline bundle of the wheels in a folder."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("lock.json", msgspec.json.encode(lock))
        for wheel in lock.wheels:
            archive.write(folder / wheel.file, wheel.file)
    return path
