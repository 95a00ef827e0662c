"""Whether Triton can compile on this machine: its tools may be damaged, or be forbidden to run."""

import triton.language as tl

from kernels.triton import dense_jit
from kernels.triton.device import interpreted
from kernels.triton.launch import compile_kernel

_ARCH = 80  # any class will do; no card is asked
_WIDE, _HALF = "*" + tl.float32.name, "*" + tl.bfloat16.name
_KINDS = ((_WIDE, True), (_HALF, True), (_HALF, True), (_WIDE, True), (tl.float32.name, False))


def compile_problem() -> str:
    """Return why a small kernel does not compile, as half a sentence; "" if it does."""
    if interpreted():
        return ""
    try:
        constants = {"H": 32, "BLOCK": 32, "WIDE": False}
        compile_kernel(dense_jit.rms_norm, _KINDS, constants, _ARCH, num_warps=1, num_stages=1)
    except RuntimeError as problem:
        words = str(problem).strip().splitlines()
        return f"it cannot compile: {words[-1] if words else 'no reason given'}"
    return ""
