"""The sampling references against a naive one that sorts a list of Python numbers."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from kernels.reference.sampling import (
    Filters,
    draw,
    greedy,
    penalise_counts,
    penalise_repetition,
    weights,
)

NAN = float("nan")
INF = float("inf")


def uniform(value: float) -> Tensor:
    return torch.tensor(value, dtype=torch.float64)


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
    got = weights(torch.tensor(logits), filters)
    expected = torch.tensor(naive(logits, filters), dtype=torch.float64)
    torch.testing.assert_close(got, expected, rtol=1e-9, atol=1e-12)
    assert got.max() == 1.0


@settings(max_examples=100, deadline=None)
@given(logits=LOGITS, filters=FILTERS, number=st.floats(0, 1, exclude_max=True))
def test_draw_when_any_number_then_a_token_that_was_kept(
    logits: list[float], filters: Filters, number: float
) -> None:
    """A dropped token is never drawn, and the one drawn holds the mark in its share."""
    tensor = torch.tensor(logits)
    chosen = int(draw(tensor, filters, uniform(number)))
    mass = weights(tensor, filters)
    before = float(mass[:chosen].sum())
    assert mass[chosen] > 0
    mark = number * float(mass.sum())
    assert before - 1e-12 <= mark < before + float(mass[chosen]) + 1e-12


@pytest.mark.parametrize("number", [0.0, 1.0 - 2.0**-53])
def test_draw_when_number_is_extreme_then_first_or_last_kept(number: float) -> None:
    """Neither end falls off, even where the ends weigh nothing."""
    logits = torch.tensor([-INF, 0.0, 1.0, 0.0, -INF])
    assert int(draw(logits, Filters(), uniform(number))) == (1 if number == 0 else 3)


def test_draw_when_many_numbers_then_shares_are_the_probabilities() -> None:
    """An even grid of numbers hits each token in proportion."""
    logits = torch.tensor([0.0, 1.0, 2.0, -1.0, 0.5])
    counts = torch.zeros(5)
    for step in range(2000):
        counts[draw(logits, Filters(temperature=0.7), uniform((step + 0.5) / 2000))] += 1
    torch.testing.assert_close(counts / 2000, torch.softmax(logits / 0.7, 0), rtol=0, atol=1e-3)


def test_greedy_when_logits_tie_then_the_lowest_id() -> None:
    """The same on every device, whatever the order of a reduction."""
    logits = torch.zeros(3, 5000)
    logits[0, [17, 4999]] = 1.0
    logits[2] = -INF
    assert greedy(logits).tolist() == [17, 0, 0]


def test_choice_when_a_logit_is_nan_then_minus_one() -> None:
    """A broken model is noticed instead of talking nonsense."""
    logits = torch.tensor([0.0, NAN, 1.0])
    assert greedy(logits.unsqueeze(0)).tolist() == [-1]
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
    logits = torch.zeros(1000, device="meta")
    assert draw(logits, filters, torch.zeros((), dtype=torch.float64, device="meta")).shape == (1,)
