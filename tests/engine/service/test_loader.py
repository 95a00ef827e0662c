"""Loading the built-in model for real: budget, bounds, cancel, damage, memory given back."""

import gc
import shutil
from dataclasses import replace

import psutil
import pytest

from engine.checkpoint.ftw import FtwReader
from engine.loader.locate import locate_model
from engine.loader.open import open_model
from engine.loader.parts import LoadWatch
from engine.loader.plan import ModelCost, Room, plan_load
from engine.memory.budget import GIB, MIB, Division
from engine.models.spec import ModelSpec, RouterSpec
from engine.protocol.errors import (
    BudgetError,
    Cancelled,
    CorruptCheckpoint,
    EngineError,
    FileAccess,
    InvalidRequest,
)
from engine.protocol.messages import Budget, Load
from engine.scheduler.holdings import Holdings
from engine.scheduler.pools import ExpertSide, KvSide, apply_division
from engine.settings import EngineSettings
from engine.system import trim_heap

pytestmark = pytest.mark.weights
QUIET = LoadWatch(lambda *_: None, lambda: False)


def _open(home, watch=QUIET, device_bytes=0, **fields):
    settings = EngineSettings(home=home, threads=1, device_bytes=device_bytes)
    return open_model(Load(**{"id": "l", "model": "builtin", **fields}), settings, watch)


def test_load_divides_the_emulated_device_as_promised(converted_home):
    """Half of the experts resident, everything would fit, an eighth free, sizes really there."""
    stages = {}
    model = _open(converted_home, LoadWatch(lambda s, d, t: stages.update({s: (d, t)}), lambda: 0))
    try:
        assert stages["read"] == (model.info.pool_bytes, model.info.pool_bytes)
        assert stages["build"][0] == stages["build"][1]
        num_records = model.info.num_records
        assert model.experts.num_slots == num_records // 2
        assert model.experts.arena_bytes == num_records // 2 * model.info.record_bytes
        assert model.budget.bounds().max_slots == num_records
        assert model.pages.num_pages * 16 == 2048
        assert model.device.emulated
        assert model.info.sampling is not None
        assert set(model.kernels) >= {"expert_rows", "route"}
        for share in (0.0, 0.25, 0.5, 1.0):
            slots = max(model.budget.min_slots, int(num_records * share))
            kv = KvSide(Holdings(model.pages, reuse=False), model.kv, tuple)
            apply_division(kv, ExpertSide(model.experts), Division(1024, slots))
            assert model.experts.arena_bytes == slots * model.info.record_bytes
    finally:
        model.close()


def test_load_five_times_gives_memory_back(converted_home):
    """Within 5 % of what the first load left behind."""
    process = psutil.Process()
    resident = []
    for _ in range(5):
        model = _open(converted_home)
        model.close()
        del model
        trim_heap()
        resident.append(process.memory_info().rss)
    assert resident[-1] <= resident[0] * 1.05


def test_cancel_at_any_point_frees_everything(converted_home):
    """Reading and building both ask; nothing of the model stays (case M-22)."""
    for after in (0, 1, 3, 20):
        asked = iter(range(10_000))
        watch = LoadWatch(lambda *_: None, lambda n=after, a=asked: next(a) >= n)
        with pytest.raises(Cancelled):
            _open(converted_home, watch)
    gc.collect()
    assert not [one for one in gc.get_objects() if type(one).__name__ == "ExpertPool"]


def test_explicit_budget_is_kept_or_refused_before_reading(converted_home):
    """Cases E-04 and M-07: fail fast, with the sum and a plan that works."""
    model = _open(converted_home, budget=Budget(kv_tokens=512, expert_slots=20))
    assert (model.pages.num_pages * 16, model.experts.num_slots) == (512, 20)
    model.close()
    read = []
    watch = LoadWatch(lambda *seen: read.append(seen), lambda: False)
    with pytest.raises(BudgetError, match=r"Needs .*: weights .* \+ runtime .* are free") as caught:
        _open(converted_home, watch, budget=Budget(total_bytes=64 * MIB, expert_slots=192))
    assert "What fits" in caught.value.hint
    with pytest.raises(BudgetError, match="weights"):
        _open(converted_home, watch, device_bytes=8 * MIB)
    assert not read


def test_emulated_total_of_the_settings_counts(converted_home):
    """FREETOKEN_DEVICE_BYTES makes a small card out of any machine."""
    model = _open(converted_home, device_bytes=80 * MIB)
    assert model.budget.total_bytes == model.device.total_bytes == 80 * MIB
    model.close()


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"devices": ()}, InvalidRequest),
        ({"devices": ("cpu", "cuda:0")}, InvalidRequest),
        ({"devices": ("tpu",)}, InvalidRequest),
        ({"chunk_tokens": -1}, InvalidRequest),
        ({"model": "no-such-model"}, FileAccess),
    ],
)
def test_bad_load_names_what_is_wrong(converted_home, fields, problem):
    """Each with a sentence; the engine stays."""
    with pytest.raises(problem):
        _open(converted_home, **fields)


def test_damaged_folder_with_an_odd_name_is_refused_and_a_good_one_loads(converted_home, tmp_path):
    """Case E-17: accents, CJK and an emoji in the path; then one byte flipped."""
    folder = tmp_path / "Ž é 模型 😀"
    shutil.copytree(converted_home.models / "tiny-moe-fp8", folder)
    model = _open(converted_home, model=str(folder))
    assert model.info.path == str(folder)
    model.close()
    bank = folder / FtwReader(folder).index.files[0].name
    data = bytearray(bank.read_bytes())
    data[5000] ^= 1
    bank.write_bytes(data)
    with pytest.raises(CorruptCheckpoint, match=bank.name):
        _open(converted_home, model=str(folder))


def test_builtin_that_cannot_be_written_says_so(tmp_path):
    """The data root is a file: a sentence, not a traceback."""
    (tmp_path / "home").write_text("")
    from engine.protocol.places import DataRoot

    with pytest.raises(EngineError):
        locate_model("builtin", DataRoot(tmp_path / "home"), lambda *_: None, lambda: False)


def test_cuda_is_never_touched_for_the_cpu(converted_home, monkeypatch):
    """Case E-13: another program may have filled the card."""

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("CUDA was initialised")

    monkeypatch.setattr("torch.cuda._lazy_init", refuse)
    monkeypatch.setattr("torch.cuda.is_available", refuse)
    _open(converted_home).close()


SPEC = ModelSpec(
    model_type="x",
    num_layers=40,
    hidden=2048,
    vocab_size=150_000,
    num_heads=32,
    num_kv_heads=4,
    head_dim=128,
    moe_intermediate=512,
    moe_layers=tuple(range(40)),
    dense_intermediate=0,
    router=RouterSpec(256, 8),
    rms_eps=1e-6,
    rope_theta=1e6,
    max_context=40_960,
    tie_embeddings=False,
    eos_ids=(1,),
    quant="bf16",
)
COST = ModelCost(
    dense_values=500_000_000,
    record_bytes=6 * MIB,
    num_records=40 * 256,
    num_experts=256,
    chunk_tokens=256,
    kv_token_bytes=160 * 1024,
    dense_bytes=2_000_000_000,
)
ROOM = Room(
    emulated=False,
    device_total_bytes=24 * GIB,
    device_free_bytes=20 * GIB,
    host_total_bytes=128 * GIB,
    host_available_bytes=100 * GIB,
)
ROOM_80 = replace(ROOM, device_total_bytes=80 * GIB, device_free_bytes=78 * GIB)


def test_plan_of_captured_steps_counts_their_buffers_and_no_scores():
    """Attention of a chunk passes in pieces there: 40,000 tokens of context cost no table."""
    captured = replace(COST, scratch_bytes=64 * MIB, chunk_tokens=4096, tile_tokens=2048)
    plain = plan_load(replace(COST, chunk_tokens=4096), SPEC, ROOM_80, Budget(), 8)
    plan = plan_load(captured, SPEC, ROOM_80, Budget(), 8)
    assert plan.budget.weights_bytes == COST.dense_bytes
    assert 64 * MIB < plan.budget.runtime_bytes < plain.budget.runtime_bytes


def test_plan_on_a_card_leaves_the_reserve_and_streams_less_on_a_small_one():
    """M-16 and M-17: what the desktop needs stays free, and staging does not eat the device."""
    plan = plan_load(COST, SPEC, ROOM, Budget(), 8)
    assert plan.budget.total_bytes < 20 * GIB
    assert plan.staging_records * COST.record_bytes <= 0.15 * 20 * GIB
    assert plan.division.kv_tokens >= 8192
    assert plan.budget.need_bytes(plan.division) <= plan.budget.total_bytes


def test_plan_of_a_model_larger_than_memory_is_refused_with_figures():
    """Cases M-06 and M-22."""
    with pytest.raises(BudgetError, match=r"Loading needs 60.0 GiB"):
        plan_load(COST, SPEC, replace(ROOM, host_available_bytes=60 * GIB), Budget(), 8)


@pytest.mark.parametrize("left_gib", [64.0, 75.0, 100.0, 400.0])
def test_plan_without_a_card_takes_what_main_memory_has_beside_the_pool(left_gib):
    """Case M-06: a smaller cache instead of a refusal, and no bound beyond what there is."""
    room = Room(
        emulated=True,
        device_total_bytes=0,
        device_free_bytes=0,
        host_total_bytes=512 * GIB,
        host_available_bytes=int((left_gib + 10) * GIB),
    )
    cost = replace(COST, dense_bytes=4 * COST.dense_values)
    if left_gib < 66:
        with pytest.raises(BudgetError, match="of main memory"):
            plan_load(cost, SPEC, room, Budget(), 8)
        return
    plan = plan_load(cost, SPEC, room, Budget(), 8)
    most = plan.budget.bounds().max_slots
    assert cost.pool_bytes + plan.budget.total_bytes <= room.host_available_bytes
    assert 8 <= plan.division.expert_slots <= min(most, cost.num_records // 2)
    assert (most == cost.num_records) == (left_gib > 300)


def test_plan_of_a_long_context_counts_scores_block_by_block():
    """Case M-24: 262,144 tokens of context are no reason to refuse a model on a CPU."""
    spec = replace(SPEC, max_context=262_144)
    plan = plan_load(COST, spec, ROOM_80, Budget(), 8)
    assert plan.budget.runtime_bytes - plan.staging_records * COST.record_bytes < 4 * GIB
