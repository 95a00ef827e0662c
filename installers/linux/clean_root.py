"""Try a .deb on a system with nothing but the essentials: no Python, no compiler, no Qt library.

`python -m installers.linux.clean_root dist/freetoken-full-0.1.0-linux-x86_64.deb --out dist/root`

Makes a root with `mmdebstrap --variant=minbase`, installs the package with what it declares and
nothing else, lets a person without rights do the whole smoke run on a screen of Xvfb, removes the
package, compares the data root, installs again and runs again: chats and models must be found.
Needs root, mmdebstrap, Xvfb and this system's apt sources. Standard library only. Exit code 0 = all
of that. Nothing is mounted outside of the commands' own mount namespaces.
"""

import argparse
import hashlib
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

SOURCES = Path("/etc/apt/sources.list.d/debian.sources")
SUITE = "bookworm"
FORBIDDEN = ("python3", "python", "gcc", "cc", "c++", "g++", "clang", "tcc", "nvcc")
PERSON, HOME = 1234, "/home/person"
DATA = f"{HOME}/.local/share/FreeToken Desktop"
APT = ("apt-get", "-q", "-y", "--no-install-recommends")
LIMIT_S = 900
# Runs a command in a root: devices, processes and the screen's socket are mounted for it alone.
ENTER = """
mount --rbind /dev "$1/dev"
mount -t proc proc "$1/proc"
mkdir -p "$1/tmp/.X11-unix"
mount --bind /tmp/.X11-unix "$1/tmp/.X11-unix"
person=$2; root=$1; shift 2
exec chroot --userspec="$person" "$root" "$@"
"""


class Failed(Exception):
    """The package does not do what it should; the text says what."""


class CleanRoot:
    """A system in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def make(self) -> int:
        """Make it. Returns how many packages it has."""
        source = str(SOURCES) if SOURCES.exists() else ""
        words = ["mmdebstrap", "--quiet", "--variant=minbase", SUITE, str(self.folder), source]
        subprocess.run([word for word in words if word], check=True, timeout=LIMIT_S)
        places = [self.folder / place for place in ("usr/bin", "usr/local/bin", "usr/sbin")]
        if found := [n for n in FORBIDDEN for p in places if (p / n).exists()]:
            raise Failed(f"The root is not bare: it has {', '.join(found)}.")
        (self.folder / HOME[1:]).mkdir(parents=True)
        os.chown(self.folder / HOME[1:], PERSON, PERSON)
        return self.num_packages()

    def num_packages(self) -> int:
        """Return how many packages are installed."""
        return len(list((self.folder / "var/lib/dpkg/info").glob("*.list")))

    def run(self, *words: str, person: int = 0, **variables: str) -> str:
        """Run a command inside. Returns what it said. Raises: Failed."""
        around = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND": "noninteractive"}
        around |= {"HOME": HOME if person else "/root", "LC_ALL": "C.UTF-8", **variables}
        enter = ["unshare", "--mount", "--pid", "--fork", "--", "sh", "-ec", ENTER, "enter"]
        done = subprocess.run(
            [*enter, str(self.folder), f"{person}:{person}", *words],
            env=around, capture_output=True, encoding="utf-8", errors="replace",
            timeout=LIMIT_S, check=False,
        )  # fmt: skip
        if done.returncode:
            tail = (done.stdout + done.stderr)[-3000:]
            raise Failed(f"{' '.join(words)} ended with {done.returncode}:\n{tail}")
        return done.stdout + done.stderr

    def files(self, place: str) -> dict[str, str]:
        """Return the hash of every file below a place."""
        base = self.folder / place[1:]
        return {
            path.relative_to(base).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in sorted(base.rglob("*"))
            if path.is_file() and not path.is_symlink()
        }


@contextmanager
def screen() -> Iterator[str]:
    """Start a screen without a desktop. Yields its name."""
    reader, writer = os.pipe()
    words = ["Xvfb", "-displayfd", str(writer), "-screen", "0", "1400x900x24", "-ac"]
    with subprocess.Popen(
        [*words, "-nolisten", "tcp", "-noreset"], pass_fds=(writer,), stderr=subprocess.DEVNULL
    ) as server:
        os.close(writer)
        try:
            with os.fdopen(reader) as pipe:
                number = pipe.readline().strip()
            if not number:
                raise Failed("Xvfb gives no screen.")
            yield f":{number}"
        finally:
            server.terminate()


def smoke(root: CleanRoot, display: str, out: str) -> dict[str, object]:
    """Let the person do the smoke run in the usual data root. Returns its facts."""
    words = ("freetoken", "--smoke", f"{HOME}/{out}", "--home", DATA)
    root.run(*words, person=PERSON, DISPLAY=display)
    text = (root.folder / HOME[1:] / out / "smoke.json").read_text(encoding="utf-8")
    facts: dict[str, object] = json.loads(text)
    return {name: facts.get(name) for name in ("ok", "startup_ms", "load_s", "tok_s", "quit_ms")}


def chats_of(root: CleanRoot) -> dict[int, int]:
    """Return the number of messages by chat."""
    path = root.folder / DATA[1:] / "chats" / "chats.db"
    with closing(sqlite3.connect(path)) as store:
        return dict(store.execute("SELECT chat, count(*) FROM messages GROUP BY chat"))


def say(step: str, facts: object) -> None:
    """Print one line of the table."""
    print(f"{step:<18} {facts}", flush=True)


def go_through(root: CleanRoot, package: Path, display: str) -> None:
    """Install, run, remove, install, run. Raises: Failed."""
    bare = root.make()
    say("bare root", f"{bare} packages, none of {', '.join(FORBIDDEN)}")
    inside = root.folder / "tmp" / package.name
    shutil.copyfile(package, inside)
    root.run("apt-get", "-q", "update")
    begun = time.monotonic()
    root.run(*APT, "install", f"/tmp/{package.name}")
    took = time.monotonic() - begun
    say("installed", f"{root.num_packages() - bare} packages more in {took:.0f} s")
    say("smoke", smoke(root, display, "first"))
    kept, chats = root.files(DATA), chats_of(root)
    model = {name: facts for name, facts in kept.items() if name.startswith("models/")}
    if not chats or not model:
        raise Failed(f"The run left no chats ({chats}) or no model ({len(model)} files).")
    root.run(*APT, "purge", name_of(root, inside))
    left = [place for place in ("opt/freetoken", "usr/bin/freetoken") if is_left(root, place)]
    if left or root.files(DATA) != kept:
        raise Failed(f"Removing left {left}, or changed the data root.")
    say("removed", f"data root as before: {len(kept)} files, {len(chats)} chats")
    root.run(*APT, "install", f"/tmp/{package.name}")
    say("smoke again", smoke(root, display, "second"))
    later, files = chats_of(root), root.files(DATA)
    if any(later.get(chat) != count for chat, count in chats.items()):
        raise Failed(f"Chats changed: {chats}, then {later}.")
    if any(files.get(path) != facts for path, facts in model.items()):
        raise Failed("The model was converted anew.")
    say("found again", f"{len(chats)} chats of the first run beside {len(later)} now, same model")


def name_of(root: CleanRoot, inside: Path) -> str:
    """Return a package's name as itself says; its file may be called anything."""
    place = f"/{inside.relative_to(root.folder).as_posix()}"
    name = root.run("dpkg-deb", "--field", place, "Package").strip()
    if not name:
        raise Failed(f"{inside.name} has no name.")
    return name


def is_left(root: CleanRoot, place: str) -> bool:
    """Whether something is left at a place after the removal."""
    path = root.folder / place
    return path.is_symlink() or path.exists()


def main() -> int:
    """Try one package. Returns the exit code."""
    parser = argparse.ArgumentParser(description="Try a .deb on a bare system.")
    parser.add_argument("package", type=Path)
    parser.add_argument("--out", type=Path, help="keep pictures and facts of both runs there")
    options = parser.parse_args()
    if os.geteuid():
        print("Needs root: it makes a system in a folder.", file=sys.stderr)
        return 2
    folder = Path(tempfile.mkdtemp(prefix="clean-root-"))
    root = CleanRoot(folder / "root")
    try:
        with screen() as display:
            go_through(root, options.package.resolve(), display)
    except (Failed, subprocess.SubprocessError) as problem:
        print(problem)
        return 1
    finally:
        if options.out is not None:
            for name in ("first", "second"):
                came = root.folder / HOME[1:] / name
                if came.exists():
                    shutil.copytree(came, options.out / name, dirs_exist_ok=True)
        shutil.rmtree(folder, ignore_errors=True)
    print("works: installed, used, removed, installed again, everything found")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
