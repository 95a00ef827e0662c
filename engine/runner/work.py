"""What the scheduler asks of the runner in one step, as data. No tensors, no torch."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RowWork:
    """One row's share of a step: a prompt chunk, or one token of a reply.

    Attributes:
        row: the row opened with `ModelRunner.open_row`.
        tokens: ids to run; empty = the row's last sampled id, which never left the device.
        start: position of the first of them in the sequence.
        pages: every page of the sequence in order, at least up to the last token of this work.
        sample: whether a next token is wanted; False for all but the last chunk of a prompt.
    """

    row: int
    tokens: tuple[int, ...]
    start: int
    pages: tuple[int, ...]
    sample: bool

    @property
    def num_tokens(self) -> int:
        """Tokens this work runs: at least one."""
        return len(self.tokens) or 1

    @property
    def context_tokens(self) -> int:
        """Tokens of the sequence once this work is done."""
        return self.start + self.num_tokens
