"""What the kernels of `source/dense.cu` are passed, by value: addresses and a few numbers.

Field by field as in the sources, which assert the sizes. Filled by `kernels.cuda.dense`.
"""

import ctypes
from ctypes import c_float, c_int, c_void_p


class GemvArguments(ctypes.Structure):
    """Of a matrix product; `source/gemv.cuh`."""

    _fields_ = (
        ("weights", c_void_p * 3),
        ("scales", c_void_p * 3),
        ("input", c_void_p),
        ("norm", c_void_p),
        ("output", c_void_p),
        ("rows", c_int * 3),
        ("eps", c_float),
    )


class AttentionArguments(ctypes.Structure):
    """`source/attention.cuh`."""

    _fields_ = (
        ("qkv", c_void_p),
        ("query_norm", c_void_p),
        ("key_norm", c_void_p),
        ("rotary", c_void_p),
        ("positions", c_void_p),
        ("pages", c_void_p),
        ("pool", c_void_p),
        ("sums", c_void_p),
        ("stats", c_void_p),
        ("tickets", c_void_p),
        ("output", c_void_p),
        ("pages_of_a_row", c_int),
        ("layer", c_int),
        ("eps", c_float),
    )


class EmbedArguments(ctypes.Structure):
    """`source/dense.cu`."""

    _fields_ = (("table", c_void_p), ("token_ids", c_void_p), ("x", c_void_p))


class FinishArguments(ctypes.Structure):
    """`source/dense.cu`."""

    _fields_ = (
        ("logits", c_void_p),
        ("bests", c_void_p),
        ("ticket", c_void_p),
        ("ids", c_void_p),
        ("positions", c_void_p),
        ("counters", c_void_p),
        ("errors", c_void_p),
        ("step", c_void_p),
        ("report", c_void_p),
        ("num_counters", c_int),
    )
