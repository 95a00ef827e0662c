"""How smooth the window is: `dev.py bench ui`. Prints one figure and its goal a line.

The whole app runs offscreen with the fake engine, so that the figures are those of the window.
Gaps are times between two beats of a timer on the UI thread; "own work" is the processor time of
that thread in the longest one, which other programs on the machine do not lengthen. `--only` picks
measurements, `--tokens` shortens the run for memory, `--json FILE` keeps the figures.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")

import psutil
from PySide6.QtCore import QCoreApplication, QEventLoop, QTimer, SignalInstance
from PySide6.QtWidgets import QApplication

from app.application import make_application
from app.main import Desktop
from app.services.log_ring import LogRing
from app.services.settings import ENGINE_VARIABLE, Environment
from app.services.tidy import Collector
from app.warm_up import WarmUp
from engine.protocol.places import HOME_VARIABLE, data_root
from tests.perf.ui_figures import Figure, longest_gap, slope_per_step
from tests.perf.ui_samples import long_chat
from tests.support.app_engine import FAKE_ENGINE

REPOSITORY = Path(__file__).resolve().parents[2]
MESSAGES = 5_000
STREAM_TOKENS = 5_000  # ten seconds at 500 a second
REPLY_TOKENS = 2_000
CHAT_REPLIES = 10
STARTS = 5
WARM_UP_SHARE = 0.25
STEP_TOKENS = 500_000
LIMIT_S = 600.0


class Heart:
    """A timer that notes when it beats; a late beat is a window that did not answer."""

    def __init__(self) -> None:
        self.beats: list[float] = []
        self.works: list[float] = []
        self._timer = QTimer()
        self._timer.setInterval(1)
        self._timer.timeout.connect(self._beat)

    def _beat(self) -> None:
        self.beats.append(time.monotonic())
        self.works.append(time.thread_time())

    def __enter__(self) -> "Heart":
        self.beats, self.works = [], []
        self._beat()
        self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.stop()
        self._beat()

    def figures(self, name: str, goal_ms: float | None) -> list[Figure]:
        """The longest time without a beat, and the most work between two."""
        return [
            Figure(f"{name}: longest gap", longest_gap(self.beats) * 1000, "ms", goal_ms),
            Figure(f"{name}: own work", longest_gap(self.works) * 1000, "ms", None),
        ]


def wait(signal: SignalInstance, limit_s: float = LIMIT_S) -> None:
    """Run the event loop until a signal comes.

    Raises:
        TimeoutError: it did not come.
    """
    loop, timer = QEventLoop(), QTimer()
    timer.setSingleShot(True)
    timer.timeout.connect(loop.exit)
    timer.start(round(limit_s * 1000))
    signal.connect(loop.quit)
    loop.exec()
    signal.disconnect(loop.quit)
    if not timer.isActive():
        raise TimeoutError("The engine did not answer.")


def turn(count: int = 1) -> None:
    """Let the event loop go round."""
    for _ in range(count):
        QCoreApplication.processEvents()


@contextmanager
def desktop(fake_arguments: str) -> Iterator[Desktop]:
    """The app with its window open and a model of the fake engine loaded."""
    with tempfile.TemporaryDirectory() as home:
        os.environ["FAKE_ENGINE_ARGS"] = fake_arguments
        environment = Environment(data_root(home), str(FAKE_ENGINE), True, needs_x11=False)
        made = Desktop(environment, LogRing())
        made.show()
        wait(made.services.client.loaded)
        turn(20)
        try:
            yield made
        finally:
            QTimer.singleShot(0, made.quit)
            wait(made.finished)
            made.window.deleteLater()
            turn(2)


def measure_stream() -> list[Figure]:
    """Longest gap while 500 tokens a second arrive, with statistics and heat map."""
    figures: list[Figure] = []
    with desktop(f"--tokens {STREAM_TOKENS} --rate 500 --stats 0.1 --reply prose") as app:
        chat = long_chat(app.services.chats, 200)
        for page, name in (("chat", "chat in front"), ("performance", "heat map in front")):
            app.vm.chat.new_chat()
            app.vm.chat.open_chat(chat.id)
            app.window.show_page(page)
            turn(20)
            app.vm.chat.change_sampling(max_tokens=STREAM_TOKENS)
            with Heart() as heart:
                app.vm.chat.send("Go on.")
                wait(app.services.client.finished)
            figures += heart.figures(f"500 tok/s, {name}", 100)
    return figures


def measure_long_chat() -> list[Figure]:
    """Open a chat of thousands, then scroll through it by wheel steps and by leaps."""
    with desktop("--stats 0.5") as app:
        chat = long_chat(app.services.chats, MESSAGES)
        turn(20)
        begun, begun_work = time.monotonic(), time.thread_time()
        app.vm.chat.open_chat(chat.id)
        app.pages.chat.repaint()
        opened = (time.monotonic() - begun) * 1000
        work = (time.thread_time() - begun_work) * 1000
        bar = app.pages.chat.column.verticalScrollBar()
        turn(50)
        with Heart() as wheel:
            for _ in range(400):
                bar.setValue(bar.value() - 3 * bar.singleStep())
                turn()
        with Heart() as leap:
            for place in range(40):
                bar.setValue(bar.maximum() * (place * 7 % 40) // 40)
                turn(3)
    count = f"{MESSAGES:,} messages"
    return [
        Figure(f"{count}: open to painted", opened, "ms", 300),
        Figure(f"{count}: open, own work", work, "ms", None),
        *wheel.figures(f"{count}, wheel", 100),
        *leap.figures(f"{count}, dragging the bar", 200),
    ]


def measure_start() -> list[Figure]:
    """From the start of a fresh process to a painted page that takes input; five times each.

    The Chat page is what a start shows; the very first one shows the first run.
    """
    figures: list[Figure] = []
    for arguments, name in ((("--page", "chat"), "window up"), ((), "first run up")):
        runs = [_start_once(arguments) for _ in range(STARTS)]
        times, works = (sorted(column) for column in zip(*runs, strict=True))
        figures += [
            Figure(f"{name}, best of five", times[0], "s", 1.5),
            Figure(f"{name}, median of five", times[STARTS // 2], "s", 1.5),
            Figure(f"{name}, own work", works[0], "s", None),
        ]
    return figures


def _start_once(arguments: Sequence[str]) -> tuple[float, float]:
    """Start the app with an empty home. Returns seconds until it says it is shown, and of work."""
    with tempfile.TemporaryDirectory() as home:
        environment = os.environ | {HOME_VARIABLE: home, ENGINE_VARIABLE: str(FAKE_ENGINE)}
        command = [sys.executable, "-m", "app", *arguments]
        begun = time.monotonic()
        process = subprocess.Popen(command, cwd=REPOSITORY, env=environment)
        log = Path(home) / "logs" / "app.log"
        while time.monotonic() < begun + LIMIT_S:
            if log.exists() and "window shown" in log.read_text("utf-8"):
                break
            time.sleep(0.005)
        took = time.monotonic() - begun
        spent = psutil.Process(process.pid).cpu_times()
        process.terminate()
        process.wait(20)
    return took, spent.user + spent.system


def measure_warm_up() -> list[Figure]:
    """Longest gap while the other pages are built, and that of a first visit to each."""
    figures: list[Figure] = []
    for is_warm in (True, False):
        with desktop("") as app:
            rest = app.pages.rest(app.window.prepare)
            if is_warm:
                warm_up = WarmUp(app.window, rest, app.is_busy, pause_ms=20)
                with Heart() as heart:
                    warm_up.begin()
                    wait(warm_up.finished)
                    turn(20)
                figures += heart.figures("pages built in pauses", 100)
            with Heart() as heart:
                for page in app.pages:
                    app.window.show_page(page)
                    turn(5)
            name = "first visit, built" if is_warm else "first visit, not built"
            figures += heart.figures(name, 100 if is_warm else None)
    return figures


def measure_memory(tokens: int) -> list[Figure]:
    """Memory of the app along `tokens` tokens in chats of ten long replies."""
    samples: list[tuple[float, float]] = []
    process = psutil.Process()
    with desktop(f"--tokens {REPLY_TOKENS} --stats 0.1 --reply prose") as app:
        chat = app.vm.chat
        done = 0
        while done < tokens:
            chat.new_chat()
            chat.change_sampling(max_tokens=REPLY_TOKENS)
            for _ in range(CHAT_REPLIES):
                chat.send("Go on.")
                wait(app.services.client.finished)
                done += REPLY_TOKENS
            turn(20)
            samples.append((float(done), process.memory_info().rss / 2**20))
    warm = [sample for sample in samples if sample[0] >= WARM_UP_SHARE * tokens]
    slope = slope_per_step(warm, STEP_TOKENS)
    share = 100 * slope / warm[0][1]
    return [
        Figure(f"memory after {tokens:,} tokens", samples[-1][1], "MiB", None),
        Figure(f"memory slope per {STEP_TOKENS:,} tokens", share, "%", 1),
    ]


PARTS: dict[str, Callable[[int], list[Figure]]] = {
    "start": lambda _: measure_start(),
    "warm": lambda _: measure_warm_up(),
    "chat": lambda _: measure_long_chat(),
    "stream": lambda _: measure_stream(),
    "memory": measure_memory,
}


def main(arguments: Sequence[str]) -> int:
    """Measure what is asked for; 0 = all goals met, else 1."""
    parser = argparse.ArgumentParser(prog="dev.py bench ui", description=__doc__)
    parser.add_argument("--only", choices=tuple(PARTS), action="append")
    parser.add_argument("--tokens", type=int, default=2_000_000)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    app = QApplication.instance() or make_application(offscreen=True)
    collector = Collector(parent=app)
    print(
        f"{os.cpu_count()} cores, load {psutil.getloadavg()[0]:.1f}, {platform.system()}, "
        f"Python {platform.python_version()}"
    )
    figures: list[Figure] = []
    for name in options.only or PARTS:
        for figure in PARTS[name](options.tokens):
            print(figure.line, flush=True)
            figures.append(figure)
    collector.close()
    if options.json:
        kept = {figure.name: figure.value for figure in figures}
        options.json.write_text(json.dumps(kept, indent=1), "utf-8")
    return 0 if all(figure.is_met for figure in figures) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
