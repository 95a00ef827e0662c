"""Lengths of a prompt's chunks and tiles: within the card's share, and long enough to matter."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.loader.chunk import (
    ATTENTION_TILE_TOKENS,
    CHUNK_SHARE,
    LEAST_CHUNK_TOKENS,
    MOST_CHUNK_TOKENS,
    PLAIN_CHUNK_TOKENS,
    PromptChunk,
    choose_chunk,
    decide_chunk,
)
from engine.loader.plan import ModelCost, Room, plan_load, staged_records
from engine.memory.budget import GIB
from engine.models.spec import ModelSpec, RouterSpec
from engine.moe.router import TILE_TOKENS
from engine.protocol.errors import InvalidRequest
from engine.protocol.messages import Budget

SPEC = ModelSpec(  # the shape of Qwen3-30B-A3B
    model_type="qwen3_moe",
    num_layers=48,
    hidden=2048,
    vocab_size=151_936,
    num_heads=32,
    num_kv_heads=4,
    head_dim=128,
    moe_intermediate=768,
    moe_layers=tuple(range(48)),
    dense_intermediate=0,
    router=RouterSpec(128, 8),
    rms_eps=1e-6,
    rope_theta=1e6,
    max_context=262_144,
    tie_embeddings=False,
    eos_ids=(1,),
    quant="bf16",
)
sizes = st.integers(0, 200 * GIB)


@pytest.mark.parametrize("value_bytes", [1, 2])
@pytest.mark.parametrize(
    ("total_gib", "prompt"),
    [(7.7, 16_384), (8, 16_384), (11.6, 32_768), (15.6, 32_768), (23.5, 32_768), (140, 32_768)],
)
def test_chunk_when_a_card_is_small_then_a_long_prompt_is_one_all_the_same(
    total_gib, prompt, value_bytes
):
    """Each missing expert crosses the link once per chunk: 30 GB and more of this model.

    Cards show less than their names say; and staging has to hold a layer, of bf16 experts too.
    """
    total = int(total_gib * GIB)
    cost = ModelCost(
        dense_values=1_500_000_000,
        record_bytes=3 * 2048 * 768 * value_bytes,
        num_records=48 * 128,
        num_experts=128,
        chunk_tokens=choose_chunk(SPEC, total).tokens,
        kv_token_bytes=100_352,
        dense_bytes=1_500_000_000 * value_bytes,
        scratch_bytes=1 << 28,
    )
    room = Room(False, total, int(total * 0.94), 256 * GIB, 200 * GIB)
    assert choose_chunk(SPEC, total).tokens >= prompt
    assert staged_records(cost, SPEC, room, Budget()) >= cost.num_experts
    assert plan_load(cost, SPEC, room, Budget(), 8).staging_records >= cost.num_experts


@given(sizes, st.integers(256, 300_000))
def test_chunk_when_chosen_then_it_takes_its_share_of_the_card_at_most(device_bytes, context):
    """Rows of a prompt may not eat the card (M-16); below the least chunk there is no choice."""
    spec = replace(SPEC, max_context=context)
    chunk = choose_chunk(spec, device_bytes)
    assert chunk.tokens % 256 == 0
    assert chunk.tokens <= min(MOST_CHUNK_TOKENS, context + 255)
    if chunk.tokens > LEAST_CHUNK_TOKENS:
        assert chunk.num_bytes(spec) <= device_bytes * CHUNK_SHARE


@given(sizes, sizes)
def test_chunk_when_the_card_is_larger_then_it_is_no_shorter(one, other):
    """And whole chunks are for the largest cards only."""
    small, large = (choose_chunk(SPEC, size) for size in sorted((one, other)))
    assert small.tokens <= large.tokens
    if not small.tile_tokens:
        assert not large.tile_tokens


@given(st.integers(1, MOST_CHUNK_TOKENS), st.integers(0, MOST_CHUNK_TOKENS))
def test_bytes_of_a_chunk_grow_with_its_tokens_and_its_tile(tokens, tile):
    """A tile takes more than as many tokens that wait; no tile is all of them in work."""
    chunk, larger = PromptChunk(tokens, tile), PromptChunk(tokens + 1, tile)
    assert chunk.num_bytes(SPEC) < larger.num_bytes(SPEC)
    if tile and tile < tokens:
        assert chunk.num_bytes(SPEC) < PromptChunk(tokens).num_bytes(SPEC)


def test_chunk_when_it_is_asked_for_then_only_its_tile_is_chosen():
    """And where layers run one by one there are no tiles."""
    assert decide_chunk(5000, SPEC, True, 12 * GIB) == PromptChunk(5000, ATTENTION_TILE_TOKENS)
    assert decide_chunk(5000, SPEC, False, 12 * GIB) == PromptChunk(5000)
    assert decide_chunk(0, SPEC, True, 12 * GIB) == choose_chunk(SPEC, 12 * GIB)
    assert decide_chunk(0, SPEC, False, 12 * GIB) == PromptChunk(PLAIN_CHUNK_TOKENS)


@pytest.mark.parametrize("asked", [-1, MOST_CHUNK_TOKENS + 1])
def test_chunk_when_its_length_cannot_be_then_the_bounds_are_named(asked):
    """Not clipped in silence."""
    with pytest.raises(InvalidRequest, match=f"chunk_tokens is {asked}"):
        decide_chunk(asked, SPEC, True, 12 * GIB)


def test_chunk_when_staging_holds_no_layer_then_it_is_one_tile_of_the_experts():
    """Their scratch is planned for one tile; a chunk that is passed in parts is no longer."""
    chunk = PromptChunk(3 * TILE_TOKENS, ATTENTION_TILE_TOKENS)
    assert chunk.passing_parts() == PromptChunk(TILE_TOKENS, ATTENTION_TILE_TOKENS)
    assert PromptChunk(300, 0).passing_parts() == PromptChunk(300, 0)
