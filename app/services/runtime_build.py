"""What the freezer wrote down about this build, and which engine libraries can be installed.

In a checkout there is no stamp: then the development environment is the engine's, and an index
must be named in Settings before a runtime can be fetched. No Qt.
"""

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from engine.protocol.errors import InvalidRequest
from engine.protocol.places import resources_dir
from engine.protocol.runtime_lock import (
    RuntimeLock,
    installed_lock,
    newest_runtime,
    read_lock,
    this_platform,
    this_python,
)

STAMP = "build.json"
LOCKS = "runtime"
_DRIVERS = ("/proc/driver/nvidia/version", "C:/Windows/System32/nvcuda.dll")


class BuildFacts(msgspec.Struct, frozen=True):
    """The stamp; unknown keys of a newer freezer are left out.

    Attributes:
        version, commit: of the product.
        bundle: "shell" has no engine libraries, "full" has them, "" = a checkout.
        python: of the build.
        libraries: version by name.
        indexes: address of a package index by channel; "" is the usual one.
        update_url: where the signed manifest of releases is, "" = nowhere.
        update_key: public key of its signature, 64 hexadecimal digits.
    """

    version: str = ""
    commit: str = ""
    bundle: str = ""
    python: str = ""
    libraries: dict[str, str] = {}
    indexes: dict[str, str] = {}
    update_url: str = ""
    update_key: str = ""


def read_build(resources: Path | None = None) -> BuildFacts:
    """Return the stamp of this build; an empty one in a checkout."""
    path = (resources or resources_dir()) / STAMP
    try:
        return msgspec.json.decode(path.read_bytes(), type=BuildFacts)
    except (OSError, msgspec.MsgspecError):
        return BuildFacts()


class LockFile(msgspec.Struct, frozen=True):
    """A lock that fits this program, and its file."""

    path: Path
    lock: RuntimeLock


def fitting_locks(resources: Path | None = None) -> tuple[LockFile, ...]:
    """Return the locks for this platform and Python, CPU before CUDA; damaged ones are left out."""
    found = []
    here = (this_platform(), this_python())
    for path in sorted(((resources or resources_dir()) / LOCKS).glob("*.json")):
        try:
            lock = read_lock(path)
        except InvalidRequest:
            continue
        if (lock.platform, lock.python) == here:
            found.append(LockFile(path, lock))
    return tuple(sorted(found, key=lambda entry: entry.lock.build))


def runtime_in_use(
    runtime: Path, bundle: str, locks: Sequence[LockFile] | None = None
) -> Path | None:
    """Return the installed runtime that an engine takes; None = what came with the program, if any.

    A full build's own CPU libraries are newer than an installed CPU runtime that this version does
    not list.

    Args:
        runtime: the data root's folder of runtimes.
        bundle: what the program came with, see `BuildFacts`.
        locks: what this version lists; None = they are read if they matter.
    """
    folder = newest_runtime(runtime)
    lock = installed_lock(folder) if folder is not None and bundle == "full" else None
    if lock is None or lock.build != "cpu":
        return folder
    listed = fitting_locks() if locks is None else locks
    return folder if any(entry.lock.key == lock.key for entry in listed) else None


def has_nvidia_driver(places: Iterable[str] = _DRIVERS) -> bool:
    """Whether a driver of NVIDIA is installed, so that the CUDA build makes sense."""
    return any(Path(place).exists() for place in places)


def is_frozen() -> bool:
    """Whether this is a packaged program."""
    return bool(getattr(sys, "frozen", False))  # set by PyInstaller's boot loader
