"""All that one forward needs, frozen, handed down as an argument. No global context.

Built by `engine.runner`, read by models, layers and moe.
"""

from dataclasses import dataclass
from typing import Literal

import torch

PAGE_TOKENS = 16


@dataclass(frozen=True, slots=True)
class ForwardBatch:
    """One forward over T tokens: either one prompt chunk, or one token of each of B rows.

    Attributes:
        phase: "prefill" (one sequence, T tokens) or "decode" (B sequences, T = B).
        token_ids: [T] int64, on the device.
        positions: [T] int64.
        kv_slots: [T] int64, where each token's keys and values go: page * 16 + offset.
        page_tables: [B, P] int64, pages of each sequence in order (unused tail: 0).
        context_lens: tokens of each sequence including those of this batch; host integers.
        logit_rows: rows of [T] whose logits are wanted; host integers.
    """

    phase: Literal["prefill", "decode"]
    token_ids: torch.Tensor
    positions: torch.Tensor
    kv_slots: torch.Tensor
    page_tables: torch.Tensor
    context_lens: tuple[int, ...]
    logit_rows: tuple[int, ...]

    @property
    def ends_prompt(self) -> bool:
        """Whether this is a prompt's last chunk: the one that a next token is wanted of."""
        return self.phase == "prefill" and bool(self.logit_rows)

    @property
    def num_tokens(self) -> int:
        """T."""
        return int(self.token_ids.shape[0])
