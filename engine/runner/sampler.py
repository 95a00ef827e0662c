"""How the next token is chosen, per row, on the device.

A draw depends on the row's seed and the position of the new token, never on who shares the batch,
what is resident or which device computes: the random number is worked out on the host.
Order: repetition penalty, presence and frequency penalty, temperature, top-k, top-p, min-p.
"""

from collections.abc import Sequence
from hashlib import blake2b

import torch
from torch import Tensor

from engine.protocol.messages import Sampling
from kernels.reference.sampling import (
    Filters,
    draw,
    greedy,
    penalise_counts,
    penalise_repetition,
)

UNIFORM_BITS = 53  # of a float64's mantissa, so that a draw never reaches 1


def uniform(seed: int, position: int) -> float:
    """Return the random number in [0, 1) of one position of one reply: a hash of both.

    `seed` is any integer; it counts modulo 2**64.
    """
    data = (seed % (1 << 64)).to_bytes(8, "little") + position.to_bytes(8, "little")
    word = int.from_bytes(blake2b(data, digest_size=8).digest(), "little")
    return (word >> (64 - UNIFORM_BITS)) / (1 << UNIFORM_BITS)


class RowSampler:
    """One row's sampling options, and the counts that its penalties need, on the device.

    The repetition penalty counts prompt and output, presence and frequency the output only.
    """

    def __init__(
        self, sampling: Sampling, seed: int, vocab_size: int, device: torch.device
    ) -> None:
        self._sampling, self._seed = sampling, seed
        self._filters = Filters(
            sampling.temperature, sampling.top_k, sampling.top_p, sampling.min_p
        )
        self._seen: Tensor | None = None  # [V] bool
        self._counts: Tensor | None = None  # [V] float32
        if sampling.repetition_penalty != 1.0:
            self._seen = torch.zeros(vocab_size, dtype=torch.bool, device=device)
        if sampling.presence_penalty or sampling.frequency_penalty:
            self._counts = torch.zeros(vocab_size, dtype=torch.float32, device=device)

    @property
    def is_greedy(self) -> bool:
        """Whether the likeliest token is taken (after penalties, if any)."""
        return self._sampling.temperature == 0.0

    @property
    def has_penalty(self) -> bool:
        """Whether earlier tokens change the logits."""
        return self._seen is not None or self._counts is not None

    def uniform(self, position: int) -> float:
        """Return the random number for the token at `position`; 0.0 if none is needed."""
        return 0.0 if self.is_greedy else uniform(self._seed, position)

    def note_prompt(self, ids: Sequence[int]) -> None:
        """Count tokens that were given."""
        if self._seen is not None and ids:
            self._seen.index_fill_(0, torch.tensor(ids, device=self._seen.device), True)

    def note_output(self, ids: Tensor) -> None:
        """Count tokens that were chosen. Shapes: ids [n] int64 on the device, none negative."""
        if self._seen is not None:
            self._seen.index_fill_(0, ids, True)
        if self._counts is not None:
            self._counts.index_add_(0, ids, self._counts.new_ones(1).expand(ids.shape[0]))

    def choose(self, logits: Tensor, number: Tensor) -> Tensor:
        """Choose a token. Shapes: logits [V], number [] float64 in [0, 1) -> [1] int64."""
        sampling = self._sampling
        if self._seen is not None:
            logits = penalise_repetition(logits, self._seen, sampling.repetition_penalty)
        if self._counts is not None:
            presence, frequency = sampling.presence_penalty, sampling.frequency_penalty
            logits = penalise_counts(logits, self._counts, presence, frequency)
        if self.is_greedy:
            return greedy(logits.unsqueeze(0))
        return draw(logits, self._filters, number)


def sample(logits: Tensor, rows: Sequence[RowSampler], positions: Sequence[int]) -> Tensor:
    """Choose one token per row and count it.

    Shapes: logits [B, V] float32; `positions` are those of the new tokens -> [B] int64, -1 for a
    row whose logits hold NaN. Does not wait for the device.
    """
    if all(row.is_greedy and not row.has_penalty for row in rows):
        return greedy(logits)
    numbers = [row.uniform(position) for row, position in zip(rows, positions, strict=True)]
    uniforms = torch.tensor(numbers, dtype=torch.float64).to(logits.device, non_blocking=True)
    chosen = [
        row.choose(one, number)
        for row, one, number in zip(rows, logits.unbind(0), uniforms.unbind(0), strict=True)
    ]
    for row, ids in zip(rows, chosen, strict=True):
        if row.has_penalty:
            row.note_output(ids.clamp(min=0))
    return torch.cat(chosen)
