"""Settings for every test: offscreen Qt, no hub, no network, an own data root.

Property tests try the same inputs in every run, so that what is red once is red again and a change
is what made it so. `dev.py test --search` looks for new inputs.
"""

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
from hypothesis import settings

settings.register_profile("same inputs", derandomize=True, deadline=None, print_blob=True)
settings.register_profile("search", max_examples=1000, deadline=None, print_blob=True)
settings.load_profile("search" if os.environ.get("FT_SEARCH") else "same inputs")

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
