"""A tiny real model behind the scheduler: a warm beginning gives the logits of a cold one."""

import pytest
import torch

from engine.cache.pages import PageAllocator
from engine.protocol.messages import Sampling
from engine.runner.model_runner import ModelRunner
from engine.scheduler.pools import KvSide
from engine.scheduler.scheduler import Scheduler
from engine.scheduler.seams import Limits, Surroundings
from engine.scheduler.tally import Counts
from tests.engine.loader.captured_world import SHAPE, made, opened
from tests.engine.scheduler.doubles import FakeSink, make_request
from tests.kernels.emulator import needs_emulator
from tests.parity.support import close, open_native, random_tokens
from tests.support.checkpoints import TINY, convert_checkpoint, write_checkpoint

WARM_TOKENS, WARM_REPLY, REPLY = 33, 18, 3
LENGTHS = range(1, 71)


class Watched:
    """A model whose last logits are remembered."""

    def __init__(self, model):
        self.model, self.spec = model, model.spec
        self.logits = []

    def forward(self, batch):
        logits = self.model.forward(batch)
        if len(batch.logit_rows):
            self.logits.append(logits.clone())
        return logits


class Served:
    """A scheduler over a model's runner and pages, with or without reuse."""

    def __init__(self, runner, num_pages, reuse, chunk=32):
        self.sink = FakeSink()
        self.scheduler = Scheduler(
            runner,
            PageAllocator(num_pages),
            self.sink,
            Limits(TINY.max_context, chunk, 2, reuse),
            Surroundings(counters=Counts, relieve=lambda: False),
        )

    def ask(self, name, prompt, count):
        """Return how many tokens were reused, and the likeliest ids."""
        request = make_request(name, prompt, count)
        request.sampling = Sampling(temperature=0.0, max_tokens=count)
        self.scheduler.submit(request)
        steps = 0
        while self.scheduler.step():
            steps += 1
            assert steps < 1000
        assert self.sink.problems[name] is None
        return request.usage.reused_tokens, self.sink.tokens[name]


def found(length):
    """Tokens that a prompt of this length finds: whole pages, of 50 tokens that were computed."""
    whole = min(length - 1, 50) // 16 * 16
    return whole if whole >= 32 else 0


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two layers of five experts."""
    place = tmp_path_factory.mktemp("tiny")
    return convert_checkpoint(write_checkpoint(place / "source"), place / "model")


@pytest.mark.parametrize("chunk", [16, 48])
def test_prompt_of_every_length_after_a_warm_beginning_then_logits_of_a_cold_one(folder, chunk):
    """Case E-02: the beginning was partly written by decode, the boundary lies anywhere."""
    with open_native(folder) as native:
        model = Watched(native.model)
        cold, warm = (
            Served(ModelRunner(model, native.kv, native.device, 2), native.kv.num_pages, *how)
            for how in ((False, chunk), (True, chunk))
        )
        start = random_tokens(WARM_TOKENS, TINY.vocab_size)
        _, reply = cold.ask("first", start, WARM_REPLY)
        sequence = [*start, *reply, *random_tokens(LENGTHS[-1], TINY.vocab_size, seed=2)]
        expected = []
        for length in LENGTHS:
            model.logits.clear()
            expected.append((cold.ask(f"{length}", sequence[:length], REPLY), *model.logits))
        for length, ((_, ids), *logits) in zip(LENGTHS, expected, strict=True):
            native.kv.values.fill_(float("nan"))  # nothing of another run may help
            warm.ask(f"warm {length}", start, WARM_REPLY)
            model.logits.clear()
            assert warm.ask(f"{length}", sequence[:length], REPLY) == (found(length), ids)
            close(torch.cat(model.logits), torch.cat(logits))
            warm.scheduler.holdings.drop()


@needs_emulator
def test_captured_steps_after_a_warm_beginning_then_ids_of_a_cold_one(tmp_path):
    """Case E-02 on a card's steps, one behind: kept pages are moved by a resize on their way."""
    with opened(made(tmp_path, "bf16"), tmp_path) as model:
        assert model.runner.latency == 1
        cold, warm = (Served(model.runner, model.pages.num_pages, how) for how in (False, True))
        start = random_tokens(WARM_TOKENS, SHAPE.vocab_size)
        _, reply = cold.ask("first", start, WARM_REPLY)
        sequence = [*start, *reply, *random_tokens(LENGTHS[-1], SHAPE.vocab_size, seed=2)]
        lengths = (17, 32, 33, 34, 47, 48, 49, 50, 64, 65)
        expected = [cold.ask(f"{length}", sequence[:length], REPLY)[1] for length in lengths]
        side = KvSide(warm.scheduler.holdings, model.kv, warm.scheduler.requests)
        for length, ids in zip(lengths, expected, strict=True):
            model.kv.values.fill_(float("nan"))
            warm.ask(f"below {length}", random_tokens(70, SHAPE.vocab_size, seed=length), 1)
            warm.ask(f"warm {length}", start, WARM_REPLY)
            side.resize(5 * 16)
            side.resize(256)
            model.kv.values[5 * model.kv.page_bytes // model.kv.dtype.itemsize :] = float("nan")
            assert [entry.pages for entry in warm.scheduler.holdings.kept] == [(0, 1), (4, 2, 3)]
            assert warm.ask(f"{length}", sequence[:length], REPLY) == (found(length), ids)
            warm.scheduler.holdings.drop()
