"""`python -m kernels.cuda [--nvcc | --nvrtc] [--quick]`: do all CUDA sources compile? Needs no GPU.

Every source, for the built-in model and for Qwen3-30B-A3B in both encodings, for 1 and 8 rows, for
every kind of card that releases are built for. Prints a line each; the exit code counts failures.
"""

import argparse
import os
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from shutil import which

from kernels.cuda.compile import (
    FLAGS,
    SHARED_HEADERS,
    SOURCES,
    CompileError,
    compile_source,
    source_names,
)
from kernels.cuda.shape import DecodeShape
from kernels.cuda.tuning import dense_defines
from kernels.layouts import BYTE_ENCODINGS, Encoding, RecordLayout

ARCHITECTURES = ("sm_80", "sm_86", "sm_89", "sm_90", "sm_120")
QUICK_ARCHITECTURES = ("sm_80", "sm_90")  # both sides of every condition in the sources
DENSE_SOURCE = "dense.cu"
SOURCES_WITHOUT_SIZES = ("probe.cu",)
PLAIN, SCALED = BYTE_ENCODINGS
GROUP = 128


def built_in(rows: int) -> DecodeShape:
    """Return the shape of the built-in model."""
    return DecodeShape(
        rows=rows,
        layout=RecordLayout(384, 128, SCALED, GROUP),
        num_experts=24,
        top_k=3,
        num_layers=8,
        num_heads=6,
        num_kv_heads=2,
        head_dim=64,
        vocab=8192,
        projections=SCALED,
        head=PLAIN,
        embedding=PLAIN,
        router=PLAIN,
        dense_group=GROUP,
        max_slots=192,
    )


def qwen3_30b(rows: int, encoding: Encoding = PLAIN, num_layers: int = 48) -> DecodeShape:
    """Return the shape of Qwen3-30B-A3B."""
    group = GROUP if encoding == SCALED else 0
    return DecodeShape(
        rows=rows,
        layout=RecordLayout(2048, 768, encoding, group),
        num_experts=128,
        top_k=8,
        num_layers=num_layers,
        num_heads=32,
        num_kv_heads=4,
        head_dim=128,
        vocab=151936,
        projections=encoding,
        head=PLAIN,
        embedding=PLAIN,
        router=PLAIN,
        dense_group=group,
        max_slots=num_layers * 128,
    )


def defines_of(source: str, shape: DecodeShape) -> dict[str, int]:
    """Return what a source is compiled with for a shape."""
    return dense_defines(shape) if source == DENSE_SOURCE else shape.defines()


def find_nvcc() -> str:
    """Return nvcc's path: of the environment's package, else the system's; "" if there is none."""
    for place in sorted(Path(sysconfig.get_path("purelib")).glob("nvidia/*/bin/nvcc*")):
        if place.suffix in ("", ".exe"):
            return str(place)
    return which("nvcc") or ""


def compile_by_nvcc(nvcc: str, source: str, defines: dict[str, int], arch: str) -> bytes:
    """Return the machine code. Raises CompileError with the compiler's words."""
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch, "out.cubin")
        command = [
            nvcc,
            f"-arch={arch}",
            "-cubin",
            *FLAGS,
            f"-I{SHARED_HEADERS}",
            *(f"-D{name}={value}" for name, value in defines.items()),
            "-o",
            str(out),
            str(SOURCES / source),
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise CompileError(f"{' '.join(command)}\n{done.stderr}")
        return out.read_bytes()


def jobs(architectures: Sequence[str]) -> Iterator[tuple[str, str, dict[str, int], str]]:
    """Give what is tried: source, shape in words, defines, architecture."""
    for arch, source in product(architectures, source_names()):
        if source in SOURCES_WITHOUT_SIZES:
            yield source, "no shape", {}, arch
            continue
        for rows in (1, 8):
            yield source, f"built-in, {rows} rows", defines_of(source, built_in(rows)), arch
            for encoding in BYTE_ENCODINGS:
                defines = defines_of(source, qwen3_30b(rows, encoding))
                yield source, f"Qwen3-30B-A3B {encoding}, {rows} rows", defines, arch


def main(arguments: Sequence[str]) -> int:
    """Compile everything; returns the number of failures, 1 if there is no compiler."""
    parser = argparse.ArgumentParser(prog="python -m kernels.cuda", description=__doc__)
    which_one = parser.add_mutually_exclusive_group()
    which_one.add_argument("--nvcc", action="store_true", help="by nvcc only")
    which_one.add_argument("--nvrtc", action="store_true", help="by NVRTC only")
    parser.add_argument("--quick", action="store_true", help="two kinds of cards, not five")
    options = parser.parse_args(arguments)
    nvcc = "" if options.nvrtc else find_nvcc()
    if options.nvcc and not nvcc:
        sys.stderr.write("There is no nvcc; pip install nvidia-cuda-nvcc brings one.\n")
        return 1

    def attempt(job: tuple[str, str, dict[str, int], str]) -> bool:
        source, name, defines, arch = job
        try:
            if nvcc:
                compile_by_nvcc(nvcc, source, defines, arch)
            else:
                compile_source(source, defines, arch)
        except (CompileError, OSError) as problem:
            sys.stdout.write(f"{source} for {arch}, {name}: {problem}\n")
            return False
        sys.stdout.write(f"{source} for {arch}, {name}: compiles\n")
        return True

    tried = list(jobs(QUICK_ARCHITECTURES if options.quick else ARCHITECTURES))
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(attempt, tried)).count(False)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
