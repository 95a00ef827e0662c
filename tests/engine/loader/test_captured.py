"""A model on captured steps, from its folder to its tokens, against the same model layer by layer.

The CUDA sources run on the CPU emulator; loader, residency, CPU pool, runner and prompts are real.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest
import torch

from engine.layers.attention import Attention
from engine.loader.parts import LoadedModel
from engine.protocol.errors import BudgetError, DeviceError
from engine.protocol.messages import MissPolicy
from engine.runner.model_runner import StepOutput
from engine.runner.work import RowWork
from kernels.cuda.experts import MoeLayerWeights
from tests.engine.loader.captured_world import GREEDY, PROMPT, SHAPE, made, opened, pin, reply
from tests.engine.loader.emulated import EmulatedTools
from tests.kernels.emulator import needs_emulator

pytestmark = needs_emulator


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small random model of 16 experts in two layers."""
    return made(tmp_path_factory.mktemp("captured"), "bf16")


@pytest.mark.parametrize("stored", ["bf16", "fp8_block"])
def test_reply_when_captured_then_it_is_that_of_the_plain_way(
    stored: Literal["bf16", "fp8_block"], tmp_path: Path
) -> None:
    """Same ids, and decode really came from the kernels, hits and misses both."""
    folder = made(tmp_path, stored)
    with opened(folder, tmp_path, captured=False) as plain:
        expected = reply(plain, 12)
        assert (
            not plain.kernels["decode"].startswith("captured") if "decode" in plain.kernels else 1
        )
    with opened(folder, tmp_path) as model:
        assert model.kernels["decode"].startswith("captured")
        assert reply(model, 12) == expected
        counters = model.experts.counters()
        assert counters.routes == 11 * SHAPE.num_layers * SHAPE.top_k
        assert counters.hits > 0
        assert counters.cpu + counters.fills > 0


@pytest.mark.parametrize(
    ("policy", "slots"), [*((policy, 2) for policy in MissPolicy), (MissPolicy.TWO_ENDED, 16)]
)
def test_reply_whatever_the_residency_is_the_same(
    folder: Path, tmp_path: Path, policy: MissPolicy, slots: int
) -> None:
    """Policy and cache size change who computes, never what (E-18 and the numerics contract)."""
    with opened(folder, tmp_path, slots=16, policy=MissPolicy.FILL_ONLY) as model:
        expected = reply(model, 8)
    with opened(folder, tmp_path, slots=slots, policy=policy) as model:
        assert reply(model, 8) == expected


@pytest.mark.parametrize("layers", [2, 1, 0])
@pytest.mark.parametrize("policy", list(MissPolicy))
def test_reply_when_only_some_layers_are_pinned_then_it_is_the_same(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, policy: MissPolicy, layers: int
) -> None:
    """Case M-02: the link serves pinned layers, the CPU the others, also where copies are asked.

    An address that kernels must not read is none, so that reading it would end the test.
    """
    with opened(folder, tmp_path, slots=16, policy=MissPolicy.CPU_ONLY) as model:
        expected = reply(model, 8)
    records: list[int] = []

    def kept(**fields: Any) -> MoeLayerWeights:
        records.append(fields["records"])
        return MoeLayerWeights(**fields)

    monkeypatch.setattr("engine.loader.captured.MoeLayerWeights", kept)
    pin(monkeypatch, layers)
    with opened(folder, tmp_path, slots=2, policy=policy) as model:
        parts = model.experts._parts
        assert parts.pool.num_pinned_layers == sum(parts.state.link_ok.tolist()) == layers
        linked = [parts.pool.layer(layer).data_ptr() for layer in range(layers)]
        assert records == linked + [0] * (SHAPE.num_layers - layers)
        assert reply(model, 8) == expected
        counters = model.experts.counters()
        if policy in (MissPolicy.FILL_ONLY, MissPolicy.SPLIT):
            assert (counters.fills > 0) == (layers > 0)
        if policy is MissPolicy.FILL_ONLY:
            assert (counters.cpu > 0) == (layers < SHAPE.num_layers)
        assert not model.experts._counts().errors


@pytest.mark.parametrize("layers", [2, 1, 0])
def test_load_when_the_cpu_has_no_kernels_then_every_layer_must_be_pinned(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layers: int
) -> None:
    """One layer that nobody could serve is an error before a step, with cause and what to do."""
    pin(monkeypatch, layers)
    monkeypatch.setattr("engine.loader.captured.expert_obstacle", lambda: "nothing was compiled")
    if layers == SHAPE.num_layers:
        with opened(folder, tmp_path, slots=2) as model:
            reply(model, 3)
            assert model.experts.counters().fills > 0
        return
    words = f"of {SHAPE.num_layers - layers} layers: .* could be pinned .1 of 2 layers"
    words = words if layers else "of 2 layers: The driver refused"
    with pytest.raises(BudgetError, match=words) as refused, opened(folder, tmp_path, slots=2):
        pass
    assert "nothing was compiled" in str(refused.value)


def test_resize_during_a_reply_then_the_reply_goes_on_alike(folder: Path, tmp_path: Path) -> None:
    """Grow and shrink between steps: nothing is recorded anew, no id changes."""
    with opened(folder, tmp_path) as model:
        expected = reply(model, 10)
        runner, pages = model.runner, tuple(range(4))
        runner.open_row(0, GREEDY, 0, PROMPT)
        got = list(runner.launch("prefill", [RowWork(0, PROMPT, 0, pages, True)]).wait())
        for step, slots in enumerate((16, 3, 3, 9, 2, 16, 8, 5, 12)):
            outcome = model.experts.resize(slots)
            assert outcome.slots == model.experts.num_slots == slots
            got += runner.launch("decode", [RowWork(0, (), len(PROMPT) + step, pages, True)]).wait()
        assert [tuple(got)] == expected
        with pytest.raises(BudgetError, match="possible"):
            model.experts.resize(17)


def test_rows_when_decoded_together_then_each_is_as_alone(folder: Path, tmp_path: Path) -> None:
    """Three rows share experts; a recording per number of rows."""
    with opened(folder, tmp_path) as model:
        alone = [reply(model, 6, rows=(row,))[0] for row in range(3)]
        assert reply(model, 6, rows=(0, 1, 2)) == alone


def arrived(model: LoadedModel) -> tuple[bytes, bytes, int]:
    """The heat map once the device's tables have come over, which nothing waits for."""
    for _ in range(100_000):
        found = model.experts.heat()
        if sum(found[1]):
            return found
    raise AssertionError("the tables never came")


def test_heat_when_a_reply_ran_then_residents_and_uses_show(folder: Path, tmp_path: Path) -> None:
    """The map follows the device's own tables."""
    with opened(folder, tmp_path) as model:
        reply(model, 6)
        hits, resident, most = arrived(model)
        assert len(hits) == len(resident) == SHAPE.num_layers * SHAPE.num_experts
        assert sum(resident) <= 8
        assert most > 0


def test_prompt_when_no_expert_was_resident_then_its_last_ones_are(
    folder: Path, tmp_path: Path
) -> None:
    """The warm hand-over: decode starts with the prompt's experts in their slots."""
    with opened(folder, tmp_path, slots=16) as model:
        reply(model, 1)
        _, resident, most = arrived(model)
        assert sum(resident) > 4
        assert most == 0  # no decode step has run


def test_step_when_the_pool_does_not_answer_then_the_reply_ends_with_a_sentence(
    folder: Path, tmp_path: Path
) -> None:
    """A lost CPU thread is an error that names it, never a wrong word or a hang."""
    with opened(folder, tmp_path, slots=2) as model:
        runner, pages = model.runner, tuple(range(4))
        runner.open_row(0, GREEDY, 0, PROMPT)
        runner.launch("prefill", [RowWork(0, PROMPT, 0, pages, True)]).wait()
        model.experts._parts.threads.close()
        step = runner.launch("decode", [RowWork(0, (), len(PROMPT), pages, True)])
        with pytest.raises(DeviceError, match="did not answer"):
            step.wait()


def test_unload_then_kernels_and_recordings_are_gone(folder: Path, tmp_path: Path) -> None:
    """Code of every number of rows that was used; recordings first, for they run it."""
    tools = EmulatedTools()
    with opened(folder, tmp_path, tools=tools) as model:
        reply(model, 3, rows=(0, 1))
        assert len(tools.loaded) == 4
        assert all(tape() for tape in tools.tapes)
        assert len(tools.tapes) == 2
    assert tools.loaded == []
    assert not any(tape() for tape in tools.tapes)


@pytest.mark.parametrize("refused", ["recording", "runner"])
def test_load_when_it_fails_late_then_kernels_are_unloaded(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: str
) -> None:
    """Code that was loaded for a recording does not stay, nor the recording."""
    tools = EmulatedTools()

    def refuse(*_: object) -> None:
        raise BudgetError(f"No room for a {refused}.")

    if refused == "recording":
        monkeypatch.setattr(tools, "record", refuse)
    else:
        monkeypatch.setattr("engine.loader.open.ModelRunner", refuse)
    with pytest.raises(BudgetError, match=refused), opened(folder, tmp_path, tools=tools):
        pass
    assert tools.loaded == []


def test_rows_while_their_kernels_are_compiled_then_bits_do_not_change(
    folder: Path, tmp_path: Path
) -> None:
    """Three rows as 1 + 1 + 1, as 2 + 1 and as one step: the same ids, and the same logits."""
    with opened(folder, tmp_path, slots=5) as model:
        program = model.runner._program
        ready: set[int] = set()
        program._maker = replace(program._maker, is_ready=lambda rows: rows in ready)
        logits = []

        def kept(way: Callable[..., StepOutput | None]) -> Callable[..., StepOutput | None]:
            def run(*given: object) -> StepOutput | None:
                output = way(*given)
                if output is not None:
                    logits.append(output.logits.clone())
                return output

            return run

        program.run, program.go_on = kept(program.run), kept(program.go_on)
        replies, seen = [], []
        for more in ((), (2,), (3,)):
            ready.update(more)
            replies.append(reply(model, 5, rows=(0, 1, 2)))
            assert len(logits) == 4
            seen.append(torch.stack(logits))
            logits.clear()
        assert replies[0] == replies[1] == replies[2]
        assert seen[0].equal(seen[1])
        assert seen[0].equal(seen[2])
        assert set(program._steps) == {1, 2, 3}


def test_prompt_when_it_comes_in_chunks_then_its_end_is_known(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the chunk that a token is wanted of offers its experts in place of others.

    And its copies start before anything of it is computed: they run beside its first layer too.
    """
    with opened(folder, tmp_path) as model:
        prefill, ends, events = model.experts._parts.prefill, [], []
        start, attend = prefill.start, Attention.__call__

        def watched(num_tokens: int, top_k: int, last_chunk: bool = True) -> None:
            ends.append(last_chunk)
            events.append("start")
            start(num_tokens, top_k, last_chunk)

        def noted(attention: Attention, *given: object) -> None:
            events.append("attention")
            attend(attention, *given)

        monkeypatch.setattr(prefill, "start", watched)
        monkeypatch.setattr(Attention, "__call__", noted)
        model.runner.open_row(0, GREEDY, 0, PROMPT)
        for first, sample in ((0, False), (6, False), (12, True)):
            tokens = PROMPT[first : first + 6]
            work = RowWork(0, tokens, first, tuple(range(4)), sample)
            model.runner.launch("prefill", [work]).wait()
        assert ends == [False, False, True]
        num_layers = model.info.num_layers
        assert events == ["start", *["attention"] * num_layers] * 3
