"""Train the student for a given time; what was reached last is always on the disk.

The learning rate rises, stays, and falls to nothing with the time that is left, so a run ends well
whatever the machine's speed. Rows begin where documents begin, because chats do.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from recipe.corpus import Corpus
from recipe.device import wait
from recipe.model import Shape, Student
from recipe.optim import Muon

PROMPT_WEIGHT = 0.1  # of tokens that are not the assistant's, in the loss


@dataclass(frozen=True, slots=True)
class TrainOptions:
    """How to train. `rows` x `length` tokens a step; `muon` and `adam` are learning rates."""

    seconds: float
    rows: int = 32
    length: int = 2048
    muon: float = 3e-3
    adam: float = 3e-3
    decay: float = 0.1
    balance: float = 0.01
    warmup: int = 200
    flat: float = 0.45
    seed: int = 0
    compiled: bool = True
    use_muon: bool = True


class Batches:
    """Batches of rows, drawn anew each epoch: documents in a new order, cut at their beginnings."""

    def __init__(self, corpus: Corpus, options: TrainOptions, device: torch.device) -> None:
        self._tokens = torch.from_numpy(corpus.tokens.astype(np.int16)).to(device)
        self._mask = torch.from_numpy(corpus.mask).to(device)
        self._starts = torch.from_numpy(corpus.starts).to(device)
        ends = torch.cat([self._starts[1:], self._starts.new_tensor([len(corpus.tokens)])])
        self._sizes = ends - self._starts
        self._options, self.epoch = options, 0
        self._random = torch.Generator(device=device).manual_seed(options.seed)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Yield (ids, targets, weights), each [rows, length], for ever."""
        options = self._options
        while True:
            flat, mask, rows = self._laid_out()
            if len(rows) < options.rows:
                raise ValueError("the corpus has fewer tokens than one batch")
            for at in range(0, len(rows) - options.rows + 1, options.rows):
                spots = rows[at : at + options.rows, None] + torch.arange(
                    options.length + 1, device=flat.device
                )
                ids = flat[spots].long()
                weights = torch.where(mask[spots[:, 1:]], 1.0, PROMPT_WEIGHT)
                yield ids[:, :-1], ids[:, 1:], weights
            self.epoch += 1

    def _laid_out(self) -> tuple[Tensor, Tensor, Tensor]:
        order = torch.randperm(len(self._sizes), generator=self._random, device=self._sizes.device)
        sizes = self._sizes[order]
        firsts = sizes.cumsum(0) - sizes
        source = torch.repeat_interleave(self._starts[order] - firsts, sizes)
        source += torch.arange(len(source), device=source.device)
        flat, mask = self._tokens[source], self._mask[source]
        length = self._options.length
        wanted = torch.arange(0, len(flat) - 2 * length, length, device=firsts.device)
        rows = firsts[torch.searchsorted(firsts, wanted).clamp(max=len(firsts) - 1)]
        rows = rows[rows + length + 1 <= len(flat)]
        mixed = torch.randperm(len(rows), generator=self._random, device=rows.device)
        return flat, mask, rows[mixed]


def _groups(model: Student) -> tuple[list[tuple[list[Tensor], int]], list[Tensor], list[Tensor]]:
    inner: list[tuple[list[Tensor], int]] = [
        ([b.qkv for b in model.blocks], 1),
        ([b.out for b in model.blocks], 1),
        ([b.experts.gate_up for b in model.blocks], 2),
        ([b.experts.down for b in model.blocks], 1),
    ]
    known = {id(p) for params, _ in inner for p in params}
    others = [p for p in model.parameters() if id(p) not in known]
    return inner, [p for p in others if p.dim() > 1], [p for p in others if p.dim() < 2]


class Trainer:
    """One training run."""

    def __init__(
        self, shape: Shape, corpus: Corpus, options: TrainOptions, device: torch.device
    ) -> None:
        torch.manual_seed(options.seed)
        torch.set_float32_matmul_precision("high")
        on_gpu = device.type == "cuda"
        dtype = torch.bfloat16 if on_gpu else torch.float32
        self.model = Student(shape, dtype, grouped=on_gpu).to(device)
        self._options, self._device = options, device
        self._batches = Batches(corpus, options, device)
        inner, matrices, vectors = _groups(self.model)
        self._muon = Muon(inner, options.decay) if options.use_muon else None
        if self._muon is None:
            matrices = matrices + [p for params, _ in inner for p in params]
        self._adam = torch.optim.AdamW(
            [
                {"params": matrices, "weight_decay": options.decay},
                {"params": vectors, "weight_decay": 0.0},
            ],
            lr=options.adam,
            betas=(0.9, 0.95),
            fused=on_gpu,
        )
        self._forward: Callable[..., tuple[Tensor, Tensor]] = self.model
        if options.compiled and on_gpu:
            self._forward = torch.compile(self.model)

    def _rate(self, step: int, spent: float) -> float:
        options = self._options
        share = min(1.0, spent / options.seconds)
        fall = 1.0 if share < options.flat else (1 - share) / (1 - options.flat)
        return min(1.0, (step + 1) / options.warmup) * fall

    def step(self, batch: tuple[Tensor, Tensor, Tensor], rate: float) -> tuple[Tensor, Tensor]:
        """Make one step at `rate` times the learning rates; return loss and balance."""
        loss, balance = self._forward(*batch)
        (loss + self._options.balance * balance).backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        for group in self._adam.param_groups:
            group["lr"] = self._options.adam * rate
        self._adam.step()
        if self._muon is not None:
            self._muon.step(self._options.muon * rate)
        self.model.zero_grad(set_to_none=True)
        return loss.detach(), balance.detach()

    def run(
        self, target: Path, judge: Callable[[Student], float], log: Callable[[str], None]
    ) -> dict[str, float]:
        """Train; store the model at `target` each minute and at the end.

        The clock starts after the first step, which compiles. Raises: ArithmeticError if the loss
        is no longer a number.
        """
        options = self._options
        batches = iter(self._batches)
        began = time.perf_counter()
        self.step(next(batches), 0.0)
        wait(self._device)
        log(f"first step {time.perf_counter() - began:.1f} s; {options}")
        start, stored, step = time.perf_counter(), 0.0, 0
        loss = balance = torch.zeros(())
        while (spent := time.perf_counter() - start) < options.seconds:
            loss, balance = self.step(next(batches), self._rate(step, spent))
            step += 1
            if step % 100 == 0:  # the host would else run far ahead of the clock
                value = loss.item()
                if not np.isfinite(value):
                    raise ArithmeticError(f"the loss is {value} at step {step}")
            if spent - stored > 60 or step == 200:
                stored = spent
                speed = step * options.rows * options.length / spent / 1e6
                log(
                    f"  {spent:5.0f} s  step {step:6d}  epoch {self._batches.epoch}  "
                    f"loss {loss.item():.3f}  held out {judge(self.model):.3f}  "
                    f"balance {balance.item():.3f}  {speed:.2f} M tokens/s"
                )
                save(self.model, target)
        wait(self._device)
        save(self.model, target)
        result = {
            "steps": step,
            "tokens": step * options.rows * options.length,
            "epochs": self._batches.epoch,
            "loss": loss.item(),
            "balance": balance.item(),
            "held_out": judge(self.model),
            "seconds": time.perf_counter() - start,
        }
        log(f"trained: {result}")
        return result


def save(model: Student, target: Path) -> None:
    """Store shape and weights, at once or not at all."""
    part = target.with_suffix(".part")
    torch.save({"shape": asdict(model.shape), "weights": model.state_dict()}, part)
    part.replace(target)


def load(path: Path, dtype: torch.dtype, device: torch.device) -> Student:
    """Return a stored model."""
    stored = torch.load(path, map_location=device, weights_only=True)
    model = Student(Shape(**stored["shape"]), dtype, grouped=device.type == "cuda").to(device)
    model.load_state_dict(stored["weights"])
    return model
