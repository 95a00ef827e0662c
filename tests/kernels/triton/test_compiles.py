"""Every kernel of prefill compiles for every class of cards, without a card or a C compiler."""

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
    """Shared memory fits the class, class 9.0 multiplies by warp groups; PATH leads nowhere."""
    own = {"TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(tmp_path), "PATH": "", "CC": "none"}
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
    assert done.stdout.count("\n") == 19
