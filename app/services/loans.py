"""Resizes that hold for a while only, and are nobody's choice: auto-yield asks for them.

The id of such a resize tells it, so that whoever remembers sizes can leave it out.
"""

LOAN = "loan"


def is_loan(resize_id: str) -> bool:
    """Whether a resize gives memory away, or takes it back, for the time being."""
    return resize_id.startswith(f"{LOAN}-")
