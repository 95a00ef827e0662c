"""Measure the student during training: held-out loss, and a few replies to look at."""

import json
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import torch
from tokenizers import Tokenizer

from recipe.chat import IM_END_ID, Turn, open_turn, render
from recipe.corpus import assistant_mask
from recipe.model import Student

_ROWS = 32


class HeldOut:
    """The held-out conversations as token rows; the loss counts the assistant's tokens only."""

    def __init__(self, path: Path, tokenizer: Tokenizer, device: torch.device) -> None:
        opening = tokenizer.encode(open_turn("assistant")).ids
        self._rows: dict[str, list[tuple[torch.Tensor, torch.Tensor]]] = defaultdict(list)
        for line in path.read_text(encoding="utf-8").splitlines():
            family, turns = json.loads(line)
            ids = torch.tensor(tokenizer.encode(render([Turn(*turn) for turn in turns])).ids)
            mask = torch.from_numpy(assistant_mask(ids.numpy(), opening))
            self._rows[family].append((ids, mask))
        self._device, self.vocab = device, tokenizer.get_vocab_size()

    @torch.no_grad()
    def losses(self, model: Student) -> dict[str, float]:
        """Return the mean loss of each family, nats per token."""
        found = {}
        for family, rows in self._rows.items():
            total = count = 0.0
            for at in range(0, len(rows), _ROWS):
                some = rows[at : at + _ROWS]
                ids = torch.nn.utils.rnn.pad_sequence([r[0] for r in some], batch_first=True)
                mask = torch.nn.utils.rnn.pad_sequence([r[1] for r in some], batch_first=True)
                ids, weight = ids.to(self._device), mask[:, 1:].float().to(self._device)
                loss, _ = model(ids[:, :-1].contiguous(), ids[:, 1:].contiguous(), weight)
                total += loss.item() * weight.sum().item()
                count += weight.sum().item()
            found[family] = total / max(count, 1.0)
        return found

    def mean(self, model: Student) -> float:
        """Return the mean of the families' losses."""
        losses = self.losses(model)
        return sum(losses.values()) / len(losses)


@torch.no_grad()
def replies(
    model: Student,
    tokenizer: Tokenizer,
    prompts: Sequence[Sequence[Turn]],
    seed: int = 0,
    longest: int = 260,
) -> list[str]:
    """Return one sampled reply to each conversation (temperature 0.5, min-p 0.1), all at once.

    Without a cache: short prompts only, and good enough to look at a model.
    """
    device = model.embedding.device
    random = torch.Generator(device=device).manual_seed(seed)
    rows = [tokenizer.encode(render(list(p), reply=True)).ids for p in prompts]
    size = max(map(len, rows)) + longest
    ids = torch.zeros(len(rows), min(size, model.shape.context), dtype=torch.long, device=device)
    lengths = torch.tensor([len(r) for r in rows], device=device)
    for i, row in enumerate(rows):
        ids[i, : len(row)] = torch.tensor(row, device=device)
    done = torch.zeros(len(rows), dtype=torch.bool, device=device)
    at = torch.arange(len(rows), device=device)
    while not bool(done.all()) and int(lengths.max()) < ids.shape[1]:
        logits = model(ids[:, : int(lengths.max())])[0][at, lengths - 1].float()
        odds = (logits / 0.5).softmax(-1)
        odds = torch.where(odds < 0.1 * odds.amax(-1, keepdim=True), 0.0, odds)
        drawn = torch.multinomial(odds, 1, generator=random).squeeze(1)
        done |= drawn == IM_END_ID
        grow = ~done
        ids[at[grow], lengths[grow]] = drawn[grow]
        lengths += grow
    return [
        tokenizer.decode(ids[i, len(row) : int(lengths[i])].tolist()) for i, row in enumerate(rows)
    ]
