"""Where a report measures: device, folders, models that it makes, engines that it starts."""

import argparse
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from engine.checkpoint.index import INDEX_NAME
from engine.protocol.errors import EngineError
from engine.system import usable_cores
from tests.perf.client import REPOSITORY, BenchError
from tests.perf.report_plan import (
    BF16,
    DEEP,
    DISK,
    FP8,
    Costs,
    Session,
    Sizes,
    Task,
    needs_links,
)
from tests.perf.report_store import FIGURES
from tests.perf.serve import Served, measure_links, served
from tests.perf.switched_engine import AUTO
from tests.perf.synthetic import is_in_memory, write_folder
from tests.perf.synthetic_weights import TINY, Shape

MODELS = {
    BF16: Shape(),
    FP8: Shape(encoding="fp8_block"),
    DEEP: Shape(layers=48),
    DISK: Shape(layers=6),
}
TINY_MODELS = {
    BF16: TINY,
    FP8: replace(TINY, encoding="fp8_block"),
    DEEP: replace(TINY, layers=6),
    DISK: TINY,
}
NAME = "freetoken-report"  # of our folder in both places
SPARE_TOKENS = 16  # of keys and values, behind what a row needs
LEAST_SHARE = 0.5  # of the pool: what resizing grows to


@dataclass(frozen=True, slots=True)
class Place:
    """Where and how much.

    Attributes:
        out: folder of the figures.
        models: folder for models, in memory if possible.
        disk: folder on a disk, for the model that is read from there.
        device: "cpu" or "cuda:N".
        sizes, costs: how much is measured, and what it should cost.
        figures: file of the probe.
    """

    out: Path
    models: Path
    disk: Path
    device: str
    sizes: Sizes
    costs: Costs
    figures: Path

    @classmethod
    def of(cls, options: argparse.Namespace, device: str, sizes: Sizes) -> "Place":
        """Make the place that the arguments describe."""
        figures = (options.probe or options.out / FIGURES).resolve()
        models, disk = (folder.resolve() / NAME for folder in (options.models, options.disk))
        costs = Costs(sizes.is_tiny)
        return cls(options.out.resolve(), models, disk, device, sizes, costs, figures)

    @property
    def home(self) -> Path:
        """Data root of the engines: a later call finds their compiled kernels there."""
        return self.models / "home"

    @property
    def switch(self) -> Path:
        """File that `tests.perf.switched_engine` reads."""
        return self.models / "loading"

    def folder(self, model: str) -> Path:
        """Return where a model lies, or will."""
        name = f"{model}-tiny" if self.sizes.is_tiny else model
        return (self.disk if model == DISK else self.models) / name

    def has(self, model: str) -> bool:
        """Return whether it was made already."""
        return (self.folder(model) / INDEX_NAME).is_file()

    def make(self, model: str) -> Path:
        """Make a model, unless it is there. Returns its folder. Raises BenchError."""
        folder = self.folder(model)
        if self.has(model):
            return folder
        folder.parent.mkdir(parents=True, exist_ok=True)
        if model == DISK and not self.sizes.is_tiny and is_in_memory(folder.parent):
            raise BenchError(f"{folder.parent} lies in memory; name a disk's folder with --disk.")
        shape = (TINY_MODELS if self.sizes.is_tiny else MODELS)[model]
        try:
            write_folder(folder, shape, threads=usable_cores(), in_memory=model == DEEP)
        except EngineError as problem:
            raise BenchError(f"{problem.message} {problem.hint}".strip()) from problem
        return folder

    def drop(self, model: str) -> None:
        """Remove a model."""
        shutil.rmtree(self.folder(model), ignore_errors=True)

    def tokens(self, task: Task) -> int:
        """Return the keys and values that a task needs at once; no older prompt stays beside it."""
        sizes, facts = self.sizes, task.facts
        match task.section:
            case "prefill":
                need = facts["prompt"]
            case "suffix":
                need = sizes.prefix + facts["prompt"] + SPARE_TOKENS
            case "resize":
                need = sizes.prompt + (sizes.resizes + 2) * sizes.every
            case _:
                reply = max(sizes.replies(task.section).lengths)
                need = facts.get("batch", 1) * (sizes.prompt + reply + SPARE_TOKENS)
        return int(need) + SPARE_TOKENS

    @contextmanager
    def opened(self, session: Session, tasks: Iterable[Task]) -> Iterator[Served]:
        """Start an engine with room for these tasks. Raises BenchError."""
        tasks = list(tasks)
        folder = self.make(session.model)
        self.home.mkdir(parents=True, exist_ok=True)
        self.switch.write_text(AUTO, encoding="utf-8")
        if self.lacks_links(tasks):
            measure_links(self.home, str(folder), self.device)
        options = argparse.Namespace(
            model=str(folder), device=self.device, threads=session.threads, cores=0, vram_gb=0.0,
            budget_gb=0.0,
            chunk_tokens=session.chunk, home=self.home,
            probe=self.figures if self.figures.is_file() else None,
        )  # fmt: skip
        kv_tokens = max(self.tokens(task) for task in tasks)
        shares = [task.facts.get("share", LEAST_SHARE) for task in tasks]
        with served(options, kv_tokens, shares, self.switch, session.reuse) as bench:
            yield bench

    def lacks_links(self, tasks: Iterable[Task]) -> bool:
        """Return whether a task needs the links' rates, which the policy `split` goes by."""
        profiles = self.home / "profiles"
        return (
            self.device != "cpu"
            and needs_links(tasks)
            and not (profiles.is_dir() and any(profiles.iterdir()))
        )


@contextmanager
def child(*words: str, may_fail: bool = False) -> Iterator[Iterator[str]]:
    """Run a benchmark of its own process, and yield what it prints line by line.

    It does not outlive the block. Raises: BenchError with its last words if it fails.
    """
    with subprocess.Popen(
        [sys.executable, "-m", *words],
        cwd=REPOSITORY,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        last = ""

        def lines() -> Iterator[str]:
            nonlocal last
            assert process.stdout is not None
            for line in process.stdout:
                last = line.strip() or last
                yield line.rstrip("\n")

        try:
            yield lines()
            for _ in lines():
                pass
            if process.wait() and not may_fail:
                raise BenchError(last or f"{words[0]} ended with code {process.returncode}.")
        finally:
            if process.poll() is None:
                process.kill()
