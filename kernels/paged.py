"""Where one forward's keys and values lie in a paged pool: row numbers only, no memory.

The pool is page -> layer -> keys, values -> tokens -> heads -> D. Made by `engine.cache.kv` once
per forward; read by the pool itself and by kernels that walk the pages.
"""

from functools import cached_property

import torch
from torch import Tensor


class KvRows:
    """Rows of all layers; numbered when the first layer asks, because native kernels never do.

    Attributes:
        page_tokens: tokens of a page.
        slots: [T] int64, where each token's keys and values go: page * page_tokens + offset.
        tables: [B, P] int64, pages of each sequence in order.
        lengths: tokens of each sequence, those of this forward included.
    """

    def __init__(
        self,
        blocks: Tensor,
        page_tokens: int,
        slots: Tensor,
        tables: Tensor,
        lengths: tuple[int, ...],
    ) -> None:
        """Take the numbers of a page's blocks, [2 * layers], on the device of the others."""
        self._blocks = blocks
        self.page_tokens, self.slots, self.tables = page_tokens, slots, tables
        self.lengths = lengths

    @cached_property
    def writes(self) -> tuple[Tensor, ...]:
        """Per layer [T * 2]: token rows of the pool, each token's keys, then its values."""
        size, per_page = self.page_tokens, len(self._blocks)
        pages = self.slots.div(size, rounding_mode="floor")
        first = torch.add(self.slots, pages, alpha=(per_page - 1) * size)
        blocks = self._blocks.view(-1, 1, 2)
        rows = torch.add(first.unsqueeze(1), blocks, alpha=size)  # [L, T, 2]
        return rows.flatten(1).unbind(0)

    @cached_property
    def reads(self) -> tuple[tuple[Tensor, ...], ...]:
        """Per sequence, per layer [2 * its pages]: page rows, all the keys, then all the values."""
        blocks = self._blocks.view(-1, 1, 2, 1)
        rows = torch.add(blocks, self.tables.unsqueeze(1), alpha=len(self._blocks))  # [L, B, 2, P]
        return tuple(
            rows[:, sequence, :, : -(-length // self.page_tokens)].flatten(1).unbind(0)
            for sequence, length in enumerate(self.lengths)
        )
