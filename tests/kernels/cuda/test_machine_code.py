"""What the compiler made of the decode kernels: is work done before the wait where it was written?

A kernel starts while the one before it still runs, and asks for its weights at once. A compiler may
move loads of read-only memory behind the wait, which no other test sees: results are the same.
"""

import importlib.util
import re
import subprocess
from pathlib import Path

import pytest

from kernels.cuda.__main__ import compile_by_nvcc, defines_of, find_nvcc, qwen3_30b
from kernels.cuda.shape import DecodeShape
from kernels.cuda.tuning import gemv_plans
from kernels.layouts import BYTE_ENCODINGS

PLAIN, SCALED = BYTE_ENCODINGS
WAIT = "ACQBULK"  # what griddepcontrol.wait is called in machine code
LANES, LOAD_BYTES, THREADS = 32, 16, 256


def find_disassembler() -> str:
    """Return the path of the one that comes with Triton, "" where there is none."""
    spec = importlib.util.find_spec("triton")
    found = Path(spec.origin).parent / "backends/nvidia/bin/nvdisasm" if spec else None
    return str(found) if found and found.is_file() else ""


pytestmark = pytest.mark.skipif(
    not (find_nvcc() and find_disassembler()), reason="needs nvcc and Triton's disassembler"
)


def kernels_of(source: str, shape: DecodeShape, arch: str, folder: Path) -> dict[str, list[str]]:
    """Return the instructions of each kernel of a source."""
    binary = folder / f"{source}.{arch}.cubin"
    binary.write_bytes(compile_by_nvcc(find_nvcc(), source, defines_of(source, shape), arch))
    done = subprocess.run(
        [find_disassembler(), "-c", str(binary)], capture_output=True, text=True, check=True
    )
    sections = re.split(r"\n\s*\.section\s+\.text\.", done.stdout)[1:]
    instruction = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(.*?);")
    return {re.split(r"[\s,]", text, maxsplit=1)[0]: instruction.findall(text) for text in sections}


def weight_loads(shape: DecodeShape) -> dict[str, int]:
    """Return how many loads each kernel shall have on their way before it waits."""
    plans = gemv_plans(shape)
    chunks = shape.hidden * 2 // (LANES * LOAD_BYTES)  # of a row of the router, in bf16
    norm = shape.hidden * 4 // (THREADS * LOAD_BYTES)
    cells = 2 * 32 * shape.head_dim * 2 // (THREADS * LOAD_BYTES)  # a tile's keys and values
    return {
        "qkv_projection": plans.qkv.rows_per_warp * plans.qkv.depth,
        "output_projection": plans.output.rows_per_warp * plans.output.depth,
        "head_logits": plans.head.rows_per_warp * plans.head.depth,
        "route_plan": chunks + norm + 2,  # and the policy
        "attention_decode": cells + shape.head_dim // LANES,
    }


@pytest.mark.parametrize("arch", ["sm_90", "sm_120"])
@pytest.mark.parametrize("rows", [1, 8])
@pytest.mark.parametrize("encoding", [PLAIN, SCALED])
def test_constants_when_a_kernel_starts_early_are_requested_before_it_waits(
    arch, rows, encoding, tmp_path
):
    """All the loads that the sources ask for there, and the rest of the rows into the L2 cache."""
    shape = qwen3_30b(rows, encoding)
    kernels = kernels_of("dense.cu", shape, arch, tmp_path) | kernels_of(
        "moe.cu", shape, arch, tmp_path
    )
    for name, expected in weight_loads(shape).items():
        code = kernels[name]
        wait = next(place for place, line in enumerate(code) if WAIT in line)
        before = [line for line in code[:wait] if re.search(r"\bLDG\b", line)]
        assert len(before) >= expected, name
    early = kernels["qkv_projection"]
    wait = next(place for place, line in enumerate(early) if WAIT in line)
    assert any("CCTL" in line for line in early[:wait])
