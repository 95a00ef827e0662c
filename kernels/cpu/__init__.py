"""Python face of the C++ kernels; everything here works without them too.

The module `_native` is built in place by CMake (`dev.py bootstrap`) and is optional.
"""

import importlib
from typing import Literal

IsaTier = Literal["scalar", "avx2", "avx512"]


def isa_tier() -> IsaTier | None:
    """Return the highest instruction-set tier of this machine; None if `_native` is not built."""
    try:
        native = importlib.import_module("kernels.cpu._native")
    except ImportError:
        return None
    tier: IsaTier = native.isa_tier()
    return tier
