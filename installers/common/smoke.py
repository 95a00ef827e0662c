"""Try a frozen build: the engine answers, and ends by itself when its parent is gone.

Standard library only: `python installers/common/smoke.py dist/freetoken`. Exit code 0 = works.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

TIMEOUT_S = 120


def main() -> int:
    """Say hello to the frozen engine, close its stdin, expect exit code 0."""
    folder = Path(sys.argv[1])
    engine = folder / ("freetoken-engine.exe" if sys.platform == "win32" else "freetoken-engine")
    if not engine.exists():
        print(f"{engine} is missing: removed by security software, or the build failed.")
        return 1
    hello = json.dumps({"type": "hello", "protocol_version": 1, "client": "smoke"}) + "\n"
    with tempfile.TemporaryDirectory() as home:
        done = subprocess.run(
            [str(engine), "--home", home],
            input=hello,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    events = [json.loads(line) for line in done.stdout.splitlines()]
    ready = [event for event in events if event["type"] == "ready"]
    if done.returncode or not ready:
        print(f"exit code {done.returncode}, events {events}\n{done.stderr[-2000:]}")
        return 1
    print(f"engine {ready[0]['engine_version']} answered and ended by itself")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
