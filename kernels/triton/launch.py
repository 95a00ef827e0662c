"""Launch Triton kernels by the CUDA driver, so that a machine needs no C compiler.

Triton's compiler comes whole in its wheel, but its launcher is C that it builds at first use. Here
only the compiler is used, one compilation for each kind of arguments: their types, and whether 16
divides them, which the compiler turns into wide loads. Compiled code is kept where
TRITON_CACHE_DIR says. In Triton's interpreter, on a CPU, kernels run as Triton runs them.
"""

import ctypes
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from kernels.cuda.driver import Argument, Function, Module, architecture
from kernels.device.base import KernelError
from kernels.triton.device import interpreted

Kind = tuple[str, bool]
"""Type of an argument as Triton writes it, and whether 16 divides it."""

_WIDE = 16
_WARP = 32
_DTYPES = {
    torch.float32: tl.float32.name, torch.float16: tl.float16.name,
    torch.bfloat16: tl.bfloat16.name, torch.int64: "i64", torch.int32: "i32", torch.uint8: "u8",
}  # fmt: skip
_WIDE_POINTERS: dict[torch.dtype, Kind] = {one: ("*" + name, True) for one, name in _DTYPES.items()}
_ODD_POINTERS: dict[torch.dtype, Kind] = {
    one: (name, False) for one, (name, _) in _WIDE_POINTERS.items()
}
_FLOAT: Kind = (tl.float32.name, False)
_PARAMETER = re.compile(r"_param_\d+\b")


@dataclass(frozen=True, slots=True)
class Compiled:
    """Machine code of one kernel.

    Attributes:
        name: of the entry.
        image: cubin.
        shared_bytes: dynamic shared memory.
        threads: of a program.
        num_hidden: pointers that the entry takes behind its arguments: scratch, never used here.
        ptx: what the image was made from.
    """

    name: str
    image: bytes
    shared_bytes: int
    threads: int
    num_hidden: int
    ptx: str


class CardKernel:
    """A Triton kernel with its constants, loaded for each card and kind of arguments it meets.

    Build it once: launches are the bulk of a prompt's work on the host, so each does only what may
    differ from the one before.
    """

    def __init__(
        self,
        kernel: Any,  # noqa: ANN401 - Triton's type depends on the mode
        *,
        num_warps: int = 4,
        num_stages: int = 3,
        **constants: object,
    ) -> None:
        self._kernel, self._constants = kernel, constants
        self._num_warps, self._num_stages = num_warps, num_stages
        self._is_interpreted = interpreted()
        self._counts = () if self._is_interpreted else counting(kernel, constants)
        self._loaded: dict[tuple[object, ...], _Loaded] = {}

    def launch(self, grid: Sequence[int], *arguments: Tensor | int | float) -> None:
        """Queue it on torch's stream of the card that the first argument lies on.

        `arguments` in the order of the kernel's own, without its constants; numbers are Python's.
        An empty grid is no launch, which the driver would refuse: a chunk that wants no token has
        no rows for the head.

        Raises: KernelError if it cannot be compiled or launched.
        """
        if 0 in grid:
            return
        if self._is_interpreted:
            shape = {"num_warps": self._num_warps, "num_stages": self._num_stages}
            self._kernel[tuple(grid)](*arguments, **shape, **self._constants)
            return
        index = _card_of(arguments[0])
        kinds, values = kinds_and_values(self._counts, arguments)
        loaded = self._loaded.get((index, *kinds))
        if loaded is None:
            loaded = self._loaded[index, *kinds] = self._load(index, kinds)
        loaded.launch(grid, values)

    def _load(self, index: int, kinds: Sequence[Kind]) -> "_Loaded":
        arch = int(architecture(index).removeprefix("sm_"))
        shape = self._num_warps, self._num_stages
        return _Loaded(compile_kernel(self._kernel, kinds, self._constants, arch, *shape), index)


class _Loaded:
    """Compiled code in the context of a card; stays as long as the process."""

    def __init__(self, made: Compiled, index: int) -> None:
        self._module = Module(made.image, index)
        self._function: Function = self._module.function(made.name)
        self._threads, self._shared_bytes = made.threads, made.shared_bytes
        self._hidden: list[Argument] = [ctypes.c_void_p(0)] * made.num_hidden
        self._index, self._stream_of = index, _streams()

    def launch(self, grid: Sequence[int], values: list[Argument]) -> None:
        """Queue it; `values` are those of its own parameters."""
        full = (*grid, 1, 1)
        self._function.launch(
            (full[0], full[1], full[2]),
            self._threads,
            values + self._hidden,
            self._stream_of(self._index),
            self._shared_bytes,
        )


def _card_of(value: Tensor | int | float) -> int:
    if not isinstance(value, Tensor):
        raise TypeError(f"the first argument says where a kernel runs, not {value!r}")
    return value.device.index or 0


def _streams() -> Callable[[int], int]:
    """Return what gives the handle of torch's current stream of a card, without an object for it.

    Triton's own launcher takes it from there as well; torch without CUDA has none.
    """
    from torch._C import _cuda_getCurrentRawStream

    return _cuda_getCurrentRawStream


def counting(
    kernel: Any,  # noqa: ANN401 - see CardKernel
    constants: Mapping[str, object],
) -> tuple[bool, ...]:
    """Return for each argument whether a number's divisibility counts (`do_not_specialize`)."""
    return tuple(
        not parameter.do_not_specialize
        for parameter in kernel.params
        if parameter.name not in constants
    )


def kinds_and_values(
    counts: Sequence[bool], arguments: Sequence[Tensor | int | float]
) -> tuple[list[Kind], list[Argument]]:
    """Return the kind of each argument, and the arguments as the driver takes them.

    Raises: ValueError for too many or too few.
    """
    kinds: list[Kind] = []
    values: list[Argument] = []
    for one, value in zip(counts, arguments, strict=True):
        if isinstance(value, Tensor):
            address = value.data_ptr()
            kinds.append((_ODD_POINTERS if address % _WIDE else _WIDE_POINTERS)[value.dtype])
            values.append(ctypes.c_void_p(address))
        elif isinstance(value, float):
            kinds.append(_FLOAT)
            values.append(ctypes.c_float(value))
        else:
            is_short = -(2**31) <= value < 2**31
            kinds.append(("i32" if is_short else "i64", one and value % _WIDE == 0))
            values.append((ctypes.c_int if is_short else ctypes.c_longlong)(value))
    return kinds, values


def compile_kernel(
    kernel: Any,  # noqa: ANN401 - see CardKernel
    kinds: Sequence[Kind],
    constants: Mapping[str, object],
    arch: int,
    num_warps: int,
    num_stages: int,
) -> Compiled:
    """Compile for a class of cards such as 90, or take it from Triton's cache. Needs no card.

    Raises: KernelError with the compiler's last words.
    """
    names = list(kernel.arg_names)
    free = dict(zip((name for name in names if name not in constants), kinds, strict=True))
    signature = {name: free[name][0] if name in free else "constexpr" for name in names}
    wide = {
        (index,): [["tt.divisibility", _WIDE]]
        for index, name in enumerate(names)
        if name in free and free[name][1]
    }
    fixed = {(names.index(name),): value for name, value in constants.items()}
    # The default of fusion changes with Triton's version, and with it the bits.
    options = {"num_warps": num_warps, "num_stages": num_stages, "enable_fp_fusion": True}
    try:
        source = ASTSource(kernel, signature, fixed, wide)
        made = triton.compile(source, target=GPUTarget("cuda", arch, _WARP), options=options)
    except Exception as problem:  # Triton has several families, and OSError for its own tools
        raise KernelError(f"Triton cannot compile {names_of(kernel)}: {problem}") from problem
    facts, ptx = made.metadata, str(made.asm["ptx"])
    if facts.global_scratch_size or getattr(facts, "profile_scratch_size", 0):
        raise KernelError(f"Triton wants scratch for {names_of(kernel)}, which it never did.")
    return Compiled(
        facts.name,
        made.asm["cubin"],
        facts.shared,
        facts.num_warps * _WARP,
        num_parameters(ptx) - len(kinds),
        ptx,
    )


def names_of(kernel: Any) -> str:  # noqa: ANN401 - see CardKernel
    """Return what a kernel is called."""
    return str(kernel.fn.__name__)


def num_parameters(ptx: str) -> int:
    """Return how many parameters the one entry of a PTX text takes."""
    head = ptx.partition(".entry")[2].partition("{")[0]
    return len(set(_PARAMETER.findall(head)))
