"""Arrows go down only: the contracts of pyproject.toml hold."""

import subprocess
import sys

from tests.conftest import REPOSITORY


def test_import_contracts_hold() -> None:
    """Layers, families, the app's view of the engine: all as ARCHITECTURE.md draws them."""
    code = (
        "from importlinter.cli import lint_imports\nraise SystemExit(lint_imports(no_cache=True))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-4000:]


def test_app_starts_without_torch() -> None:
    """The window's process never pays for torch, and never can call the engine directly."""
    code = (
        "import sys, app.main\n"
        "bad = ('torch', 'triton', 'transformers', 'kernels', 'engine.service', 'engine.moe')\n"
        "raise SystemExit(', '.join(name for name in bad if name in sys.modules) or 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_kernels_version_keeps_transformers_quiet() -> None:
    """transformers takes a package of this name for its hub client unless the version is 0.0."""
    import kernels

    assert kernels.__version__ == "0.0"
    from transformers.utils import is_kernels_available

    assert not is_kernels_available()
