"""The compiled kernels of a step, by number of rows: when they are compiled, loaded and unloaded.

A compiler takes seconds. One row's are compiled while a load reads the model, the others on a
thread while it already serves; until then their steps are put together from smaller ones. Knows no
nodes and no recordings. Used by `engine.loader.captured`.
"""

import logging
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial

from kernels.cuda.dense import KernelModule
from kernels.cuda.experts import moe_defines
from kernels.cuda.shape import DecodeShape
from kernels.cuda.tools import LoadedModule, Tools
from kernels.cuda.tuning import dense_defines

DENSE_SOURCE, MOE_SOURCE = "dense.cu", "moe.cu"
AHEAD = (2, 4, 8, 3, 5, 6, 7)  # in this order: what most others can be put together from first
_log = logging.getLogger(__name__)

_Image = Callable[[], LoadedModule]
_Images = tuple[_Image, _Image]


class StepKernels:
    """Compiles for `shape(rows)` and loads onto the card of `tools`.

    All calls but the compiler's come from the step loop's thread.
    """

    def __init__(self, tools: Tools, shape: Callable[[int], DecodeShape]) -> None:
        self._tools, self._shape = tools, shape
        self._images: dict[int, _Images] = {}
        self._first: list[Future[_Image]] = []
        self._modules: list[LoadedModule] = []
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        """Start to compile one row's kernels, a thread a source; `load` waits for them."""
        if not self._tools.compiles_ahead:
            return
        threads = ThreadPoolExecutor(2, "compile-first")
        self._first = [threads.submit(work) for work in self._works(1)]
        threads.shutdown(wait=False)  # they end by themselves

    def is_ready(self, rows: int) -> bool:
        """Whether `load` needs no compiler, or nobody compiles ahead."""
        return self._thread is None or rows in self._images

    def load(self, rows: int) -> tuple[KernelModule, KernelModule]:
        """Return `dense.cu` and `moe.cu` for a number of rows; they stay loaded until `close`.

        Raises: what `Tools.compile` and loading raise.
        """
        images = self._images.get(rows)
        if images is None and rows == 1 and self._first:
            images = self._first[0].result(), self._first[1].result()
        images = images or self._compile(rows)
        self._images[rows] = images
        modules: list[LoadedModule] = []
        for load in images:
            modules.append(load())
            self._modules.append(modules[-1])
        return modules[0], modules[1]

    def compile_ahead(self, max_rows: int) -> threading.Thread | None:
        """Compile the numbers of rows up to `max_rows` on a thread, which is returned.

        None where the tools would rather compile when a number is asked for.
        """
        wanted = [rows for rows in AHEAD if rows <= max_rows]
        if not self._tools.compiles_ahead or not wanted:
            return None
        self._thread = threading.Thread(
            target=self._compile_all, args=(wanted,), name="compile-steps", daemon=True
        )
        self._thread.start()
        return self._thread

    def close(self) -> None:
        """Unload; nothing of it may run or be replayed any more. A compiler in work is not awaited.

        What it compiles goes to the cache on disk, and nowhere else.
        """
        self._stop.set()
        while self._modules:
            self._modules.pop().close()
        self._images.clear()

    def _compile(self, rows: int) -> _Images:
        dense, moe = self._works(rows)
        return dense(), moe()

    def _works(self, rows: int) -> tuple[Callable[[], _Image], Callable[[], _Image]]:
        """Return what compiles either source for a number of rows."""
        shape, tools = self._shape(rows), self._tools
        return (
            partial(tools.compile, DENSE_SOURCE, dense_defines(shape)),
            partial(tools.compile, MOE_SOURCE, moe_defines(shape)),
        )

    def _compile_all(self, wanted: Iterable[int]) -> None:
        for rows in wanted:
            if self._stop.is_set():
                return
            try:
                self._images[rows] = self._compile(rows)
            except Exception as problem:  # noqa: BLE001 - the model serves without these
                _log.warning("no kernels for %d rows: %s", rows, problem)
