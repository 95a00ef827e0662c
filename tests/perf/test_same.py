"""One hash over every placement, on the emulator: what the bench runs, and what it notices."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from engine.moe.cache import ResizeOutcome
from engine.moe.device_experts import DeviceExperts
from engine.protocol.messages import MissPolicy
from kernels.cuda.residency import Eviction
from tests.engine.loader.captured_world import pin
from tests.engine.loader.emulated import emulated_tools
from tests.kernels.cuda.moe_support import needs_native
from tests.kernels.emulator import needs_emulator
from tests.perf import same
from tests.perf.client import BenchError
from tests.perf.same import START, Case, Outcome, judged
from tests.perf.synthetic_weights import SyntheticWeights

SIGN = 0x80  # of a bf16 value, in its second byte
PROMPT, TOKENS = 3, 6
COMMON = f"--tiny --device cpu --layers 2 --prompt {PROMPT} --tokens {TOKENS} --threads 1"


def on_emulator(test: Callable[..., None]) -> Callable[..., None]:
    return pytest.mark.slow(needs_native(needs_emulator(test)))


Run = Callable[[str], tuple[int, dict[Case, Outcome], str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run the bench on the emulator; returns exit code, outcomes by case, last line."""
    pin(monkeypatch)
    seen: dict[Case, Outcome] = {}
    plain_line = same.line

    def line(case: Case, outcome: Outcome) -> str:
        seen[case] = outcome
        return plain_line(case, outcome)

    monkeypatch.setattr(same, "line", line)

    def run(words: str) -> tuple[int, dict[Case, Outcome], str]:
        code = same.main([*COMMON.split(), *words.split()], emulated_tools)
        printed = capsys.readouterr().out.splitlines()
        assert all(f"{seen[case].hash:016x}" in "".join(printed) for case in seen)
        return code, seen, printed[-1]

    return run


def hashes(seen: dict[Case, Outcome], resizes: bool) -> set[int]:
    return {outcome.hash for case, outcome in seen.items() if case.resizes is resizes}


@on_emulator
def test_hash_when_placement_differs_then_it_is_one(run: Run) -> None:
    """Units came from slots, over the link and from the CPU, and no bit shows it.

    With both ends at work it is a race, which either may win everywhere.
    """
    policies = (MissPolicy.TWO_ENDED, MissPolicy.FILL_ONLY, MissPolicy.CPU_ONLY)
    code, seen, last = run(f"--shares 0.25 --policies {' '.join(policies)}")
    assert code == 0
    assert last.startswith("12 combinations, 1 hash, every id right")
    assert set(seen) == {
        Case(1, 0.25, policy, eviction, resizes)
        for policy in policies
        for eviction in Eviction
        for resizes in (False, True)
    }
    for case, outcome in seen.items():
        assert outcome.hits < 1
        assert outcome.tokens == TOKENS
        if case.policy is not MissPolicy.TWO_ENDED:
            assert outcome.hits > 0
            assert outcome.link_share == (case.policy is MissPolicy.FILL_ONLY)


@on_emulator
def test_hash_when_a_prompt_is_one_chunk_then_it_is_one_too(run: Run) -> None:
    """And another one than that of a prompt in steps, whose layers it does not hold."""
    code, seen, last = run("--chunk --shares 0.1 1 --policies fill_only --prompt 20")
    assert (code, len(hashes(seen, False) | hashes(seen, True))) == (0, 1)
    assert last.startswith("8 combinations, 1 hash")
    small, large = (
        seen[Case(1, share, MissPolicy.FILL_ONLY, Eviction.LRU, False)] for share in (0.1, 1.0)
    )
    assert small.hits < large.hits


@on_emulator
def test_hash_when_a_resize_flips_one_bit_then_the_bench_fails(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One sign of one weight, in the slot of the expert that is worth most."""
    plain = DeviceExperts.resize

    def resize(self: DeviceExperts, slots: int) -> ResizeOutcome:
        outcome = plain(self, slots)
        tables = self._parts.state.snapshot()
        for record in tables.resident()[-1:]:
            self._parts.arena.slot(int(tables.slot_of[record]))[1] ^= SIGN
        return outcome

    monkeypatch.setattr(DeviceExperts, "resize", resize)
    code, seen, last = run("--shares 0.5 --policies fill_only")
    assert code == 1
    assert last.startswith("4 combinations, ")
    assert " hashes, " in last
    assert len(hashes(seen, resizes=False)) == 1
    assert hashes(seen, resizes=True) - hashes(seen, resizes=False)


@on_emulator
def test_ids_when_one_is_wrong_everywhere_then_the_bench_fails(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One hash of a wrong reply is no proof: two rows of the head changed places."""
    plain = SyntheticWeights.embedding_and_head

    def swapped(self: SyntheticWeights) -> tuple[torch.Tensor, torch.Tensor]:
        embedding, head = plain(self)
        first = START + PROMPT + 1
        head[[first, first + 1]] = head[[first + 1, first]]
        return embedding, head

    monkeypatch.setattr(SyntheticWeights, "embedding_and_head", swapped)
    code, seen, last = run("--shares 1 --policies fill_only")
    assert code == 1
    assert last.startswith("4 combinations, 1 hash, 4 wrong replies")
    assert {outcome.right < TOKENS for outcome in seen.values()} == {True}


def test_cases_when_few_stay_unresized_then_one_of_each_size_and_number_of_threads() -> None:
    options = same._parser().parse_args(["--unresized", "few"])
    cases = same.cases_of(options)
    assert [case.threads for case in cases] == sorted(case.threads for case in cases)
    assert sum(case.resizes for case in cases) == 3 * 4 * 4 * 2
    assert [(case.threads, case.share) for case in cases if not case.resizes] == [
        (threads, share) for threads in (4, 8, 12) for share in (0.125, 0.25, 0.5, 1.0)
    ]
    assert len(same.cases_of(same._parser().parse_args([]))) == 2 * 3 * 4 * 4 * 2


@pytest.mark.parametrize(
    ("outcomes", "text", "code"),
    [
        ([(7, 5), (7, 5)], "2 combinations, 1 hash, every id right", 0),
        ([(7, 5), (8, 5)], "2 combinations, 2 hashes, every id right", 1),
        ([(7, 5), (7, 4)], "2 combinations, 1 hash, 1 wrong replies", 1),
        ([(0, 5), (0, 5)], "2 combinations, 1 hash, every id right", 1),
        ([], "0 combinations, 0 hashes, every id right", 1),
    ],
    ids=["same", "hashes", "ids", "no hash", "nothing"],
)
def test_verdict_when_anything_is_off_then_the_code_is_1(
    outcomes: list[tuple[int, int]], text: str, code: int
) -> None:
    found = [Outcome(value, right, 5, 0.5, None) for value, right in outcomes]
    assert judged(found) == (text, code)


@needs_native
@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("--threads 9999", "9999 threads were asked for"),
        ("--tokens 4", "more than 4"),
        ("--tokens 2000", "1024 tokens together"),
    ],
)
def test_bench_when_it_cannot_run_all_then_it_says_so(words: str, sentence: str) -> None:
    with pytest.raises(BenchError, match=sentence):
        same.main([*COMMON.split(), *words.split()], emulated_tools)


@needs_native
def test_bench_when_a_link_or_a_card_is_missing_then_it_says_so() -> None:
    """Half of the combinations would prove nothing there."""

    def no_tools(*_: Any) -> tuple[None, str]:
        return None, "there is no card"

    with pytest.raises(BenchError, match="there is no card"):
        same.main(COMMON.split(), no_tools)
    with pytest.raises(BenchError, match="cannot read missing experts"):
        same.main(COMMON.split(), emulated_tools)
