"""Where the Triton tests run: compiled on a card, else in the interpreter."""

import pytest

triton = pytest.importorskip("triton")

INTERPRETED = bool(triton.knobs.runtime.interpret)
DEVICE = "cpu" if INTERPRETED else "cuda:0"

interpreted = pytest.mark.skipif(not INTERPRETED, reason="float32 products need the interpreter")


def on_card(test):
    """Mark a test that needs a card."""
    return pytest.mark.gpu(pytest.mark.skipif(INTERPRETED, reason="needs an NVIDIA GPU")(test))
