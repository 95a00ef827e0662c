"""What a load counts of the device's memory against what its parts really take."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.forward import PAGE_TOKENS
from engine.loader.captured import CapturedPlan, scratch_bytes
from engine.loader.plan import LEAST_GRANULE_BYTES, Room, plan_load
from engine.memory.budget import GIB, MIB, Division
from engine.moe.device_stream import PassTables
from engine.protocol.messages import Budget
from kernels.cuda.dense import DenseBuffers, StepInputs
from kernels.cuda.moe_state import MoeScratch, MoeState
from kernels.cuda.shape import DecodeShape
from kernels.cuda.step import rotary_table
from kernels.device.fake import FakeDevice
from kernels.device.virtual import Surroundings, VirtualRegion
from kernels.layouts import RecordLayout
from tests.engine.service.test_loader import COST, SPEC

CPU = torch.device("cpu")


@st.composite
def plans(draw: st.DrawFn) -> CapturedPlan:
    """Small models of any proportion."""
    kv_heads = draw(st.integers(1, 3))
    experts = draw(st.integers(2, 20))
    shape = DecodeShape(
        rows=1,
        layout=RecordLayout(128 * draw(st.integers(1, 4)), 16 * draw(st.integers(1, 6)), "bf16"),
        num_experts=experts,
        top_k=draw(st.integers(1, min(experts, 8))),
        num_layers=draw(st.integers(1, 5)),
        num_heads=kv_heads * draw(st.integers(1, 4)),
        num_kv_heads=kv_heads,
        head_dim=32 * draw(st.integers(1, 4)),
        vocab=draw(st.integers(64, 3000)),
        projections="bf16",
        head="bf16",
        embedding="bf16",
        router="bf16",
        max_slots=draw(st.integers(1, 100)),
    )
    return CapturedPlan(shape, draw(st.integers(1, 8)), draw(st.integers(1, 300)))


def tensors(owner: object) -> dict[int, int]:
    """Address -> bytes of every allocation behind an object's tensors."""
    found = [one.untyped_storage() for one in vars(owner).values() if isinstance(one, torch.Tensor)]
    return {storage.data_ptr(): storage.nbytes() for storage in found}


@settings(max_examples=60, deadline=None)
@given(plans())
def test_scratch_whatever_the_model_is_what_the_parts_allocate(plan: CapturedPlan) -> None:
    """Buffers of every row count, residency, the link's staging, the rotary table, tables of a
    prompt: nothing is left out, and hardly anything counted twice."""
    shape, device = plan.shape, FakeDevice()
    owners: list[object] = [
        MoeState(shape, CPU, 1),
        MoeScratch(shape, CPU, plan.max_rows),
        PassTables(device, shape.num_layers, shape.num_experts),
    ]
    for rows in range(1, plan.max_rows + 1):
        owners.append(DenseBuffers(plan.for_rows(rows), CPU))
        owners.append(StepInputs(rows, plan.pages_of_a_row, CPU))
    context = plan.pages_of_a_row * PAGE_TOKENS
    rotary = rotary_table(context, shape.head_dim, 1e4, CPU).nbytes
    norms = 4 * (2 * shape.num_layers + 1) * shape.hidden + 8 * shape.num_layers * shape.head_dim
    sizes = [tensors(owner) for owner in owners]
    sizes[2].pop(owners[2]._host.untyped_storage().data_ptr())  # lies in host memory
    held = sum(sum(one.values()) for one in sizes) + rotary + norms
    counted = scratch_bytes(plan)
    assert held <= counted <= held * 1.01 + 4096


class Mapped:
    """A driver that only counts."""

    granule_bytes = LEAST_GRANULE_BYTES

    def reserve(self, num_bytes: int) -> int:
        """Anywhere."""
        return 1 << 30

    def map(self, address: int, num_bytes: int) -> int:
        """Always."""
        return 1

    def unmap(self, address: int, num_bytes: int, handle: int) -> None:
        """Always."""

    def free(self, address: int, num_bytes: int) -> None:
        """Always."""

    def view(self, address: int, num_bytes: int) -> torch.Tensor:
        """Nobody looks."""
        return torch.empty(0, dtype=torch.uint8)


def mapped_bytes(reserve_bytes: int, num_bytes: int) -> int:
    """What a region of this size takes of a card."""
    around = Surroundings(lambda: 0, lambda: None, lambda: None)
    return VirtualRegion(Mapped(), reserve_bytes, num_bytes, around).mapped_bytes


@settings(max_examples=100, deadline=None)
@given(
    st.integers(5, 141),
    st.integers(64 << 10, 20 * MIB).map(lambda size: size // 4096 * 4096),
    st.integers(8, 200),
    st.floats(0, 1),
    st.floats(0, 1),
)
def test_plan_whatever_the_card_its_regions_fit_when_rounded_to_granules(
    total_gib: int, record_bytes: int, num_experts: int, kv_share: float, slot_share: float
) -> None:
    """At load and after any resize within the bounds: the budget is kept (case M-16)."""
    cost = replace(
        COST,
        record_bytes=record_bytes,
        num_experts=num_experts,
        num_records=40 * num_experts,
        scratch_bytes=64 * MIB,
    )
    total = total_gib * GIB
    room = Room(False, total, total, 900 * GIB, 800 * GIB)
    plan = plan_load(cost, SPEC, room, Budget(), 8)
    budget, bounds = plan.budget, plan.budget.bounds()
    wished = Division(
        int(bounds.max_kv_tokens * kv_share) // PAGE_TOKENS * PAGE_TOKENS,
        int(bounds.max_slots * slot_share),
    )
    staging = plan.staging_records * record_bytes
    unrounded = plan_load(
        cost, SPEC, replace(room, emulated=True), Budget(total_bytes=budget.total_bytes), 8
    )
    fixed = budget.weights_bytes + unrounded.budget.runtime_bytes - staging
    for division in (plan.division, budget.nearest(wished)):
        slots = mapped_bytes(cost.pool_bytes, division.expert_slots * record_bytes)
        pages = mapped_bytes(
            bounds.max_kv_tokens * cost.kv_token_bytes, budget.kv_bytes(division.kv_tokens)
        )
        used = fixed + slots + pages + mapped_bytes(staging, staging)
        assert used <= budget.total_bytes


def test_plan_without_a_card_counts_no_granules() -> None:
    """Main memory is mapped page by page."""
    total = 80 * GIB
    card = Room(False, total, total, 900 * GIB, 800 * GIB)
    cost = replace(COST, scratch_bytes=64 * MIB)
    on_card = plan_load(cost, SPEC, card, Budget(), 8)
    without = plan_load(cost, SPEC, replace(card, emulated=True), Budget(total_bytes=total), 8)
    more = on_card.budget.runtime_bytes - without.budget.runtime_bytes
    assert 0 < more <= 3 * 64 * MIB
    assert on_card.staging_records == pytest.approx(without.staging_records)
