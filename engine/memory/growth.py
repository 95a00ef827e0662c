"""How far the context may grow by itself, and what the experts give for it.

Arithmetic only. The bytes of both pools together never grow: what a division leaves free may have
been yielded to other programs, and is not taken back here. Called by `engine.scheduler.growth`.
"""

from engine.memory.budget import Division, MemoryBudget, down_to_page, up_to_page

# Beyond what is missing, so that a long reply does not resize every few tokens.
STEP_TOKENS = 1024
STEP_PART = 8  # of the present size, if that is more
KEPT_PART = 2  # of the chosen experts stay where others could be waited for instead


def kept_slots(budget: MemoryBudget, chosen_slots: int, is_needed: bool) -> int:
    """Return the slots that growth leaves to the experts.

    `is_needed`: the reply could not go on otherwise; it may cost all but the least. One that only
    competes with others costs at most half of what a person or the load chose.
    """
    if is_needed:
        return budget.min_slots
    return max(budget.min_slots, -(-chosen_slots // KEPT_PART))


def most_tokens(budget: MemoryBudget, now: Division, kept: int) -> int:
    """Return the context that there is if the experts give all but `kept` slots.

    Returns: never less than now, nor more than a resize may ask for.
    """
    given_bytes = budget.expert_bytes(max(0, now.expert_slots - kept))
    tokens = now.kv_tokens + down_to_page(given_bytes // budget.kv_token_bytes)
    return max(now.kv_tokens, min(tokens, budget.bounds().max_kv_tokens))


def grown(
    budget: MemoryBudget, now: Division, missing_tokens: int, kept: int, limit_tokens: int
) -> Division | None:
    """Return the division with `missing_tokens` more context and some to spare; None = it cannot.

    The experts give whole slots, and the context takes all of them, up to `limit_tokens`.
    """
    least = up_to_page(now.kv_tokens + missing_tokens)
    most = min(most_tokens(budget, now, kept), up_to_page(limit_tokens))
    if missing_tokens <= 0 or least > most:
        return None
    step = up_to_page(max(STEP_TOKENS, now.kv_tokens // STEP_PART))
    gain_bytes = budget.kv_bytes(min(least + step, most) - now.kv_tokens)
    slots = -(-gain_bytes // budget.record_bytes)
    taken = down_to_page(budget.expert_bytes(slots) // budget.kv_token_bytes)
    return Division(min(now.kv_tokens + taken, most), now.expert_slots - slots)
