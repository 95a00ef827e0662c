"""Loading a model: `dev.py bench load`.

The engine's own reading of the experts, from the disk and from the system's page cache, beside
plain sequential reads of the same file, by one reader and by several. Cold means that the system
was told to forget the file, which it does on Linux for files on a real disk.
"""

import argparse
import os
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from engine.checkpoint.ftw import FtwReader
from engine.loader.locate import BUILTIN, locate_model
from engine.protocol.messages import Event, Load, Progress
from engine.protocol.places import data_root
from tests.perf.client import EngineClient
from tests.perf.limits import GB
from tests.perf.serve import common_parser, first_device, run
from tests.perf.tables import median, report

READERS = 4
COLUMNS = (
    "from", "GB", "plain GB/s", "readers GB/s", "engine GB/s", "of plain", "of readers", "load s",
    "pool GB/s",
)  # fmt: skip
READ_BYTES = 16 << 20


class ReadStage:
    """Watches a load: how fast the experts came, from the first report of it to the last."""

    def __init__(self) -> None:
        self._seen: list[tuple[float, int]] = []

    def __call__(self, at_s: float, event: Event) -> None:
        """Note the stage's reports."""
        if isinstance(event, Progress) and event.stage == "read":
            self._seen.append((at_s, event.done_bytes))

    @property
    def rate(self) -> float | None:
        """Bytes/s; None if there were no two reports."""
        if len(self._seen) < 2:
            return None
        (begin_s, first), (end_s, last) = self._seen[0], self._seen[-1]
        return (last - first) / (end_s - begin_s) if end_s > begin_s else None


def main(arguments: list[str] | None = None) -> int:
    """Measure and print."""
    parser = common_parser(__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as temporary:
        home = data_root(str(options.home or temporary))
        folder = Path(options.model)
        if options.model == BUILTIN:
            folder = locate_model(BUILTIN, home, lambda *_: None, lambda: False)
        bank = folder / FtwReader(folder).index.files[0].name
        rows = [row(options, home.root, folder, bank, cold) for cold in (True, False)]
    report(f"load: {folder.name}, {options.device or first_device()}", rows, COLUMNS, options.json)
    return 0


def row(
    options: argparse.Namespace, home: Path, folder: Path, bank: Path, cold: bool
) -> dict[str, Any]:
    """Measure one row. Of `options` it reads device, threads, cores and repeats."""
    plain, several, ours, loads = [], [], [], []
    num_bytes = bank.stat().st_size
    for _ in range(options.repeats):
        if cold:
            forget(bank)
        plain.append(num_bytes / sequential_s(bank))
        if cold:
            forget(bank)
        several.append(num_bytes / sequential_s(bank, READERS))
        if cold:
            forget(bank)
        rate, load_s = _load(options, home, folder)
        loads.append(load_s)
        if rate is not None:
            ours.append(rate)
    return {
        "from": "disk" if cold else "page cache",
        "GB": num_bytes / GB,
        "plain GB/s": median(plain) / GB,
        "readers GB/s": median(several) / GB,
        "engine GB/s": median(ours) / GB if ours else None,
        "of plain": median(ours) / median(plain) if ours else None,
        "of readers": median(ours) / median(several) if ours else None,
        "load s": median(loads),
        "pool GB/s": num_bytes / GB / median(loads),
    }


def _load(options: argparse.Namespace, home: Path, folder: Path) -> tuple[float | None, float]:
    """Load once in a fresh engine. Returns the rate of reading and the seconds of the load."""
    stage = ReadStage()
    device = options.device or first_device()
    with EngineClient(
        "--home", str(home), "--threads", str(options.threads), cores=options.cores
    ) as client:
        info = client.load(Load(id="load", model=str(folder), devices=(device,)), stage)
    return stage.rate, info.load_s


def sequential_s(path: Path, readers: int = 1) -> float:
    """Return the seconds of reading a file once, in order, into memory that is there already.

    Several readers take turns: each reads the next part that nobody has.
    """
    parts = iter(range(0, path.stat().st_size, READ_BYTES))  # one step of it holds the GIL
    buffers = [bytearray(READ_BYTES) for _ in range(readers)]

    def read(buffer: bytearray) -> None:
        with path.open("rb", buffering=0) as file:
            for place in parts:
                file.seek(place)
                file.readinto(buffer)

    start = time.perf_counter()
    with ThreadPoolExecutor(readers) as pool:
        list(pool.map(read, buffers))
    return time.perf_counter() - start


def forget(path: Path) -> None:
    """Let the system drop a file from its page cache (Linux; elsewhere nothing happens)."""
    if sys.platform == "linux":
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


if __name__ == "__main__":
    raise SystemExit(run(main))
