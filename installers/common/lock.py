"""Make the list of the engine's libraries for one platform, Python and build of torch.

`python -m installers.common.lock --build cuda --python 3.12` writes
`resources/runtime/linux-x86_64-cp312-cuda.json`. pip's own resolver says which wheels belong
together; nothing is downloaded: sizes come from the ends of the archives. No address is written,
see `engine/protocol/runtime_lock.py`. pip's configuration and `--pip ...` say where to look.
"""

import argparse
import io
import json
import subprocess
import sys
import tempfile
import tomllib
import urllib.request
import zipfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, get_args

import msgspec

from engine.protocol.runtime_lock import Build, RuntimeLock, Wheel, decode_lock
from installers.common.freeze import ENGINE_ONLY

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "resources" / "runtime"
# tokenizers would bring a client of a model hub with some twenty packages, which it only imports
# when it is asked to download.
ALONE = ("tokenizers",)
ALSO = ("numpy",)  # torch's bridge to arrays; the frozen engine of a shell has none
# Tags of wheels that the platform takes, besides those for any platform.
PLATFORMS = {
    "linux-x86_64": [f"manylinux_2_{minor}_x86_64" for minor in range(34, 16, -1)]
    + ["manylinux2014_x86_64"],
    "win32-x86_64": ["win_amd64"],
}


class NotLockable(Exception):
    """A list cannot be made; the text says why."""


def roots(torch: str) -> list[str]:
    """Return what is asked for: the engine's part of pyproject.toml, torch as pinned.

    Args:
        torch: version with its local part, such as 2.13.0+cpu. The plain one is the CUDA build on
            Linux, which brings triton and NVIDIA's libraries by itself, and a CPU build on Windows.
    """
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = {*ENGINE_ONLY, *ALSO} - {"torch", "triton"}
    found = [line for line in project["dependencies"] if _name(line) in wanted]
    return [f"torch==={torch}", *found]  # exactly: a plain version has no local part


def same_versions(path: Path) -> list[str]:
    """Return the packages of another lock: pip judges conditions by the machine it runs on.

    So a list for Windows is made on Windows, or from that of the CPU build for Linux.
    """
    lock = decode_lock(path.read_bytes(), path.name)
    return [f"{wheel.name}==={wheel.version.partition('+')[0]}" for wheel in lock.wheels]


def _name(requirement: str) -> str:
    for index, letter in enumerate(requirement):
        if letter not in "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.":
            return requirement[:index].lower()
    return requirement.lower()


def resolve(wanted: Sequence[str], platform: str, python: str, more: Sequence[str]) -> list[Any]:
    """Return pip's report of what it would install. Raises: NotLockable with pip's words."""
    tags = [word for tag in PLATFORMS[platform] for word in ("--platform", tag)]
    with tempfile.TemporaryDirectory() as nowhere:
        words = [
            *(sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--report", "-"),
            *("--ignore-installed", "--only-binary=:all:", "--target", nowhere),
            *("--python-version", python, "--implementation", "cp", *tags, *more, *wanted),
        ]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NotLockable(done.stderr.strip()[-2000:])
    items: list[Any] = json.loads(done.stdout)["install"]
    return items


def wheel_of(item: dict[str, Any]) -> Wheel:
    """Return the line of a lock for an entry of pip's report."""
    url = item["download_info"]["url"]
    facts, version = item["metadata"], str(item["metadata"]["version"])
    size, unpacked = sizes(url)
    local = version.partition("+")[2]
    return Wheel(
        name=facts["name"],
        version=version,
        file=urllib.request.url2pathname(url.rpartition("/")[2].partition("#")[0]),
        size=size,
        unpacked=unpacked,
        sha256=item["download_info"]["archive_info"]["hashes"]["sha256"],
        channel=f"torch-{local}" if local else "",
    )


def sizes(url: str) -> tuple[int, int]:
    """Return the bytes of an archive, and those of its files; only its end is read."""
    with zipfile.ZipFile(_Remote(url)) as archive:
        unpacked = sum(entry.file_size for entry in archive.infolist())
        return archive.fp.seek(0, io.SEEK_END), unpacked  # type: ignore[union-attr]


class _Remote(io.RawIOBase):
    """A file at an address, read by ranges."""

    def __init__(self, url: str) -> None:
        self._url, self._at = url, 0
        self._local = url.startswith("file:")
        path = urllib.request.url2pathname(url.removeprefix("file://"))
        self._size = Path(path).stat().st_size if self._local else _length(url)
        self._path = path

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = max(0, base + offset)
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401 - any writable buffer
        most = min(len(buffer), max(0, self._size - self._at))
        data = self._range(self._at, most) if most else b""
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)

    def _range(self, start: int, count: int) -> bytes:
        if self._local:
            with open(self._path, "rb") as file:
                file.seek(start)
                return file.read(count)
        span = {"Range": f"bytes={start}-{start + count - 1}"}
        with urllib.request.urlopen(urllib.request.Request(self._url, headers=span)) as answer:
            if answer.status != 206:
                raise NotLockable(f"{self._url} gives no ranges.")
            data: bytes = answer.read()
        return data


def _length(url: str) -> int:
    with urllib.request.urlopen(urllib.request.Request(url, method="HEAD")) as answer:
        return int(answer.headers["Content-Length"])


def make(options: argparse.Namespace) -> RuntimeLock:
    """Return the lock that the command line asks for. Raises: NotLockable."""
    platform, python, more = options.platform, options.python, list(options.pip)
    if options.like is not None:
        items = resolve(same_versions(options.like), platform, python, [*more, "--no-deps"])
    else:
        wanted = roots(options.torch)
        alone = [line for line in wanted if _name(line) in ALONE]
        others = [line for line in wanted if _name(line) not in ALONE]
        items = resolve(others, platform, python, more)
        items += resolve(alone, platform, python, [*more, "--no-deps"])
    wheels = sorted((wheel_of(item) for item in items), key=lambda wheel: wheel.name.lower())
    return RuntimeLock(
        platform=options.platform,
        python="cp" + options.python.replace(".", ""),
        build=options.build,
        wheels=tuple(wheels),
    )


def write(lock: RuntimeLock, folder: Path) -> Path:
    """Write a lock under its usual name, after reading it back."""
    data = msgspec.json.format(msgspec.json.encode(lock), indent=1) + b"\n"
    path = folder / f"{lock.platform}-{lock.python}-{lock.build}.json"
    decode_lock(data, path.name)
    folder.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def main(arguments: Iterable[str] | None = None) -> int:
    """Make one list; print its sums."""
    parser = argparse.ArgumentParser(description="Lock the engine's libraries.")
    parser.add_argument("--build", choices=get_args(Build), required=True)
    parser.add_argument("--python", required=True, help="such as 3.12")
    parser.add_argument("--platform", choices=PLATFORMS, default="linux-x86_64")
    kind = parser.add_mutually_exclusive_group(required=True)
    kind.add_argument("--torch", help="version, such as 2.13.0 or 2.13.0+cpu")
    kind.add_argument("--like", type=Path, help="take the versions of this lock")
    parser.add_argument("--folder", type=Path, default=FOLDER)
    parser.add_argument("--pip", nargs=argparse.REMAINDER, default=[], help="words for pip")
    options = parser.parse_args(None if arguments is None else list(arguments))
    try:
        lock = make(options)
    except NotLockable as problem:
        print(problem, file=sys.stderr)
        return 1
    path = write(lock, options.folder)
    print(
        f"{path.name}: {len(lock.wheels)} wheels, {lock.download_bytes / 1e6:.0f} MB to fetch, "
        f"{lock.unpacked_bytes / 1e6:.0f} MB on disk, key {lock.key}"
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
