"""The engine's libraries as a list: which wheels, how large, with which hashes. Never from where.

A lock is a JSON file made by `installers/common/lock.py`, one for each platform, Python and build
of torch. The app shows its figures, the job `runtime` installs it into `runtime/<key>/`. No Qt, no
torch.
"""

import hashlib
import platform
import re
import sys
from pathlib import Path, PurePosixPath
from typing import Literal

import msgspec

from engine.protocol.errors import InvalidRequest

MANIFEST = "runtime.json"
"""Written into a runtime last, when it has passed its test: the lock itself."""

BUNDLE_SUFFIX = ".ftruntime"
"""An archive of a lock and its wheels, for machines without a network."""

_WHEEL = re.compile(r"[\w.+!]+(-[\w.+!]+){4,5}\.whl", re.ASCII)
_SHA256 = re.compile(r"[0-9a-f]{64}")
_KEY_DIGITS = 16

Build = Literal["cpu", "cuda"]


class Wheel(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One file to fetch.

    Attributes:
        name, version: of the package.
        file: name of the wheel.
        size: bytes of the wheel.
        unpacked: bytes on disk.
        sha256: of the wheel.
        channel: which list of indexes has it; "" = the usual one.
    """

    name: str
    version: str
    file: str
    size: int
    unpacked: int
    sha256: str
    channel: str = ""


class RuntimeLock(msgspec.Struct, frozen=True, kw_only=True):
    """The libraries of one build of the engine.

    Attributes:
        platform: such as "linux-x86_64".
        python: such as "cp311"; the frozen interpreter must be the same.
        build: of torch.
        wheels: in the order of their names.
    """

    platform: str
    python: str
    build: Build
    wheels: tuple[Wheel, ...]

    @property
    def key(self) -> str:
        """Name of the runtime's folder: it depends on the bytes of the wheels only."""
        text = "\n".join(sorted(f"{wheel.file} {wheel.sha256}" for wheel in self.wheels))
        facts = f"{self.platform} {self.python}\n{text}"
        return hashlib.sha256(facts.encode()).hexdigest()[:_KEY_DIGITS]

    @property
    def download_bytes(self) -> int:
        """Bytes of all wheels."""
        return sum(wheel.size for wheel in self.wheels)

    @property
    def unpacked_bytes(self) -> int:
        """Bytes of the installed runtime."""
        return sum(wheel.unpacked for wheel in self.wheels)


def this_python() -> str:
    """Return the tag of the running interpreter, such as "cp311"."""
    return f"cp{sys.version_info.major}{sys.version_info.minor}"


def this_platform() -> str:
    """Return the platform that this program was built for, such as "linux-x86_64"."""
    machine = {"amd64": "x86_64", "arm64": "aarch64"}.get(platform.machine().lower())
    return f"{sys.platform}-{machine or platform.machine().lower()}"


def decode_lock(data: bytes, name: str) -> RuntimeLock:
    """Read a lock; `name` is for the sentence. Raises: InvalidRequest if it is none."""
    try:
        lock = msgspec.json.decode(data, type=RuntimeLock)
    except (msgspec.MsgspecError, UnicodeDecodeError) as problem:
        raise InvalidRequest(f"{name} is no list of libraries: {problem}.") from problem
    files = [wheel.file for wheel in lock.wheels]
    odd = [
        wheel.file
        for wheel in lock.wheels
        if not _WHEEL.fullmatch(wheel.file)
        or not _SHA256.fullmatch(wheel.sha256)
        or min(wheel.size, wheel.unpacked) < 0
        or PurePosixPath(wheel.file).name != wheel.file
    ]
    if odd or not files or len(set(files)) < len(files):
        raise InvalidRequest(f"{name} is no list of libraries: {', '.join(odd) or 'its files'}.")
    return lock


def read_lock(path: Path) -> RuntimeLock:
    """Read a lock file. Raises: InvalidRequest, also if it cannot be read."""
    try:
        data = path.read_bytes()
    except OSError as problem:
        raise InvalidRequest(f"{path} cannot be read: {problem.strerror}.") from problem
    return decode_lock(data, path.name)


def installed_lock(folder: Path) -> RuntimeLock | None:
    """Return the lock of an installed runtime; None if the folder is none, or is unfinished."""
    try:
        lock = read_lock(folder / MANIFEST)
    except InvalidRequest:
        return None
    return lock if lock.key == folder.name else None


def newest_runtime(runtime: Path) -> Path | None:
    """Return the folder of the runtime that was installed last and fits this program, or None.

    Drafts and leftovers of an installation that was cut off are never returned.
    """
    here = (this_platform(), this_python())
    found: dict[Path, float] = {}
    try:
        for folder in runtime.iterdir():
            lock = installed_lock(folder)
            if lock is not None and (lock.platform, lock.python) == here:
                found[folder] = (folder / MANIFEST).stat().st_mtime
    except OSError:
        return None
    return max(found, key=lambda folder: found[folder], default=None)
