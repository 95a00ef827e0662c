"""Settings for every test: offscreen Qt, no hub, no network, an own data root."""

import os
import shutil

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
if not shutil.which("nvidia-smi"):  # without a card, Triton's interpreter runs its kernels
    os.environ.setdefault("TRITON_INTERPRET", "1")
os.environ["USE_HUB_KERNELS"] = "0"
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]


@pytest.fixture(autouse=True)
def data_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Every test gets its own data root, so that nothing of the person's is touched."""
    home = tmp_path / "home"
    monkeypatch.setenv("FREETOKEN_HOME", str(home))
    return home


@pytest.fixture(scope="session")
def builtin_model() -> Path:
    """The source folder of the built-in model (FP8, published layout)."""
    return REPOSITORY / "resources" / "models" / "tiny-moe-fp8"
