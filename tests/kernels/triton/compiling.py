"""Compiles every Triton kernel of prefill for a class of cards as the product does, without a card.

`python -m tests.kernels.triton.compiling 90` prints one line a kernel.
"""

import sys

import triton.language as tl

from kernels.layouts import RecordLayout
from kernels.triton import dense_jit, grouped_jit
from kernels.triton.grouped import SORT_BLOCK
from kernels.triton.launch import compile_kernel
from kernels.triton.tiles import Card, choose_tile

CARDS = {
    80: Card(166_912),
    86: Card(101_376),
    89: Card(101_376, native_fp8=True),
    90: Card(232_448, wgmma=True, native_fp8=True),
    120: Card(101_376, native_fp8=True),
}
TYPES = {
    **dict.fromkeys(("ids", "ranks", "order"), "*i32"),
    **dict.fromkeys(("row_starts", "block_starts", "block_ranks"), "*i32"),
    **dict.fromkeys(("first", "last", "layer_id", "num_layers", "columns"), "i32"),
    **dict.fromkeys(("num_routes", "num_ranks", "block_rows"), "i32"),
    **dict.fromkeys(("slots", "addresses"), "*i64"),
    **dict.fromkeys(("qkv", "hidden", "narrow", "norms", "weight", "pages"), "*bf16"),
    **dict.fromkeys(("cos", "sin", "scales", "wide", "rows", "weights"), "*fp32"),
    "eps": "fp32",
    "codes": "*u8",
}


def compile_one(kernel, facts, arch, warps=4, stages=3, **types):
    """Compile for pointers of 16-byte alignment, which torch gives; returns what came out."""
    types = {**TYPES, **types}
    free = [types[name] for name in kernel.arg_names if name not in facts]
    kinds = tuple((kind, kind.startswith("*")) for kind in free)
    return compile_kernel(kernel, kinds, facts, arch, warps, stages)


def grouped(arch, card):
    """Both products, both encodings, every tile; then the merge, and what sorts routes."""
    for encoding, group in (("bf16", 0), ("fp8_block", 128)):
        layout = RecordLayout(2048, 768, encoding, group)
        for average in (4, 32, 256):
            tile = choose_tile(average, card, group)
            facts = {
                **{"H": 2048, "I": 768, "UNIT_BYTES": layout.unit_bytes, "GROUP": group},
                **{"ALIGN": 16, "NATIVE": card.native_fp8, "DOT": tl.bfloat16},
                **{"ROWS": tile.rows, "DEPTH": tile.depth},
            }
            first = {**facts, "K": 8, "COLUMNS": tile.columns}
            second = {**facts, "COLUMNS": tile.down_columns}
            types = {"x": "*bf16", "out": "*bf16"}
            name = f"{encoding} {tile}"
            yield (
                f"gate_up {name}",
                compile_one(grouped_jit.gate_up, first, arch, tile.warps, tile.stages, **types),
            )
            yield (
                f"down {name}",
                compile_one(
                    grouped_jit.down, second, arch, tile.warps, tile.down_stages, out="*fp32"
                ),
            )
    facts = {"H": 2048, "K": 8, "COLUMNS": 1024}
    yield "merge", compile_one(grouped_jit.merge, facts, arch, out="*fp32")
    facts = {"BLOCK": SORT_BLOCK}
    yield "sort_routes", compile_one(grouped_jit.sort_routes, facts, arch, warps=8, stages=1)
    yield "cut_blocks", compile_one(grouped_jit.cut_blocks, {"SIZE": 256}, arch, stages=1)


def dense(arch, card):
    """Norm, heads, the choice of experts, dequantisation."""
    facts = {"H": 2048, "BLOCK": 2048, "WIDE": True}
    yield "rms_norm", compile_one(dense_jit.rms_norm, facts, arch, x="*fp32")
    facts = {"QUERIES": 32, "KEYS": 4, "D": 128, "HALF": 64, "PAGE": 16, "HEADS": 8}
    yield "rotate_and_store", compile_one(dense_jit.rotate_and_store, facts, arch)
    facts = {"E": 128, "K": 8, "SIZE": 128}
    types = {"scores": "*fp32", "ids": "*i32"}
    yield "take_best", compile_one(dense_jit.take_best, facts, arch, warps=1, stages=1, **types)
    facts = {"GROUP": 128, "NATIVE": card.native_fp8, "BLOCK": 1024}
    yield "dequantise", compile_one(dense_jit.dequantise, facts, arch, out="*bf16")


def main() -> None:
    """Compile for the class that is named."""
    arch = int(sys.argv[1])
    card = CARDS[arch]
    for name, made in (*grouped(arch, card), *dense(arch, card)):
        assert made.shared_bytes <= card.shared_bytes, f"{name}: {made.shared_bytes} bytes"
        assert made.image.startswith(b"\x7fELF"), f"{name} is no cubin"
        assert 0 <= made.num_hidden <= 2, f"{name} takes {made.num_hidden} pointers of its own"
        if card.wgmma and "rows=16" not in name and name.startswith(("gate_up", "down")):
            assert "wgmma.mma_async" in made.ptx, f"{name} uses no warp group products"
        sys.stdout.write(f"{name}: {made.shared_bytes} bytes of shared memory\n")


if __name__ == "__main__":
    main()
