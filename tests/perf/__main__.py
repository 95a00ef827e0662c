"""`python -m tests.perf NAME ...`, behind `dev.py bench NAME ...`: one benchmark of the table.

Each is a module with a `main`; its `--help` says what it takes.
"""

import subprocess
import sys

BENCHES: dict[str, str] = {
    "versus": "tests.perf.decode",
    "probe": "tests.perf.probe",
    "decode": "tests.perf.serve_decode",
    "prefill": "tests.perf.serve_prefill",
    "resize": "tests.perf.serve_resize",
    "load": "tests.perf.serve_load",
    "same": "tests.perf.same",
    "kernels": "tests.perf.kernels",
    "ui": "tests.perf.ui",
    "replay": "tests.perf.replay",
    "report": "tests.perf.report",
}
"""Without a name it is `versus`: decode against transformers, in one run."""


def main() -> int:
    """Run the benchmark that the first word names. Returns its exit code."""
    words = sys.argv[1:]
    name = words.pop(0) if words and not words[0].startswith("-") else "versus"
    if name not in BENCHES:
        print(f"There is no benchmark {name!r}; known: {', '.join(BENCHES)}.", file=sys.stderr)
        return 2
    return subprocess.run([sys.executable, "-m", BENCHES[name], *words], check=False).returncode


if __name__ == "__main__":
    raise SystemExit(main())
