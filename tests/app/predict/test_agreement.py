"""What the catalogue says of a model, held against the engine's own plan for it."""

from dataclasses import replace

import pytest

from app.predict.fit import Fit
from app.predict.unseen import ThisMachine, judge_download
from app.services.catalog import read_catalog
from app.viewmodels.discover import facts_of
from engine.loader.chunk import PLAIN_CHUNK_TOKENS, PromptChunk, choose_chunk
from engine.loader.plan import ModelCost, Room, plan_load
from engine.models.spec import ModelSpec, RouterSpec
from engine.protocol.errors import BudgetError
from engine.protocol.messages import Budget

GIB = 1 << 30
IN_USE = 0.06  # of main memory and of a card, by a desktop
SCRATCH_BYTES = 256 << 20  # buffers of captured steps, about
MACHINES = [
    (ram, vram)
    for ram in (8, 16, 24, 32, 36, 40, 48, 64, 72, 96, 128, 256, 512)
    for vram in (0, 4, 6, 8, 12, 16, 24, 32, 96)
]
ENTRIES = {facts_of(entry): entry for entry in read_catalog()}


def engine_takes(facts, context, machine, free_share):
    """Whether the engine would load it, by the plan that it makes before it reads a weight."""
    spec = ModelSpec(
        model_type="qwen3_moe",
        num_layers=facts.layers,
        hidden=facts.hidden,
        vocab_size=facts.vocab,
        num_heads=facts.heads,
        num_kv_heads=facts.kv_heads,
        head_dim=facts.head_dim,
        moe_intermediate=facts.moe_intermediate,
        moe_layers=tuple(range(facts.layers)),
        dense_intermediate=0,
        router=RouterSpec(facts.experts, facts.top_k),
        rms_eps=1e-6,
        rope_theta=1e6,
        max_context=context,
        tie_embeddings=False,
        eos_ids=(1,),
        quant=facts.quant,
    )
    card = machine.vram_total
    chunk = choose_chunk(spec, card) if card else PromptChunk(PLAIN_CHUNK_TOKENS)
    dense_values = replace(facts, quant="bf16").dense_bytes // 2
    cost = ModelCost(
        dense_values=dense_values,
        record_bytes=facts.expert_bytes,
        num_records=facts.layers * facts.experts,
        num_experts=facts.experts,
        chunk_tokens=chunk.tokens,
        kv_token_bytes=2 * facts.layers * facts.kv_heads * facts.head_dim * (2 if card else 4),
        dense_bytes=facts.dense_bytes if card else 4 * dense_values,
        scratch_bytes=SCRATCH_BYTES if card else 0,
        tile_tokens=chunk.tile_tokens,
    )
    room = Room(
        emulated=not card,
        device_total_bytes=card,
        device_free_bytes=int(card * free_share),
        host_total_bytes=machine.ram_total,
        host_available_bytes=int(machine.ram_total * free_share),
    )
    try:
        plan_load(cost, spec, room, Budget(), 8)
    except BudgetError:
        return False
    return True


@pytest.mark.parametrize(("ram", "vram"), MACHINES)
def test_badge_when_a_machine_is_given_then_it_is_what_the_engine_will_say(ram, vram):
    """Case M-24: what is called fitting loads, and what would load is not called too big."""
    free = int(ram * GIB * (1 - IN_USE))
    machine = ThisMachine(ram * GIB, free, vram * GIB)
    wrong = []
    for facts, entry in ENTRIES.items():
        advice = judge_download(facts, machine)
        loads = engine_takes(facts, entry.context, machine, 1 - IN_USE)
        if advice.fit is Fit.FITS and not loads:
            wrong.append(f"{entry.title} {facts.quant}: called fitting, refused")
        roomy = engine_takes(facts, entry.context, machine, 0.86)
        if advice.fit is Fit.TOO_BIG and roomy:
            wrong.append(f"{entry.title} {facts.quant}: called too big, loads")
    assert wrong == []
