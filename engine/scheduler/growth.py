"""The context that grows when a reply needs more of it, at the cost of experts.

What has grown stays, as a long chat's next turn needs it again, until a person or a yield divides
anew. Integers only; whoever owns the pools moves the bytes. Called by `engine.scheduler.scheduler`
with no work in flight.
"""

import logging
from collections.abc import Callable

from engine.memory.budget import Division, MemoryBudget
from engine.memory.growth import grown, kept_slots, most_tokens

_log = logging.getLogger(__name__)


class ContextGrowth:
    """Plans growth, has it done, and remembers a refusal until something changes.

    Args:
        budget: of the device.
        division: returns the sizes now.
        divide: brings both pools to other sizes, whole or not at all, and tells who shows them.
        no_room: what `divide` raises if the device refuses the memory.
        chosen_slots: experts as a person or the load chose them.
    """

    def __init__(
        self,
        budget: MemoryBudget,
        division: Callable[[], Division],
        divide: Callable[[Division], None],
        no_room: tuple[type[Exception], ...],
        chosen_slots: int,
    ) -> None:
        self._budget = budget
        self._division = division
        self._divide = divide
        self._no_room = no_room
        self._refused_at: Division | None = None
        self.chosen_slots = chosen_slots

    @property
    def most_tokens(self) -> int:
        """The context that one reply can get; other threads may ask."""
        now = self._division()
        if now == self._refused_at:
            return now.kv_tokens
        most = most_tokens(self._budget, now, self._kept(is_needed=True))
        return max(now.kv_tokens, min(most, self._budget.kv_chat_tokens))

    def plan(self, tokens: int, missing_tokens: int) -> Division | None:
        """Return the division that serves a request; None = it must do without.

        Args:
            tokens: that the request itself needs a page for.
            missing_tokens: of free pages, while others hold some.
        """
        now = self._division()
        if now == self._refused_at:
            return None
        is_needed = tokens > now.kv_tokens  # whoever else gives way, it is not enough
        return grown(
            self._budget,
            now,
            tokens - now.kv_tokens if is_needed else missing_tokens,
            self._kept(is_needed),
            self._budget.kv_chat_tokens if is_needed else self._budget.kv_limit_tokens,
        )

    def apply(self, wanted: Division) -> bool:
        """Divide anew. Returns False, with the sizes that `divide` left, if memory is refused.

        Raises: what `divide` raises for other reasons.
        """
        try:
            self._divide(wanted)
        except self._no_room as problem:
            _log.warning("the context cannot grow to %d tokens: %s", wanted.kv_tokens, problem)
            self._refused_at = self._division()
            return False
        return True

    def forget_refusal(self) -> None:
        """Something is different: the device may be asked again."""
        self._refused_at = None

    def _kept(self, is_needed: bool) -> int:
        return kept_slots(self._budget, self.chosen_slots, is_needed)
