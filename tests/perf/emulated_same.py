"""`tests.perf.same` without a card: the CUDA sources run on the emulator, in one memory."""

import os
from unittest import mock

os.environ.setdefault("TRITON_INTERPRET", "1")  # before Triton is imported

from kernels.device.cpu import CpuDevice, plain_buffer
from tests.engine.loader.captured_world import PinnedBuffer
from tests.engine.loader.emulated import emulated_tools
from tests.perf import same
from tests.perf.serve import run


def main() -> int:
    """Run the combinations."""

    def host_buffer(_: CpuDevice, num_bytes: int) -> PinnedBuffer:
        return PinnedBuffer(plain_buffer(num_bytes).tensor)

    with mock.patch.object(CpuDevice, "host_buffer", host_buffer):
        return same.main(None, emulated_tools)


if __name__ == "__main__":
    raise SystemExit(run(main))
