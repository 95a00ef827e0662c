"""Try a frozen build in each trouble by itself, and in all of them: a table, one line a trouble.

`python -m installers.common.hardships dist/freetoken`. `smoke.py`, which packaging runs, has them
all at once; when that fails, this says which one it was. The engine loads the built-in model and
answers, with `--window` the window does its whole smoke run too, minutes for each. Needs a full
build. Standard library only. Exit code 0 = works everywhere.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from installers.common.smoke import (
    ALL,
    Failed,
    Hardship,
    Place,
    try_engine,
    try_reply,
    try_window,
)

HARDSHIPS = (
    Hardship("none"),
    Hardship("PATH empty", no_path=True),
    Hardship("program's folder read-only", read_only=True),
    Hardship("HOME read-only but for data", closed_home=True, root_in_home=True),
    Hardship("spaces, accents, CJK", odd_names=True),
    Hardship("umask 077", umask=0o077),
    Hardship("umask 000", umask=0o000),
    ALL,
)


def attempt(build: Path, hardship: Hardship, with_window: bool) -> str:
    """Do a try in a folder of its own. Returns facts. Raises: Failed."""
    with tempfile.TemporaryDirectory(dir=build.parent, prefix="try-") as base:
        place = Place(build, Path(base), hardship)
        try:
            facts = try_engine(place) | try_reply(place)
            if with_window:
                facts |= try_window(place)
            if left := place.written():
                raise Failed(f"files outside of the data root: {left[:5]}")
        finally:
            place.release()
    return ", ".join(f"{name} {value}" for name, value in facts.items() if name != "engine")


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description="Try a frozen build in every trouble.")
    parser.add_argument("build", type=Path)
    parser.add_argument("--window", action="store_true", help="let the window try, too")
    options = parser.parse_args()
    failed = 0
    for hardship in HARDSHIPS:
        begun = time.monotonic()
        try:
            said = "works  " + attempt(options.build.resolve(), hardship, options.window)
        except (Failed, subprocess.TimeoutExpired) as problem:
            failed += 1
            said = f"FAILED {problem}"
        print(f"{hardship.title:<28} {time.monotonic() - begun:4.0f} s  {said}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
