"""The replay of routes: equal to the kernels and to the host's tables, and its extras by hand."""

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.moe.arena import ExpertArena
from engine.moe.device_planner import hotness
from engine.moe.device_residency import DeviceResidency
from kernels.cuda.moe_state import MissMode, MoePolicy, MoeState
from kernels.cuda.residency import FREE, NO_SLOT, Eviction
from kernels.device.cpu import CpuDevice
from tests.engine.moe.routes import prompt_uses
from tests.kernels.cuda.moe_support import SmallModel, needs_native, small_shape
from tests.kernels.emulator import needs_emulator
from tests.perf.replay import StepModel, main, read_conversations, replay
from tests.perf.replay_tables import (
    Conversation,
    Frequency,
    Ranking,
    Recency,
    Replay,
    Rules,
    Scope,
)

CHATS = Path(__file__).parents[1] / "engine" / "moe" / "data" / "built-in-20-chats.npz"
LAYERS, EXPERTS, TOP_K = 3, 12, 3


def liked_routes(tokens: int, seed: int) -> np.ndarray:
    """Routes [T, L, K] in which some experts are liked more than others."""
    rng = np.random.default_rng(seed)
    liked = rng.gumbel(size=(LAYERS, EXPERTS)) + rng.normal(size=(LAYERS, EXPERTS))
    noise = rng.gumbel(size=(tokens, LAYERS, EXPERTS))
    return np.argsort(-(liked + 2 * noise), axis=-1)[..., :TOP_K]


def ranking(eviction: Eviction, rules: Rules) -> Ranking:
    records = LAYERS * EXPERTS
    return Recency(records) if eviction is Eviction.LRU else Frequency(records, LAYERS, rules)


def resident(tables: Replay) -> dict[int, int]:
    """Record to its units, of those that own a slot; whole experts only."""
    return {record: tables.valid[record] for record in tables.owner.tolist() if record != FREE}


@needs_emulator
@needs_native
@pytest.mark.parametrize("eviction", Eviction)
@pytest.mark.parametrize("slots", [7, 20])
def test_replay_when_the_kernels_serve_the_same_routes_then_tables_are_equal(
    eviction: Eviction, slots: int
) -> None:
    """With a given share over the link nothing is left to chance: who lies where, and how much."""
    rules = Rules(units=3, store_part=3, link_share=0.4)
    policy = MoePolicy(mode=MissMode.SPLIT, share=0.4, eviction=eviction)
    model = SmallModel(small_shape(), policy, slots)
    tables = Replay(LAYERS, EXPERTS, slots, ranking(eviction, rules), rules)
    with model.pool():
        for token, routes in enumerate(liked_routes(40, 5)):
            for layer in range(LAYERS):
                model.x.copy_(model.inputs([routes[layer].tolist()], token))
                model.kernels.launch(model.layers[layer])
            tables.step(routes)
    counts, seen = model.state.counts(), model.state.snapshot()
    assert (counts.hit_units, counts.link_units, counts.cpu_units, counts.fills) == (
        tables.counts.hit, tables.counts.link, tables.counts.cpu, tables.counts.fills,
    )  # fmt: skip
    owners = np.flatnonzero(seen.slot_of != NO_SLOT).tolist()
    assert resident(tables) == {record: int(seen.valid[record]) for record in owners}
    assert any(0 < units < 3 for units in resident(tables).values())
    assert 0.1 * counts.link_units < counts.hit_units < 10 * counts.link_units


@settings(max_examples=30, deadline=None)
@given(
    slots=st.integers(1, LAYERS * EXPERTS),
    eviction=st.sampled_from(Eviction),
    lengths=st.lists(st.integers(24, 90), min_size=1, max_size=3),
    seed=st.integers(0, 999),
)
def test_prompts_when_the_host_reads_them_then_the_same_experts_stay(
    slots: int, eviction: Eviction, lengths: list[int], seed: int
) -> None:
    """`DeviceResidency` gives and takes slots as the replay does, prompt after prompt."""
    shape = small_shape(units=1)
    device = CpuDevice(shape.max_slots * shape.layout.record_bytes)
    state = MoeState(shape, torch.device("cpu"), slots, MoePolicy(eviction=eviction))
    host = DeviceResidency(state, ExpertArena(device, shape.layout, 36, slots), EXPERTS)
    rules = Rules(units=1)
    tables = Replay(LAYERS, EXPERTS, slots, ranking(eviction, rules), rules)
    for turn, length in enumerate(lengths):
        routes = liked_routes(length, seed + turn)
        read_by_host(host, routes)
        tables.prompt(routes)
        seen = state.snapshot()
        assert set(resident(tables)) == set(np.flatnonzero(seen.slot_of != NO_SLOT).tolist())


def read_by_host(host: DeviceResidency, routes: np.ndarray) -> None:
    """What `DevicePrefill` asks of the residency when it streams a prompt."""
    host.begin()
    missing = [np.flatnonzero(slots == NO_SLOT).tolist() for slots in host.slots()]
    for layer in range(LAYERS):
        ids = torch.from_numpy(routes[:, layer])
        host.credit(layer, prompt_uses(ids, EXPERTS).uses, len(routes))
        heat = hotness(routes[-64:, layer].tolist())
        hot = {e: heat.get(e, 0.0) for e in missing[layer]}
        order = sorted(hot, key=lambda e: (-hot[e], e))
        host.admit([layer * EXPERTS + e for e in order], [hot[e] for e in order])
    host.commit()


def one_expert(rules: Rules, uses: int) -> Replay:
    """An expert of a model of one layer and two, used some times; one slot's worth of room."""
    tables = Replay(1, 2, 1, Frequency(2, 1, rules), rules)
    tables.step(np.array([[1]]))  # what misses first finds no candidate yet
    for _ in range(uses):
        tables.step(np.array([[0]]))
    return tables


def test_parts_when_the_link_brings_half_an_expert_then_half_of_it_hits() -> None:
    """Whole slots keep none of it if all must come; a slot for each half keeps the first one."""
    whole = one_expert(Rules(units=4, store_part=1, link_share=0.5), uses=2)
    halves = one_expert(Rules(units=4, parts=2, store_part=1, link_share=0.5), uses=2)
    assert whole.counts.hit == 0
    assert halves.counts.hit == 2
    assert halves.valid[:2] == [2, 0]  # of the other two units the link brought one: too few
    assert len(halves.owner) == 2


def test_dense_fills_when_the_link_is_idle_then_they_complete_what_is_worth_most() -> None:
    """Half of an expert comes for the use, the other half before the next one."""
    rules = Rules(units=4, parts=2, store_part=1, link_share=0.5, dense_units=2, dense_scope="next")
    tables = one_expert(rules, uses=2)
    assert tables.valid[:2] == [2, 2]
    assert tables.counts.hit == 4
    assert tables.counts.dense >= 2


def test_dense_fills_of_begun_slots_when_a_slot_is_half_full_then_no_slot_changes_owner() -> None:
    """The rest of what lies there comes, and nothing of who has no slot."""
    rules = Rules(units=4, store_part=2, link_share=0.5)
    begun = one_expert(replace(rules, dense_units=1), uses=1)
    assert begun.valid == [3, 0]
    assert (begun.counts.dense, begun.counts.fills) == (1, 1)
    assert one_expert(rules, uses=1).valid == [2, 0]


@settings(max_examples=40, deadline=None)
@given(
    slots=st.integers(1, 36),
    scope=st.sampled_from(["begun", "next", "all"]),
    parts=st.sampled_from([1, 2, 4]),
    dense=st.integers(0, 3),
    link=st.floats(0, 1),
    eviction=st.sampled_from(Eviction),
    seed=st.integers(0, 99),
)
def test_tables_whatever_the_rules_stay_sound_and_every_unit_is_counted(
    slots: int, scope: Scope, parts: int, dense: int, link: float, eviction: Eviction, seed: int
) -> None:
    rules = Rules(
        units=4, parts=parts, link_share=link, store_part=2, dense_units=dense, dense_scope=scope
    )
    tables = Replay(LAYERS, EXPERTS, slots, ranking(eviction, rules), rules)
    routes = liked_routes(30, seed)
    tables.prompt(routes[:20])
    for one in routes[20:]:
        tables.step(one)
    counts = tables.counts
    assert counts.hit + counts.missed == 10 * LAYERS * TOP_K * 4
    assert len(tables.owner) == slots * parts
    owned = {part: slot for slot, part in enumerate(tables.owner.tolist()) if part != FREE}
    assert owned == {part: slot for part, slot in enumerate(tables.slot_of) if slot != NO_SLOT}
    for part, units in enumerate(tables.valid):
        assert 0 <= units <= (4 // parts if part in owned else 0)


def test_oracle_when_compared_then_neither_policy_hits_more() -> None:
    """Who knows the future is the bound; random routes leave it far ahead."""
    talks = [Conversation(liked_routes(0, 1), liked_routes(200, 1))]
    hits = [
        replay(talks, EXPERTS, 12, policy, Rules(units=1, link_share=1.0)).hit
        for policy in ("lru", "frequency", "oracle")
    ]
    assert hits[0] < hits[1] < hits[2]


def test_step_model_when_hit_rates_are_those_of_a_card_then_so_is_the_speed() -> None:
    """The published table of one H200: 109, 147 and 258 tok/s."""
    for hit, speed in ((0.435, 109.3), (0.623, 147.3), (0.815, 257.7)):
        assert StepModel().rate(24, (1 - hit) * 24 * 8 * 48) == pytest.approx(speed, rel=0.03)


def test_main_when_policies_are_compared_then_a_row_each(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Over two of the built-in model's chats, and over a file that is none."""
    with np.load(CHATS) as chats:
        two = {name: chats[name] for name in chats if name.endswith(("-01", "-02"))}
    np.savez(tmp_path / "two.npz", **two)
    words = [str(tmp_path / "two.npz"), "--share", "0.25", "--policy", "lru", "frequency"]
    assert main([*words, "--units", "8"]) == 0
    rows = capsys.readouterr().out.splitlines()
    assert len(rows) == 3
    hit = rows[0].split().index("hit")
    assert all(0 < float(row.split()[hit]) < 1 for row in rows[1:])
    other = tmp_path / "other.npz"
    other.write_text(json.dumps({}))
    assert main([str(other)]) == 1
    assert "other.npz holds no routes" in capsys.readouterr().err


def test_read_conversations_when_the_last_token_was_sampled_then_no_step_decodes_it() -> None:
    talks, experts = read_conversations(CHATS)
    with np.load(CHATS) as chats:
        assert experts == 24
        assert len(talks) == 20
        for number, talk in enumerate(talks):
            whole = chats[f"chat-{number:02d}"]
            assert len(talk.prompt) == chats[f"prompt-{number:02d}"]
            assert (np.concatenate([talk.prompt, talk.reply]) == whole[:-1]).all()
    assert math.prod(talks[0].reply.shape[1:]) == 8 * 3
