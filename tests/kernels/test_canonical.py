"""The canonical order in plain torch: exact where it says so, and its order shows."""

import math
from fractions import Fraction

import pytest
import torch

from kernels.layouts import RecordLayout
from kernels.reference.canonical import activate, dots, expert_row, exponential, fma
from kernels.reference.records import unpack_record
from tests.support.experts import random_record

LAYOUTS = {
    "bf16": RecordLayout(40, 32, "bf16"),
    "fp8-ragged": RecordLayout(300, 32, "fp8_block", 48),
    "built-in": RecordLayout(384, 96, "fp8_block", 128),
}


def _binades(*shape, seed, low=-12, high=12):
    generator = torch.Generator().manual_seed(seed)
    powers = torch.randint(low, high, shape, generator=generator)
    return torch.randn(shape, generator=generator) * 2.0**powers


def _round(exact):
    """Round a fraction to float32, half to even; normal numbers only."""
    if exact == 0:
        return 0.0
    step = Fraction(2) ** (math.floor(math.log2(abs(exact))) - 23)
    while abs(exact) >= step * 2**24:
        step *= 2
    while abs(exact) < step * 2**23:
        step /= 2
    return float(round(exact / step) * step)


def test_fma_when_compared_with_fractions_rounds_once():
    """Every fused multiply-add equals exact arithmetic, rounded to nearest even."""
    a, b = _binades(3000, seed=1), _binades(3000, seed=2)
    c = _binades(3000, seed=3)
    c[::3] = -(a * b)[::3]  # cancellation
    got = fma(a, b, c).tolist()
    for index, (x, y, z) in enumerate(zip(a.tolist(), b.tolist(), c.tolist(), strict=True)):
        assert got[index] == _round(Fraction(x) * Fraction(y) + Fraction(z))


def test_fma_when_rounding_twice_would_differ_does_not():
    """1 + 2**-24 is a tie for float32; what lies behind it, beyond 53 bits, breaks it."""
    one, tie, tiny = (torch.tensor([value]) for value in (1.0, 2.0**-24, 2.0**-60))
    for sign in (1.0, -1.0):
        addend = fma(tie, one, one * 0) + sign * 2.0**-47  # tie, and a last bit of its own
        exact = 1 + Fraction(float(addend))
        assert float(fma(addend, one, one)) == _round(exact)
    # product 2**-24 + 2**-47 + .., sum needs 60 bits: float64 alone would end on the tie
    near = torch.tensor([1.0 + 2.0**-23])
    product = Fraction(float(near)) * Fraction(float(near)) * Fraction(2) ** -24
    assert float(fma(near * 2.0**-24, near, one)) == _round(1 + product)
    assert float(fma(tiny, tiny, one)) == 1.0


def test_dots_when_two_steps_of_the_tree_are_swapped_changes_bits():
    """Weights over many binades make the order visible; the sum itself is right."""
    rows, x = _binades(64, 1000, seed=4), _binades(1000, seed=5, low=-4, high=4)
    got = dots(rows, x)
    exact = (rows.double() * x.double()).sum(1)
    bound = (rows.double() * x.double()).abs().sum(1)
    assert ((got - exact).abs() <= 1e-6 * bound).all()
    # every second pair first meets the neighbour that it should meet in the next step
    swapped = torch.arange(1000).view(-1, 2, 2).transpose(1, 2).flatten()
    assert (dots(rows[:, swapped], x[swapped]) != got).any()


def test_exponential_when_in_range_is_within_two_units_in_the_last_place():
    """The polynomial is good to 2.5e-7 of the value, and clamped outside."""
    t = torch.linspace(-87, 88, 20001)
    wanted = t.double().exp()
    assert ((exponential(t) - wanted).abs() <= 2.5e-7 * wanted).all()
    ends = exponential(torch.tensor([-1000.0, 1000.0]))
    assert torch.equal(ends, exponential(torch.tensor([-87.0, 88.0])))


def test_activate_when_gates_are_extreme_stays_finite():
    """Gates far from zero give 0 or the gate itself, never NaN."""
    gate = torch.tensor([-1e30, -100.0, 0.0, 100.0, 1e30])
    out = activate(gate, torch.ones(5), torch.float32)
    assert out.isfinite().all()
    assert out[3:].tolist() == gate[3:].tolist()


@pytest.mark.parametrize("name", LAYOUTS)
def test_expert_row_when_compared_with_float64_is_as_exact_as_float32_can_be(name):
    """The order is one of many right ones: 1e-5 of the largest value."""
    layout = LAYOUTS[name]
    generator = torch.Generator().manual_seed(6)
    record = random_record(layout, generator)
    x = torch.randn(layout.hidden, generator=generator)
    gate, up, down = (part.double() for part in unpack_record(layout, record))
    wanted = (torch.nn.functional.silu(gate @ x.double()) * (up @ x.double())) @ down
    row = expert_row(layout, record, x)
    assert (row - wanted).abs().max() < 1e-5 * wanted.abs().max()
