"""The kernels' own benchmarks, one after the other: `dev.py bench kernels`.

Runs the modules below as they are, those for a GPU only where there is one. `--only` picks some.
With `--json FILE` those of `KEEPERS` keep their figures, each in a file of its own beside that
name; the others print only.
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
KEEPERS = ("pool", "prefill")


def main(arguments: list[str] | None = None) -> int:
    """Run the parts; returns the first exit code that is not 0."""
    parts = CPU_PARTS | GPU_PARTS
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", choices=parts, default=list(parts))
    parser.add_argument("--json", type=Path, help="FILE; figures of a part go to FILE-PART")
    options, rest = parser.parse_known_args(arguments)
    obstacle = cuda_obstacle()
    codes = []
    for name in options.only:
        if name in GPU_PARTS and obstacle:
            print(f"{name}: not run, {obstacle}.", flush=True)
            continue
        print(f"-- {name}", flush=True)
        words = [sys.executable, "-m", parts[name], *rest, *_keeping(name, options.json)]
        codes.append(subprocess.run(words, check=False))
    return next((done.returncode for done in codes if done.returncode), 0)


def _keeping(part: str, file: Path | None) -> list[str]:
    """Return the words that let a part keep its figures."""
    if file is None or part not in KEEPERS:
        return []
    return ["--json", str(file.with_name(f"{file.stem}-{part}{file.suffix}"))]


if __name__ == "__main__":
    raise SystemExit(main())
