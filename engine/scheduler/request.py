"""One reply in the making: its tokens, its pages, how far it got. No tensors, no text.

Made by `engine.service`, moved on by `engine.scheduler.scheduler` only.
"""

from dataclasses import dataclass, field

from engine.protocol.messages import Sampling, Usage
from engine.scheduler.tally import Timing


@dataclass(eq=False, slots=True)
class Request:
    """A reply and its place in the sequence.

    Attributes:
        id: the client's name for it.
        prompt: token ids of the conversation.
        sampling: how tokens are chosen.
        seed: of the row's random numbers.
        timing: its clock.
        arrival: order of submission; the smaller, the older.
        row: the runner's row, -1 before the first admission. Kept through a preemption, so that
            penalties and random numbers go on where they were.
        pages: KV pages, in order.
        generated: sampled ids that were accepted.
        computed: tokens at the front of the sequence whose keys and values are in the pages.
        launched: samples asked for; at most one ahead of `generated` (runner latency 1).
        fill_tokens: tokens to run as prefill before decoding may go on.
        reused_tokens: of the prompt, whose keys and values an earlier reply left.
        has_failed: a step went wrong; what its pages hold serves nobody else.
        is_done: nothing more is accepted or emitted.
    """

    id: str
    prompt: tuple[int, ...]
    sampling: Sampling
    seed: int
    timing: Timing
    arrival: int = 0
    row: int = -1
    pages: tuple[int, ...] = ()
    generated: list[int] = field(default_factory=list)
    computed: int = 0
    launched: int = 0
    fill_tokens: int = 0
    reused_tokens: int = 0
    has_failed: bool = False
    is_done: bool = False

    def __post_init__(self) -> None:
        self.fill_tokens = len(self.prompt)

    @property
    def needs_prefill(self) -> bool:
        """True until prompt (and, after a preemption, the reply so far) is in the pages."""
        return self.computed < self.fill_tokens

    @property
    def next_position(self) -> int:
        """Position of the token that the next decode step runs."""
        return len(self.prompt) + self.launched - 1

    @property
    def usage(self) -> Usage:
        """Token counts so far; the end token counts."""
        return Usage(
            prompt_tokens=len(self.prompt),
            reply_tokens=len(self.generated),
            reused_tokens=self.reused_tokens,
        )

    @property
    def ids(self) -> tuple[int, ...]:
        """The sequence so far; the first `computed` of them are in the pages."""
        return (*self.prompt, *self.generated)

    def chunk(self, size: int) -> tuple[int, ...]:
        """Return the next ids to prefill, at most `size`."""
        end = min(self.computed + size, self.fill_tokens)
        if end <= len(self.prompt):
            return self.prompt[self.computed : end]
        return self.ids[self.computed : end]

    def can_decode(self, limit_tokens: int) -> bool:
        """Return whether one more token may be asked for within the context limit."""
        return (
            not self.is_done
            and not self.needs_prefill
            and 0 < self.launched < self.sampling.max_tokens
            and self.next_position < limit_tokens
        )

    def is_at_limit(self, limit_tokens: int) -> bool:
        """Return whether the accepted tokens fill `max_tokens` or the context."""
        count = len(self.generated)
        full = len(self.prompt) + count - 1 >= limit_tokens
        return count >= self.sampling.max_tokens or full

    def rewind(self) -> None:
        """Forget the pages: all but the last sampled id must be computed anew.

        That id stays with the row on the device, and decoding goes on from it; so a preemption
        samples nothing twice.
        """
        self.pages = ()
        self.computed = 0
        self.launched = len(self.generated)
        self.fill_tokens = len(self.prompt) + max(0, len(self.generated) - 1)
