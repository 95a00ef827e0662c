"""Every kernel of prefill compiles for every class of cards, on a machine without any."""

import os
import subprocess
import sys

import pytest

pytest.importorskip("triton")

from tests.conftest import REPOSITORY


@pytest.mark.slow
@pytest.mark.linux
@pytest.mark.timeout(600)
@pytest.mark.parametrize("arch", [80, 86, 89, 90, 120])
def test_kernels_compile_for(arch, tmp_path):
    """Shared memory fits the class, and class 9.0 multiplies by warp groups."""
    own = {"TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(tmp_path)}
    words = [sys.executable, "-m", "tests.kernels.triton.compiling", str(arch)]
    done = subprocess.run(
        words,
        cwd=REPOSITORY,
        env={**os.environ, **own},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.count("\n") == 16
