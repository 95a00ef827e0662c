"""Sampling per row: what a reply depends on, and what it does not."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from engine.protocol.messages import Sampling
from engine.runner.sampler import Past, RowSampler, sample, uniform

VOCAB = 50
CPU = torch.device("cpu")


def row(seed: int = 0, prompt: tuple[int, ...] = (), **options: Any) -> RowSampler:
    made = RowSampler(Sampling(**options), seed, Past(VOCAB, CPU))
    made.note_prompt(prompt)
    return made


def logits_of(count: int, seed: int = 0) -> Tensor:
    return torch.randn(count, VOCAB, generator=torch.Generator().manual_seed(seed)) * 2


@given(seed=st.integers(-(2**70), 2**70), position=st.integers(0, 2**40))
def test_uniform_when_any_seed_then_a_number_below_one(seed: int, position: int) -> None:
    """Any integer is a seed; the same one gives the same number."""
    number = uniform(seed, position)
    assert 0.0 <= number < 1.0
    assert number == uniform(seed, position)


def test_uniform_when_written_down_then_the_same_on_every_machine() -> None:
    """The numbers of a seed are part of what a saved reply depends on: they never change."""
    assert [uniform(42, p) for p in (0, 1)] == [
        0.013842768924102522,
        0.9877556983605247,
    ]


def test_uniform_when_many_then_spread_evenly() -> None:
    """Neighbouring seeds and positions have nothing to do with each other."""
    numbers = torch.tensor([uniform(seed, p) for seed in range(40) for p in range(50)])
    shares = torch.histc(numbers, bins=10, min=0.0, max=1.0) / len(numbers)
    assert shares.min() > 0.07
    assert shares.max() < 0.13
    pairs = numbers.view(40, 50)
    assert torch.corrcoef(pairs).triu(1).abs().max() < 0.6


def test_sample_when_the_batch_differs_then_each_row_draws_the_same() -> None:
    """A reply depends on its seed and its logits, never on who shares the batch."""
    options = [
        {"temperature": 0.8},
        {"temperature": 0.0},
        {"temperature": 1.2, "top_k": 5},
        {"temperature": 0.7, "top_p": 0.8, "min_p": 0.05, "repetition_penalty": 1.3},
        {"temperature": 0.7, "top_p": 0.8, "min_p": 0.05, "repetition_penalty": 1.3},
        {"temperature": 0.7, "top_p": 0.8, "min_p": 0.05, "repetition_penalty": 2.0},
        {"temperature": 0.0, "presence_penalty": 0.5},
    ]
    logits, positions = logits_of(7), [7, 8, 9, 10, 11, 12, 13]
    prompts = [(1, 2), (), (), (1, 2), (3, 4), (3, 4), ()]

    def rows(order: list[int]) -> list[RowSampler]:
        return [row(i, prompts[i], **options[i]) for i in order]

    alone = [int(sample(logits[i : i + 1], rows([i]), [positions[i]])) for i in range(7)]
    for order in ([*range(7)], [2, 6, 0, 4, 3, 1, 5]):
        ids = sample(logits[order], rows(order), [positions[i] for i in order])
        assert ids.tolist() == [alone[i] for i in order]


@pytest.mark.parametrize("temperature", [0.0, 0.9])
@pytest.mark.parametrize(
    "penalties",
    [{"repetition_penalty": 1.5}, {"presence_penalty": 1.0, "frequency_penalty": 0.5}],
    ids=str,
)
def test_sample_when_neighbours_have_penalties_then_each_counts_its_own(
    temperature: float, penalties: dict[str, float]
) -> None:
    """Rows that share kernels, for as long as a reply; one of them is more strongly penalised."""
    logits = logits_of(4)
    likely = logits.topk(3).indices.tolist()
    prompts = [tuple(likely[0]), (), tuple(likely[2]), ()]
    options = [{"temperature": temperature, "top_k": 20, **penalties} for _ in range(4)]
    options[3] |= {name: 2 * value for name, value in penalties.items()}

    def replies(wanted: list[int]) -> list[list[int]]:
        rows = [row(i, prompts[i], **options[i]) for i in wanted]
        part = logits[wanted]
        steps = [sample(part, rows, [at] * len(rows)).tolist() for at in range(15)]
        return [list(reply) for reply in zip(*steps, strict=True)]

    alone = [replies([i])[0] for i in range(4)]
    assert len({tuple(reply) for reply in alone}) == 4
    assert replies([0, 1, 2, 3]) == alone
    assert replies([3, 2, 0, 1]) == [alone[i] for i in (3, 2, 0, 1)]


def test_sample_when_seeds_differ_then_replies_differ() -> None:
    """And one seed repeats itself."""
    logits = torch.zeros(1, VOCAB)

    def reply(seed: int) -> list[int]:
        return [int(sample(logits, [row(seed)], [position])) for position in range(20)]

    assert reply(1) == reply(1)
    assert reply(1) != reply(2)
    assert len(set(reply(1))) > 5


@pytest.mark.parametrize("temperature", [5e-324, 1e-308, 1e-7])
def test_sample_when_the_temperature_is_next_to_nothing_then_the_likeliest(
    temperature: float,
) -> None:
    """Divided by it, logits would overflow and look like damaged weights."""
    logits = logits_of(2)
    rows = [row(temperature=temperature), row(temperature=temperature, top_k=5)]
    assert sample(logits, rows, (3, 3)).tolist() == logits.argmax(-1).tolist()


def test_sample_when_greedy_then_the_seed_is_ignored() -> None:
    """Temperature 0 takes the likeliest, with or without penalties."""
    logits = torch.zeros(1, VOCAB)
    logits[0, [4, 9]] = torch.tensor([2.0, 1.5])
    assert [int(sample(logits, [row(s, temperature=0.0)], [3])) for s in range(5)] == [4] * 5
    penalised = row(0, (4,), temperature=0.0, repetition_penalty=2.0)
    assert int(sample(logits, [penalised], [3])) == 9


def test_repetition_when_counted_then_prompt_and_output() -> None:
    """As transformers does: the penalty sees the prompt, and what was drawn since."""
    logits = torch.zeros(1, VOCAB)
    logits[0, :3] = torch.tensor([3.0, 2.9, 2.8])
    greedy = row(0, (0,), temperature=0.0, repetition_penalty=1.5)
    assert [int(sample(logits, [greedy], [p])) for p in range(3)] == [1, 2, 0]


def test_presence_when_counted_then_output_only_and_once() -> None:
    """The prompt does not count, and a second use costs no more."""
    logits = torch.zeros(1, VOCAB)
    logits[0, :2] = torch.tensor([3.0, 2.5])
    greedy = row(0, (0,), temperature=0.0, presence_penalty=1.0)
    assert [int(sample(logits, [greedy], [p])) for p in range(4)] == [0, 1, 0, 0]


def test_frequency_when_counted_then_each_use_costs() -> None:
    """0 falls to 2.4, then 1.8; 1 to 1.9."""
    logits = torch.zeros(1, VOCAB)
    logits[0, :2] = torch.tensor([3.0, 2.5])
    greedy = row(0, (), temperature=0.0, frequency_penalty=0.6)
    assert [int(sample(logits, [greedy], [p])) for p in range(4)] == [0, 1, 0, 1]


@pytest.mark.parametrize("options", [{"temperature": 0.0}, {"repetition_penalty": 1.2}, {}])
def test_sample_when_logits_are_nan_then_minus_one(options: dict[str, Any]) -> None:
    """The runner turns it into an error; other rows of the batch are fine."""
    logits = logits_of(2)
    logits[0, 3] = float("nan")
    ids = sample(logits, [row(0, (1,), **options), row(1, (1,), **options)], [2, 2]).tolist()
    assert ids[0] == -1
    assert ids[1] >= 0


def test_past_when_penalties_are_off_then_nothing_is_kept() -> None:
    """Counts over a large vocabulary are only paid for by rows that use them."""
    made: list[str] = []

    class Watched(Past):
        @property
        def seen(self) -> Tensor:
            made.append("seen")
            return super().seen

        @property
        def counts(self) -> Tensor:
            made.append("counts")
            return super().counts

    def use(**options: Any) -> set[str]:
        made.clear()
        one = RowSampler(Sampling(**options), 0, Watched(VOCAB, CPU))
        one.note_prompt((1, 2))
        one.note_output((3,))
        sample(logits_of(1), [one], [3])
        return set(made)

    assert use() == set()
    assert use(repetition_penalty=1.2) == {"seen"}
    assert use(presence_penalty=-0.5) == {"counts"}


@pytest.mark.parametrize("options", [{"presence_penalty": 1.0}, {"repetition_penalty": 1.5}])
def test_past_when_a_reply_begins_then_nothing_of_the_last_one_counts(
    options: dict[str, float],
) -> None:
    """Replies of a row use the same memory one after another."""
    past, logits = Past(VOCAB, CPU), torch.zeros(1, VOCAB)
    logits[0, :2] = torch.tensor([3.0, 2.5])
    for _ in range(2):
        one = RowSampler(Sampling(temperature=0.0, **options), 0, past)
        places = past.seen.data_ptr(), past.counts.data_ptr()
        assert int(sample(logits, [one], [0])) == 0
        assert places == (past.seen.data_ptr(), past.counts.data_ptr())
