"""GPU kernels in Triton: prefill's grouped experts, dense helpers. Know layouts, not models."""

from importlib.util import find_spec


def obstacle() -> str:
    """Return why Triton cannot compile here; "" if it can."""
    return "" if find_spec("triton") else "Triton is not installed"
