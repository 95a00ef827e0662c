"""Try a frozen build as an unlucky person would.

`python installers/common/smoke.py dist/freetoken`.

The build is copied to a folder with spaces, accents and CJK in its name and made read-only; HOME is
read-only; PATH is empty; temporary files go to another odd folder; files are made for their owner
alone. There the engine must answer and end with its input, and the window must do its whole smoke
run with the built-in model. Run by root, it becomes nobody first, so that read-only means it.

A shell has no engine libraries: it must say so, in words, and its window tries what needs none;
with `--runtime FILE` it then installs them from an offline bundle, and its engine must compute; it
brings no model to chat with. `hardships.py` tries these troubles one by one.

Standard library only. Exit code 0 = works. `--out DIR` keeps pictures and smoke.json,
`--engine-only` leaves out the window.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

WINDOWS = sys.platform == "win32"
SUFFIX = ".exe" if WINDOWS else ""
HELLO_S, WINDOW_S = 120, 900
NOBODY = 65534
CANCELLED = 5  # exit code of a job that was told to stop
ODD = "Fr\u00e9\u00e9 T\u00f6ken \u8a9e\u3000\u8a00"  # an ideographic space among them (case P-11)


class Failed(Exception):
    """The build does not work; the text says how."""


@dataclass(frozen=True, slots=True)
class Hardship:
    """What is unlucky about a try.

    Attributes:
        title: what it is called.
        odd_names: folders of program, data and temporary files have accents, CJK and spaces.
        read_only: nobody may write into the program's folder.
        closed_home: nobody may write into HOME.
        root_in_home: the data root is the usual one below HOME, and may be written to.
        no_path: PATH is empty.
        umask: of the programs.
    """

    title: str
    odd_names: bool = False
    read_only: bool = False
    closed_home: bool = False
    root_in_home: bool = False
    no_path: bool = False
    umask: int = 0o022


ALL = Hardship(
    "all at once", odd_names=True, read_only=True, closed_home=True, no_path=True, umask=0o077
)
USUAL_ROOT = Path(".local/share/FreeToken Desktop")


class Place:
    """Folders for one try, below an odd name; removed afterwards.

    Attributes:
        program: the copy of the build.
        root: the data root, empty.
        root_words: words that name it, none if it is the usual one.
        out: where the smoke run writes.
        runtime: words that make the engine take installed libraries.
    """

    def __init__(self, build: Path, base: Path, hardship: Hardship = ALL) -> None:
        self._base, self._hardship = base, hardship
        self.runtime: tuple[str, ...] = ()
        odd = f" {ODD}" if hardship.odd_names else ""
        self.home = base / "home"
        self.temp = base / f"temp{odd}"
        self.root = self.home / USUAL_ROOT if hardship.root_in_home else base / f"data{odd}"
        self.root_words = () if hardship.root_in_home else ("--home", str(self.root))
        self.out = base / "out"
        for folder in (self.home, self.temp, self.root, self.out):
            folder.mkdir(parents=True)
        self.program = base / f"program{odd}" / build.name
        shutil.copytree(build, self.program, symlinks=True)
        self._protect()

    def environment(self) -> dict[str, str]:
        """Return what the programs see: nothing of this shell but PATH, if that."""
        path = "" if self._hardship.no_path else os.environ.get("PATH", "")
        if WINDOWS:
            kept = {
                name: os.environ[name] for name in ("SYSTEMROOT", "WINDIR") if name in os.environ
            }
            return {**kept, "PATH": path, "TEMP": str(self.temp), "TMP": str(self.temp),
                    "USERPROFILE": str(self.home), "LOCALAPPDATA": str(self.home),
                    "APPDATA": str(self.home)}  # fmt: skip
        return {"PATH": path, "HOME": str(self.home), "TMPDIR": str(self.temp)}

    def start(
        self, name: str, *words: str, text: str | None, limit: int
    ) -> subprocess.CompletedProcess[str]:
        """Run one of the programs to its end; text None = its input stays open."""
        program = self.program / (name + SUFFIX)
        if not program.exists():
            raise Failed(
                f"{program} is missing: removed by security software, or the build failed."
            )
        identity: dict[str, Any] = {} if WINDOWS else {"umask": self._hardship.umask}
        if _is_root():
            identity |= {"user": NOBODY, "group": NOBODY, "extra_groups": []}
        # A job is cancelled by the end of its input, so it may get one that does not end.
        silence = os.pipe() if text is None else ()
        given: dict[str, Any] = {"stdin": silence[0]} if silence else {"input": text}
        try:
            return subprocess.run(
                [str(program), *words],
                capture_output=True,
                encoding="utf-8",
                errors="replace",
                timeout=limit,
                check=False,
                env=self.environment(),
                cwd=self.temp,
                **given,
                **identity,
            )
        finally:
            for descriptor in silence:
                os.close(descriptor)

    def allow(self, file: Path) -> Path:
        """Return a copy of a file that the programs may read."""
        copy = self._base / f"{ODD}{file.suffix}"
        shutil.copyfile(file, copy)
        return copy

    def written(self) -> list[str]:
        """Return what was left outside of data root and output."""
        found = [path for folder in (self.home, self.temp) for path in folder.rglob("*")]
        if self._hardship.root_in_home:
            found = [
                p for p in found if p not in self.root.parents and self.root not in (p, *p.parents)
            ]
        return [str(path) for path in found]

    def release(self) -> None:
        """Make everything writable again, so that it can be removed."""
        for folder, _, files in os.walk(self._base):
            for path in [Path(folder), *(Path(folder) / file for file in files)]:
                if not path.is_symlink():
                    path.chmod(0o755)

    def _protect(self) -> None:
        if _is_root():
            for owned in (self._base, self.home, self.temp, self.root, self.out):
                os.chown(owned, NOBODY, NOBODY)
        for folder, _, files in os.walk(self.program):
            for path in [Path(folder), *(Path(folder) / file for file in files)]:
                if path.is_symlink():
                    continue
                if self._hardship.read_only:
                    path.chmod(path.stat().st_mode & 0o555)
                elif _is_root():
                    os.chown(path, NOBODY, NOBODY)
        if self._hardship.closed_home:
            between = [p for p in self.root.parents if self.home in (p, *p.parents)]
            for closed in (self.home, *between):
                closed.chmod(0o555)


def bundle_of(build: Path) -> str:
    """Return "shell" or "full"."""
    stamp = next(build.glob("**/resources/build.json"), None)
    return str(json.loads(stamp.read_text(encoding="utf-8"))["bundle"]) if stamp else "full"


def _is_root() -> bool:
    return not WINDOWS and os.geteuid() == 0


def try_engine(place: Place) -> dict[str, Any]:
    """Say hello, close stdin, expect an answer and exit code 0. Returns facts."""
    hello = json.dumps({"type": "hello", "protocol_version": 1, "client": "smoke"}) + "\n"
    begun = time.monotonic()
    done = place.start("freetoken-engine", *place.root_words, text=hello, limit=HELLO_S)
    took = time.monotonic() - begun
    events = [json.loads(line) for line in done.stdout.splitlines()]
    ready = [event for event in events if event["type"] == "ready"]
    if done.returncode or not ready:
        raise Failed(f"engine: exit code {done.returncode}, {events}\n{done.stderr[-3000:]}")
    return {"engine": ready[0]["engine_version"], "hello_to_exit_ms": round(took * 1000)}


def try_without_libraries(place: Place) -> dict[str, Any]:
    """A shell's engine must name what it lacks, and end."""
    words = (*place.root_words, "--job", "selftest")
    done = place.start("freetoken-engine", *words, text="", limit=HELLO_S)
    if done.returncode != 1 or "No module named 'torch'" not in done.stdout:
        raise Failed(f"shell: exit code {done.returncode}\n{done.stdout}{done.stderr[-1500:]}")
    return {"bundle": "shell"}


def install_runtime(place: Place, bundle: Path) -> dict[str, Any]:
    """Install the engine's libraries from an offline bundle. Returns how to start with them."""
    spec = {"id": "r", "bundle": str(place.allow(bundle)), "home": str(place.root)}
    words = (*place.root_words, "--job", "runtime", "--spec", json.dumps(spec))
    begun = time.monotonic()
    done = place.start("freetoken-engine", *words, text=None, limit=WINDOW_S)
    events = [json.loads(line) for line in done.stdout.splitlines()]
    if done.returncode or events[-1]["type"] != "job_done":
        raise Failed(f"runtime: exit code {done.returncode}\n{events[-2:]}{done.stderr[-3000:]}")
    place.runtime = ("--runtime", events[-1]["result"]["path"])
    return {"install_s": round(time.monotonic() - begun)}


def try_job(place: Place) -> dict[str, Any]:
    """Let a job import torch and the kernels; it is told to stop at once, by the end of its input.

    A library that cannot be loaded shows here, within seconds and by its name.
    """
    spec = {"mode": "quick", "model": None, "device": "cpu", "output": str(place.root / "p.json")}
    words = (*place.root_words, *place.runtime)
    words += ("--job", "profile", "--spec", json.dumps(spec))
    begun = time.monotonic()
    done = place.start("freetoken-engine", *words, text="", limit=HELLO_S)
    if done.returncode not in (0, CANCELLED):
        raise Failed(
            f"job: exit code {done.returncode}\n{done.stdout[-1500:]}{done.stderr[-1500:]}"
        )
    return {"job_ms": round((time.monotonic() - begun) * 1000)}


def try_reply(place: Place) -> dict[str, Any]:
    """Let the engine convert and load the built-in model and answer. Returns facts."""
    question = {"role": "user", "parts": [{"text": "What is FreeToken Desktop?"}]}
    lines: tuple[dict[str, Any], ...] = (
        {"type": "hello", "protocol_version": 1, "client": "smoke"},
        {"type": "load", "id": "l", "model": "builtin", "devices": ["cpu"]},
        {"type": "generate", "id": "g", "messages": [question],
         "sampling": {"temperature": 0, "max_tokens": 24}},
    )  # fmt: skip
    text = "".join(json.dumps(line) + "\n" for line in lines)
    words = (*place.root_words, *place.runtime)
    begun = time.monotonic()
    done = place.start("freetoken-engine", *words, text=text, limit=WINDOW_S)
    events = [json.loads(line) for line in done.stdout.splitlines()]
    said = "".join(event["text"] for event in events if event["type"] == "delta")
    if done.returncode or "FreeToken" not in said:
        raise Failed(f"reply: exit code {done.returncode}, {said!r}\n{done.stderr[-3000:]}")
    return {"reply_s": round(time.monotonic() - begun, 1)}


def try_window(place: Place) -> dict[str, Any]:
    """Do the whole smoke run off screen. Returns its facts."""
    words = ("--smoke", str(place.out), "--home", str(place.root))  # its usual one is below out
    done = place.start("freetoken", *words, text="", limit=WINDOW_S)
    report = place.out / "smoke.json"
    if done.returncode or not report.exists():
        raise Failed(f"window: exit code {done.returncode}\n{done.stderr[-3000:]}")
    facts: dict[str, Any] = json.loads(report.read_text(encoding="utf-8"))
    if "tls" not in facts:
        raise Failed("window: its smoke run did not try whether it can speak TLS.")
    names = ("startup_ms", "tls", "load_s", "tok_s", "reply_tokens", "quit_ms")
    return {name: facts[name] for name in names if name in facts}


def main() -> int:
    """Do both; print facts or what failed."""
    parser = argparse.ArgumentParser(description="Try a frozen build.")
    parser.add_argument("build", type=Path)
    parser.add_argument("--out", type=Path, help="keep pictures and smoke.json there")
    parser.add_argument("--engine-only", action="store_true")
    parser.add_argument("--runtime", type=Path, help="offline bundle, for a shell")
    options = parser.parse_args()
    build: Path = options.build.resolve()
    with tempfile.TemporaryDirectory(dir=build.parent, prefix="try-") as base:
        place = Place(build, Path(base))
        try:
            facts = try_engine(place)
            is_shell = bundle_of(build) == "shell"
            if is_shell:
                facts |= try_without_libraries(place)
                if not options.engine_only:
                    facts |= try_window(place)
            if is_shell and options.runtime is not None:
                facts |= install_runtime(place, options.runtime)
            if not is_shell or options.runtime is not None:
                facts |= try_job(place)
                if not options.engine_only and not is_shell:
                    facts |= try_window(place)
            if left := place.written():
                raise Failed(f"files outside of the data root: {left[:5]}")
        except (Failed, subprocess.TimeoutExpired) as problem:
            print(problem)
            return 1
        finally:
            place.release()
            if options.out is not None:
                shutil.copytree(place.out, options.out, dirs_exist_ok=True)
    print("works: " + ", ".join(f"{name} {value}" for name, value in facts.items()))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
