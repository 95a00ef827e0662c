"""GPU kernels in Triton: prefill's grouped experts, dense helpers. Know layouts, not models."""

import logging
from functools import cache
from importlib.util import find_spec


@cache
def obstacle() -> str:
    """Return why Triton cannot compile here, which is tried and logged once; "" if it can."""
    if not find_spec("triton"):
        return "Triton is not installed"
    from kernels.triton.trial import compile_problem  # imports Triton

    problem = compile_problem()
    if problem:
        logging.getLogger(__name__).warning("prompts run without Triton, slower: %s", problem)
    return problem
