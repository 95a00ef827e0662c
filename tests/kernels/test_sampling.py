"""The sampling references against a naive one that sorts a list of Python numbers."""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from kernels.reference.sampling import (
    MAX_TIES,
    MAX_TOP_K,
    Filters,
    candidates,
    draw,
    draw_rows,
    greedy,
    penalise_counts,
    penalise_repetition,
    weights,
)

NAN = float("nan")
INF = float("inf")


def uniform(value: float) -> Tensor:
    return torch.tensor([value], dtype=torch.float64)


def naive(logits: list[float], filters: Filters) -> list[float]:
    """The distribution, by sorting; equal logits share a fate."""
    scaled = [x / filters.temperature for x in logits]
    top = max(scaled)
    kept = {i: math.exp(x - top) for i, x in enumerate(scaled)}
    if 0 < filters.top_k < len(logits):
        least = sorted(kept.values(), reverse=True)[filters.top_k - 1]
        kept = {i: p for i, p in kept.items() if p >= least}
    if filters.top_p < 1.0:
        total, before, least = sum(kept.values()), 0.0, 1.0
        for p in sorted(kept.values(), reverse=True):
            if before >= filters.top_p * total and before > 0:
                break
            least, before = p, before + p
        kept = {i: p for i, p in kept.items() if p >= least}
    kept = {i: p for i, p in kept.items() if p >= filters.min_p}
    return [kept.get(i, 0.0) for i in range(len(logits))]


FILTERS = st.builds(
    Filters,
    temperature=st.sampled_from([0.05, 0.6, 1.0, 2.5]),
    top_k=st.integers(0, 12),
    # borders that no sum of the grid below can meet, so that rounding decides nothing
    top_p=st.sampled_from([0.0, 0.1234567, 0.5456789, 0.9212121, 1.0]),
    min_p=st.sampled_from([0.0, 0.0512345, 0.3123456, 1.0]),
)
LOGITS = st.lists(
    st.integers(-24, 24).map(lambda x: x / 4) | st.just(-INF), min_size=1, max_size=10
).filter(lambda logits: max(logits) > -INF)


@settings(max_examples=300, deadline=None)
@given(logits=LOGITS, filters=FILTERS)
def test_weights_when_filtered_then_as_the_naive_ones(
    logits: list[float], filters: Filters
) -> None:
    """Each filter works on what the one before left; ties share a fate; one token stays."""
    (got,) = weights(torch.tensor([logits]), filters)
    expected = torch.tensor(naive(logits, filters), dtype=torch.float64)
    torch.testing.assert_close(got, expected, rtol=1e-9, atol=1e-12)
    assert got.max() == 1.0


@settings(max_examples=100, deadline=None)
@given(logits=LOGITS, filters=FILTERS, number=st.floats(0, 1, exclude_max=True))
def test_draw_when_any_number_then_a_token_that_was_kept(
    logits: list[float], filters: Filters, number: float
) -> None:
    """A dropped token is never drawn, and the one drawn holds the mark in its share."""
    tensor = torch.tensor([logits])
    chosen = int(draw(tensor, filters, uniform(number)))
    (mass,) = weights(tensor, filters)
    before = float(mass[:chosen].sum())
    assert mass[chosen] > 0
    mark = number * float(mass.sum())
    assert before - 1e-12 <= mark < before + float(mass[chosen]) + 1e-12


@pytest.mark.parametrize("number", [0.0, 1.0 - 2.0**-53])
def test_draw_when_number_is_extreme_then_first_or_last_kept(number: float) -> None:
    """Neither end falls off, even where the ends weigh nothing."""
    logits = torch.tensor([[-INF, 0.0, 1.0, 0.0, -INF]])
    assert int(draw(logits, Filters(), uniform(number))) == (1 if number == 0 else 3)


def test_draw_when_many_numbers_then_shares_are_the_probabilities() -> None:
    """An even grid of numbers hits each token in proportion."""
    logits = torch.tensor([[0.0, 1.0, 2.0, -1.0, 0.5]])
    counts = torch.zeros(5)
    for step in range(2000):
        counts[draw(logits, Filters(temperature=0.7), uniform((step + 0.5) / 2000))] += 1
    torch.testing.assert_close(counts / 2000, torch.softmax(logits[0] / 0.7, 0), rtol=0, atol=1e-3)


def test_greedy_when_logits_tie_then_the_lowest_id() -> None:
    """The same on every device, whatever the order of a reduction."""
    logits = torch.zeros(3, 5000)
    logits[0, [17, 4999]] = 1.0
    logits[2] = -INF
    assert greedy(logits).tolist() == [17, 0, 0]


def test_choice_when_a_logit_is_nan_then_minus_one() -> None:
    """A broken model is noticed instead of talking nonsense."""
    logits = torch.tensor([[0.0, NAN, 1.0]])
    assert greedy(logits).tolist() == [-1]
    for filters in (Filters(), Filters(top_k=2, top_p=0.5, min_p=0.1)):
        assert draw(logits, filters, uniform(0.3)).tolist() == [-1]


def test_penalties_when_applied_then_by_the_formulas() -> None:
    """Repetition moves logits away from zero's good side; counts subtract."""
    logits = torch.tensor([2.0, -2.0, 2.0, -2.0])
    seen = torch.tensor([True, True, False, False])
    assert penalise_repetition(logits, seen, 4.0).tolist() == [0.5, -8.0, 2.0, -2.0]
    counts = torch.tensor([0.0, 1.0, 3.0, 0.0])
    assert penalise_counts(logits, counts, 0.5, 0.25).tolist() == [2.0, -2.75, 0.75, -2.0]


@pytest.mark.parametrize(
    "filters",
    [
        Filters(),
        Filters(0.7, 20, 0.8),
        Filters(0.7, 0, 0.95),
        Filters(1.0, 40),
        Filters(1.0, min_p=0.1),
    ],
)
def test_draw_never_waits_for_the_device(filters: Filters) -> None:
    """On the meta device whatever asks for a value raises: the next step is queued meanwhile."""
    logits = torch.zeros(3, 1000, device="meta")
    numbers = torch.zeros(3, dtype=torch.float64, device="meta")
    assert draw(logits, filters, numbers).shape == (3,)
    assert draw_rows(logits, filters, numbers).shape == (3,)


def spread(ids: Tensor, kept: Tensor, size: int) -> Tensor:
    """Candidates' weights over the whole vocabulary."""
    assert (ids.diff(dim=1) > 0).all()
    return torch.zeros(ids.shape[0], size, dtype=torch.float64).scatter_(1, ids, kept)


@settings(max_examples=300, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    rows=st.integers(1, 3),
    size=st.integers(2, 700),
    steps=st.sampled_from([1.0, 4.0, 1000.0]),
    hidden=st.sampled_from([0.0, 0.5, 0.99]),
    filters=FILTERS,
)
def test_candidates_when_filtered_then_the_weights_of_the_whole_vocabulary(
    seed: int, rows: int, size: int, steps: float, hidden: float, filters: Filters
) -> None:
    """Few or many equal logits and tokens that are ruled out; ties beyond the bound are dropped."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(rows, size, generator=generator).mul_(2 * steps).round_().div_(steps)
    logits[torch.rand(rows, size, generator=generator) < hidden] = -INF
    logits[:, seed % size] = 1.0
    filters = replace(filters, top_k=min(max(1, filters.top_k * 3), size - 1))
    got = spread(*candidates(logits, filters), size)
    for row, whole in enumerate(weights(logits, filters)):
        least = logits[row].topk(filters.top_k).values[-1]
        stay = int((logits[row] >= least).sum()) - filters.top_k
        if stay <= MAX_TIES or least == -INF:
            torch.testing.assert_close(got[row], whole, rtol=1e-12, atol=0)
        elif filters.top_p == 1.0:
            kept = got[row] > 0
            assert int(kept.sum()) <= filters.top_k + MAX_TIES
            torch.testing.assert_close(got[row][kept], whole[kept], rtol=1e-12, atol=0)
            assert kept[logits[row] > least].equal((whole > 0)[logits[row] > least])


@pytest.mark.parametrize(
    "filters",
    [
        Filters(0.7, 20, 0.8),
        Filters(0.6, 20, 0.95),
        Filters(1.0, 64, 0.95, 0.01),
        Filters(1.5, 1, 0.5),
        Filters(1.0, MAX_TOP_K),
        Filters(1.0, MAX_TOP_K + 1, 0.9),
    ],
    ids=str,
)
def test_draws_when_they_are_many_then_those_of_the_definition(filters: Filters) -> None:
    """In batches the same tokens as row by row over the whole vocabulary."""
    generator = torch.Generator().manual_seed(5)
    for _ in range(25):
        logits = torch.randn(8, 2000, generator=generator) * 4
        numbers = torch.rand(8, generator=generator, dtype=torch.float64)
        pairs = zip(logits.split(1), numbers.split(1), strict=True)
        expected = [draw(one, filters, number) for one, number in pairs]
        assert draw_rows(logits, filters, numbers).equal(torch.cat(expected))


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 2**32), filters=FILTERS, rows=st.integers(2, 5))
def test_draw_rows_whoever_shares_them_then_a_row_draws_the_same(
    seed: int, filters: Filters, rows: int
) -> None:
    """A reply depends on its seed and its logits, never on the rows beside it."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(rows, 300, generator=generator) * 3
    numbers = torch.rand(rows, generator=generator, dtype=torch.float64)
    alone = [
        draw_rows(logits[row : row + 1], filters, numbers[row : row + 1]) for row in range(rows)
    ]
    assert draw_rows(logits, filters, numbers).equal(torch.cat(alone))


@pytest.mark.parametrize("broken", [NAN, INF, -INF])
def test_draw_rows_when_a_row_is_broken_then_only_its_token_is_none(broken: float) -> None:
    """Numbers that make no distribution end one reply, not those beside it."""
    logits = torch.randn(3, 300, generator=torch.Generator().manual_seed(1))
    logits[1, 250] = broken
    if broken < 0:
        logits[1] = broken
    numbers = torch.tensor([0.1, 0.5, 0.9], dtype=torch.float64)
    for filters in (Filters(0.7, 20, 0.8, 0.01), Filters(1.0, 299), Filters(1.0)):
        ids = draw_rows(logits, filters, numbers).tolist()
        assert ids[1] == -1
        assert min(ids[0], ids[2]) >= 0
        assert ids[1] == int(draw(logits[1:2], filters, numbers[1:2]))


@pytest.mark.parametrize("number", [0.0, 1.0 - 2.0**-53])
def test_draw_rows_when_number_is_extreme_then_first_or_last_kept(number: float) -> None:
    """In the order of ids, also where the likeliest come in another."""
    logits = torch.full((1, 200), -5.0)
    logits[0, [0, 199]] = -4.0  # candidates that weigh nothing
    logits[0, [150, 30, 70]] = torch.tensor([3.0, 2.0, 2.5])
    chosen = draw_rows(logits, Filters(1.0, 3), torch.tensor([number], dtype=torch.float64))
    assert chosen.tolist() == [30 if number == 0 else 150]
