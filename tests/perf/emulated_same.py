"""`tests.perf.same` without a card: the CUDA sources run on the emulator, in one memory."""

import os
from unittest import mock

os.environ.setdefault("TRITON_INTERPRET", "1")  # before Triton is imported

from kernels.device.cpu import CpuDevice
from tests.engine.loader.captured_world import pinning
from tests.engine.loader.emulated import emulated_tools
from tests.perf import same
from tests.perf.serve import run


def main() -> int:
    """Run the combinations."""
    with mock.patch.object(CpuDevice, "host_buffer", pinning()):
        return same.main(None, emulated_tools)


if __name__ == "__main__":
    raise SystemExit(run(main))
