"""How the next token is chosen, per row, on the device.

A draw depends on the row's seed and the position of the new token, never on who shares the batch,
what is resident or which device computes: the random number is worked out on the host.
Order: repetition penalty, presence and frequency penalty, temperature, top-k, top-p, min-p.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import groupby

import torch
from torch import Tensor

from engine.protocol.messages import Sampling
from kernels.reference.sampling import (
    Filters,
    draw_rows,
    greedy,
    penalise_counts,
    penalise_repetition,
)

LEAST_TEMPERATURE = 1e-6  # below it the likeliest token is as good as certain, and may overflow
UNIFORM_BITS = 53  # of a float64's mantissa, so that a draw never reaches 1


def uniform(seed: int, position: int) -> float:
    """Return the random number in [0, 1) of one position of one reply: a hash of both.

    `seed` is any integer; it counts modulo 2**64.
    """
    data = (seed % (1 << 64)).to_bytes(8, "little") + position.to_bytes(8, "little")
    word = int.from_bytes(blake2b(data, digest_size=8).digest(), "little")
    return (word >> (64 - UNIFORM_BITS)) / (1 << UNIFORM_BITS)


class Past:
    """What a row's penalties count, on the device; the replies of a row use it one after another.

    Its tensors keep their addresses, so that recorded kernels go on with the next reply.
    """

    def __init__(self, vocab_size: int, device: torch.device) -> None:
        self.device = device
        self._vocab_size = vocab_size
        self._seen: Tensor | None = None
        self._counts: Tensor | None = None

    @property
    def seen(self) -> Tensor:
        """Which tokens occurred in prompt or output: bool [V]."""
        if self._seen is None:
            self._seen = torch.zeros(self._vocab_size, dtype=torch.bool, device=self.device)
        return self._seen

    @property
    def counts(self) -> Tensor:
        """How often each token was output: float32 [V]."""
        if self._counts is None:
            self._counts = torch.zeros(self._vocab_size, device=self.device)
        return self._counts


@dataclass(frozen=True, slots=True)
class Penalties:
    """How earlier tokens change the logits, and which those are.

    The repetition penalty counts prompt and output, presence and frequency the output only.
    """

    repetition: float
    presence: float
    frequency: float
    past: Past

    @property
    def has_seen(self) -> bool:
        """Whether `past.seen` is in use."""
        return self.repetition != 1.0

    @property
    def has_counts(self) -> bool:
        """Whether `past.counts` is in use."""
        return bool(self.presence or self.frequency)

    @property
    def strengths(self) -> tuple[float, float, float]:
        """How much they change, whatever is counted."""
        return self.repetition, self.presence, self.frequency

    def note_output(self, ids: Tensor) -> None:
        """Count tokens that were chosen. Shapes: ids [n] int64 on the device, none negative."""
        if self.has_seen:
            self.past.seen.index_fill_(0, ids, True)
        if self.has_counts:
            ones = self.past.counts.new_ones(1).expand(ids.shape[0])
            self.past.counts.index_add_(0, ids, ones)


@dataclass(frozen=True, slots=True)
class Way:
    """How a row's tokens are chosen, but for the random number. `filters` = None: the likeliest."""

    filters: Filters | None
    penalties: Penalties | None

    @property
    def strengths(self) -> tuple[float, float, float] | None:
        """Of the penalties, if there are any."""
        return None if self.penalties is None else self.penalties.strengths

    @property
    def is_plain(self) -> bool:
        """Whether it is the likeliest of the logits as they are."""
        return self.filters is None and self.penalties is None


class RowSampler:
    """One reply's sampling options; `past` belongs to its row and is begun anew."""

    def __init__(self, sampling: Sampling, seed: int, past: Past) -> None:
        self._seed = seed
        penalties = Penalties(
            sampling.repetition_penalty,
            sampling.presence_penalty,
            sampling.frequency_penalty,
            past,
        )
        filters = Filters(sampling.temperature, sampling.top_k, sampling.top_p, sampling.min_p)
        self.way = Way(
            None if sampling.temperature < LEAST_TEMPERATURE else filters,
            penalties if penalties.has_seen or penalties.has_counts else None,
        )
        if penalties.has_seen:
            past.seen.zero_()
        if penalties.has_counts:
            past.counts.zero_()

    def uniform(self, position: int) -> float:
        """Return the random number for the token at `position`; 0.0 if none is needed."""
        return 0.0 if self.way.filters is None else uniform(self._seed, position)

    def note_prompt(self, ids: Sequence[int]) -> None:
        """Count tokens that were given."""
        penalties = self.way.penalties
        if penalties is not None and penalties.has_seen and ids:
            past = penalties.past
            past.seen.index_fill_(0, torch.tensor(ids, device=past.device), True)

    def note_output(self, ids: Sequence[int]) -> None:
        """Count tokens that were chosen earlier."""
        penalties = self.way.penalties
        if penalties is not None and ids:
            penalties.note_output(torch.tensor(ids, device=penalties.past.device))


def take_the_likeliest(rows: Sequence[RowSampler]) -> bool:
    """Return whether no row needs more than the highest of its logits."""
    return all(row.way.is_plain for row in rows)


def numbers(rows: Sequence[RowSampler], positions: Sequence[int]) -> Tensor:
    """Return each row's random number for the token at its position: [B] float64 on the host."""
    pairs = zip(rows, positions, strict=True)
    return torch.tensor([row.uniform(at) for row, at in pairs], dtype=torch.float64)


def choose(logits: Tensor, ways: Sequence[Way], uniforms: Tensor, ids: Tensor) -> None:
    """Put the chosen tokens over the likeliest ones in `ids`, and count them.

    Neighbours whose ways differ at most in what their penalties count share kernels.
    Shapes: logits [B, V] float32, uniforms [B] float64; ids [B] of any integers, -1 for a row whose
    logits hold NaN. Does not wait for the device.
    """
    noted: list[tuple[Penalties, Tensor]] = []
    first = 0
    for (filters, _), run in groupby(ways, key=lambda way: (way.filters, way.strengths)):
        same = list(run)
        part = slice(first, first + len(same))
        first = part.stop
        if same[0].is_plain:
            continue
        penalties = [way.penalties for way in same if way.penalties is not None]
        changed = penalised(logits[part], penalties) if penalties else logits[part]
        if filters is None:
            ids[part] = chosen = greedy(changed)
        else:
            ids[part] = chosen = draw_rows(changed, filters, uniforms[part])
        if penalties:
            counted = chosen.clamp(min=0).unsqueeze(1).unbind(0)
            noted += zip(penalties, counted, strict=True)
    for one, chosen in noted:  # last: a device without memory is asked again
        one.note_output(chosen)


def penalised(logits: Tensor, penalties: Sequence[Penalties]) -> Tensor:
    """Return what each row's penalties, all as strong, make of its logits. Shapes: [B, V]."""
    first = penalties[0]
    if first.has_seen:
        seen = _rows([one.past.seen for one in penalties])
        logits = penalise_repetition(logits, seen, first.repetition)
    if first.has_counts:
        counts = _rows([one.past.counts for one in penalties])
        logits = penalise_counts(logits, counts, first.presence, first.frequency)
    return logits


def _rows(tensors: Sequence[Tensor]) -> Tensor:
    return tensors[0].unsqueeze(0) if len(tensors) == 1 else torch.stack(list(tensors))


def sample(logits: Tensor, rows: Sequence[RowSampler], positions: Sequence[int]) -> Tensor:
    """Choose one token per row and count it.

    Shapes: logits [B, V] float32; `positions` are those of the new tokens -> [B] int64, -1 for a
    row whose logits hold NaN. Does not wait for the device.
    """
    if take_the_likeliest(rows):
        return greedy(logits)
    uniforms = numbers(rows, positions).to(logits.device, non_blocking=True)
    if any(row.way.is_plain for row in rows):
        ids = greedy(logits)
    else:
        ids = torch.empty(len(rows), dtype=torch.int64, device=logits.device)
    choose(logits, [row.way for row in rows], uniforms, ids)
    return ids
