"""Make an offline bundle: a lock and all its wheels in one file, for machines without a network.

`python -m installers.common.bundle resources/runtime/linux-x86_64-cp311-cpu.json x.ftruntime`
fetches with pip, which checks each hash; its configuration and `--pip ...` say from where.
"""

import argparse
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

from engine.protocol.runtime_lock import RuntimeLock, read_lock
from installers.common.lock import PLATFORMS


def fetch(lock: RuntimeLock, folder: Path, more: Sequence[str]) -> None:
    """Bring all wheels of a lock into a folder. Raises: SystemExit with pip's code."""
    wanted = folder / "wanted.txt"
    lines = [f"{w.name}==={w.version} --hash=sha256:{w.sha256}" for w in lock.wheels]
    wanted.write_text("\n".join(lines) + "\n", encoding="utf-8")
    tags = [word for tag in PLATFORMS[lock.platform] for word in ("--platform", tag)]
    words = [
        *(sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes"),
        *("--only-binary=:all:", "--implementation", "cp", "--dest", str(folder), *tags),
        *("--python-version", lock.python.removeprefix("cp"), *more, "--requirement", str(wanted)),
    ]
    if code := subprocess.run(words, check=False).returncode:
        raise SystemExit(code)


def write(lock_file: Path, lock: RuntimeLock, folder: Path, target: Path) -> None:
    """Put lock and wheels into one file; wheels are archives already, so they are stored."""
    with zipfile.ZipFile(target, "w", zipfile.ZIP_STORED) as archive:
        archive.write(lock_file, "lock.json")
        for wheel in lock.wheels:
            archive.write(folder / wheel.file, wheel.file)


def main() -> int:
    """Fetch and pack."""
    parser = argparse.ArgumentParser(description="Make an offline bundle of engine libraries.")
    parser.add_argument("lock", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--pip", nargs=argparse.REMAINDER, default=[], help="words for pip")
    options = parser.parse_args()
    lock = read_lock(options.lock)
    with tempfile.TemporaryDirectory(dir=options.target.absolute().parent) as folder:
        fetch(lock, Path(folder), options.pip)
        write(options.lock, lock, Path(folder), options.target)
    print(f"{options.target.name}: {options.target.stat().st_size / 1e6:.0f} MB")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
