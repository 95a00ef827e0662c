"""Libraries that compile: where they keep it, and that torch does not."""

import os
import subprocess
import sys

import pytest

from engine.system import settle_compilers
from tests.conftest import REPOSITORY

NAMES = ("TRITON_CACHE_DIR", "CUDA_CACHE_PATH", "TORCH_DISABLE_NATIVE_JIT")
TRY = """
import sys
import engine.__main__
assert "torch" not in sys.modules, "it reads the environment when it is imported"
engine.__main__.read_settings = lambda: engine.settings.EngineSettings(
    engine.protocol.places.DataRoot(engine.system.Path(sys.argv[1])), job="none"
)
engine.__main__._run_job = lambda *_: 0
engine.__main__.claim_stdout = lambda: 1
engine.__main__.main()
import torch._native.common_utils as common
print(common.check_native_jit_disabled(), engine.system.os.environ["TRITON_CACHE_DIR"])
"""


def test_engine_when_it_starts_then_torch_will_compile_nothing(tmp_path):
    """A product over one column would be a Triton kernel, whose launcher wants a C compiler."""
    around = {name: value for name, value in os.environ.items() if name not in NAMES}
    done = subprocess.run(
        [sys.executable, "-c", TRY, str(tmp_path)],
        cwd=REPOSITORY,
        env=around,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.split() == ["True", str(tmp_path / "caches" / "triton")]


@pytest.mark.parametrize("given", ["", "/elsewhere"])
def test_folder_when_a_person_names_another_then_it_is_taken(monkeypatch, tmp_path, given):
    """Somebody who works on kernels keeps them elsewhere."""
    around = {"TRITON_CACHE_DIR": given} if given else {}
    monkeypatch.setattr(os, "environ", around)
    settle_compilers(tmp_path)
    assert around == {
        "TRITON_CACHE_DIR": given or str(tmp_path / "triton"),
        "CUDA_CACHE_PATH": str(tmp_path / "driver"),
        "TORCH_DISABLE_NATIVE_JIT": "1",
    }
