"""The kernels' own benchmarks, one after the other: `dev.py bench kernels`.

Runs the modules below as they are, those for a GPU only where there is one. `--only` picks some.
"""

import argparse
import subprocess
import sys
from pathlib import Path

from kernels.cuda import cuda_obstacle

CPU_PARTS: dict[str, str] = {"pool": "tests.perf.pool"}
GPU_PARTS: dict[str, str] = {
    path.stem.removeprefix("gpu_"): f"tests.perf.{path.stem}"
    for path in sorted(Path(__file__).parent.glob("gpu_*.py"))
}


def main(arguments: list[str] | None = None) -> int:
    """Run the parts; returns the first exit code that is not 0."""
    parts = CPU_PARTS | GPU_PARTS
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", choices=parts, default=list(parts))
    options, rest = parser.parse_known_args(arguments)
    obstacle = cuda_obstacle()
    codes = []
    for name in options.only:
        if name in GPU_PARTS and obstacle:
            print(f"{name}: not run, {obstacle}.", flush=True)
            continue
        print(f"-- {name}", flush=True)
        codes.append(subprocess.run([sys.executable, "-m", parts[name], *rest], check=False))
    return next((done.returncode for done in codes if done.returncode), 0)


if __name__ == "__main__":
    raise SystemExit(main())
