"""The dense decode kernels against plain torch: thread by thread on the CPU, and on a GPU.

Without a GPU a C++ compiler makes them (`tests.kernels.emulator`), so logic, bounds and orders are
tested everywhere. A GPU runs the same tests on the same shapes and on real ones.
"""

import ctypes
import dataclasses
from collections.abc import Sequence

import pytest
import torch
from torch.testing import assert_close

from kernels.cuda import cuda_obstacle
from kernels.cuda.__main__ import built_in, qwen3_30b
from kernels.cuda.compile import SOURCES, compile_source
from kernels.cuda.dense import DenseKernels, StepReport
from kernels.cuda.dense_arguments import (
    AttentionArguments,
    EmbedArguments,
    FinishArguments,
    GemvArguments,
)
from kernels.cuda.driver import Module, architecture
from kernels.cuda.shape import DecodeShape
from kernels.cuda.tuning import Card, dense_defines, gemv_plans
from kernels.weights import DenseWeight
from tests.kernels.cuda.dense_cases import (
    Rig,
    decode_shape,
    exact,
    expected_attention,
    expected_new_entries,
    expected_qkv,
    normed,
)
from tests.kernels.emulator import COMPILER, EmulatedModule

# Each has something odd: K no whole steps, padded steps, one head a key head, several CTAs for a
# key head's queries, 3-byte-wide lanes, inputs that do not fit into shared memory at once.
SHAPES = {
    "one row": decode_shape(1, hidden=384, num_heads=6, head_dim=64),
    "blocks": decode_shape(5, hidden=384, stored="fp8_block", num_heads=3, num_kv_heads=3),
    "wide heads": decode_shape(2, num_heads=24, head_dim=256, num_layers=1, splits=2),
    "long": decode_shape(8, hidden=2432, num_layers=1, head="float32", num_heads=2),
    "float32": decode_shape(
        3, hidden=1408, stored="float32", embedding="float32", head_dim=96, num_layers=1
    ),
}
REAL_SHAPES = {
    f"{name}, {rows} rows": make(rows)
    for rows in (1, 3, 6, 8)  # 6: the staged inputs of a plan are just 48 KiB
    for name, make in (
        ("built-in", built_in),
        ("30B", lambda rows: qwen3_30b(rows, num_layers=2)),
        ("30B in blocks", lambda rows: qwen3_30b(rows, "fp8_block", num_layers=2)),
    )
}
# Parts of one, two and several tiles, page edges, one new token alone.
CONTEXTS = (1, 33, 16, 200, 97, 2, 64, 100)
LONG_CONTEXTS = (4100, 17, 1023, 601, 2, 12000, 513, 1)
CLOSE = {"rtol": 2e-5, "atol": 2e-5}  # float32 sums of some thousand products against float64


def make_rig(
    shape: DecodeShape, place: str = "cpu", contexts: Sequence[int] = (), **changes: object
) -> Rig:
    """A step of this shape in the emulator, or on a GPU."""
    if place == "cpu":
        if COMPILER is None:
            pytest.skip("needs a C++ compiler")
        module: object = EmulatedModule("dense.cu", dense_defines(shape))
        lengths = CONTEXTS[3:] if shape.rows == 1 else CONTEXTS
        found = {"card": Card(2, 100 << 10), "device": torch.device("cpu")}
    else:
        if obstacle := cuda_obstacle():
            pytest.skip(f"needs an NVIDIA GPU: {obstacle}")
        torch.zeros(1, device="cuda")  # torch makes the context that is shared
        module = Module(compile_source("dense.cu", dense_defines(shape), architecture()))
        lengths = LONG_CONTEXTS
        found = {"card": Card.of(), "device": torch.device("cuda")}
    return Rig(shape, module, list(contexts or lengths[: shape.rows]), **(found | changes))  # type: ignore[arg-type]


@pytest.fixture(
    scope="module",
    params=[
        *(("cpu", name) for name in SHAPES),
        *(pytest.param(("cuda", name), marks=pytest.mark.gpu) for name in SHAPES | REAL_SHAPES),
    ],
    ids="-".join,
)
def rig(request: pytest.FixtureRequest) -> Rig:
    place, name = request.param
    return make_rig((SHAPES | REAL_SHAPES)[name], place)


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def place(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_embed_when_ids_are_given_copies_their_rows(rig):
    """Residual stream in float32, whatever the table is stored as."""
    rig.kernels.embed(0)
    table = exact(rig.weights.embedding).float()
    assert torch.equal(rig.buffers.x, table[rig.inputs.token_ids.long()])


def test_embed_when_an_id_is_none_reads_no_stray_memory(rig):
    """A sampler that met NaN gives -1."""
    kept = rig.inputs.token_ids.clone()
    rig.inputs.token_ids.fill_(-1)
    rig.kernels.embed(0)
    rig.inputs.token_ids.copy_(kept)
    assert torch.equal(rig.buffers.x[0], exact(rig.weights.embedding)[0].float())


def test_qkv_when_run_is_the_product_of_the_normed_input(rig):
    """q, k and v lie in three matrices with scales of their own."""
    x = rig.random_x()
    for layer in range(rig.shape.num_layers):
        rig.kernels.qkv(layer, 0)
        assert_close(rig.buffers.qkv.double(), expected_qkv(rig, layer, x), **CLOSE)


def test_output_when_run_adds_to_the_residual_stream(rig):
    """x += o attended."""
    x = rig.random_x()
    attended = rig.random(*rig.buffers.attended.shape)
    rig.buffers.attended.copy_(attended)
    rig.kernels.output(0, 0)
    expected = x.double() + attended.double() @ exact(rig.weights.layers[0].o).T
    assert_close(rig.buffers.x.double(), expected, **CLOSE)


def test_head_when_run_gives_logits_for_every_token(rig):
    """The vocabulary is no multiple of anything."""
    x = rig.random_x()
    rig.kernels.head(0)
    expected = normed(x, rig.weights.final_norm) @ exact(rig.weights.head).T
    assert_close(rig.buffers.logits.double(), expected, **CLOSE)


def test_attention_when_run_appends_and_attends(rig):
    """Every context length at once: parts, tiles, pages, and NaN wherever nothing may be read."""
    layer = rig.shape.num_layers - 1
    rig.buffers.qkv.copy_(rig.random(*rig.buffers.qkv.shape))
    rig.kernels.attention(layer, 0)
    for row in range(rig.shape.rows):
        keys, values = rig.cached(row, layer)
        key, value = expected_new_entries(rig, layer, row)
        assert_close(keys[-1], key, rtol=2**-8, atol=1e-6)  # rounded to bf16 once
        assert torch.equal(values[-1], value.bfloat16().double())
        assert_close(
            rig.buffers.attended[row].double(), expected_attention(rig, layer, row), **CLOSE
        )
    assert not rig.buffers.tickets.any(), "the next layer needs them at 0"


@pytest.mark.parametrize(
    ("head_dim", "splits", "contexts"),
    [(32, 64, [1230, 1030]), (96, 64, [1230, 20]), (128, 64, [1250, 530])],
)
def test_attention_when_parts_are_many_combines_all(place, head_dim, splits, contexts):
    """More parts than lanes, more than are on their way at once, and just a few."""
    shape = decode_shape(2, head_dim=head_dim, splits=splits, num_layers=1)
    rig = make_rig(shape, place, contexts)
    rig.buffers.qkv.copy_(rig.random(*rig.buffers.qkv.shape))
    rig.kernels.attention(0, 0)
    for row in range(2):
        assert_close(rig.buffers.attended[row].double(), expected_attention(rig, 0, row), **CLOSE)


def test_attention_when_run_again_gives_the_same_bits(rig):
    """Parts are combined in rising order, whoever comes last."""
    rig.buffers.qkv.copy_(rig.random(*rig.buffers.qkv.shape))
    rig.kernels.attention(0, 0)
    first = rig.buffers.attended.clone()
    rig.buffers.attended.zero_()
    rig.kernels.attention(0, 0)
    assert torch.equal(first, rig.buffers.attended)


def test_finish_when_run_reports_the_best_tokens(rig):
    """Ids, errors, counters and the step's number are in host memory; ids on the device, too."""
    rig.inputs.positions.copy_(torch.tensor(rig.contexts) - 1)
    logits = rig.random(*rig.buffers.logits.shape)
    rig.buffers.logits.copy_(logits)
    before = int(rig.step)
    rig.finish(0)
    rig.synchronize()
    expected = logits.argmax(-1).tolist()
    assert list(rig.report.ids[: rig.shape.rows]) == expected
    assert rig.buffers.ids.tolist() == expected
    assert rig.inputs.positions.tolist() == rig.contexts  # of the next token
    assert rig.report.step == before + 1 == int(rig.step)
    assert rig.report.errors == 3
    assert list(rig.report.counters[:6]) == [0, 10, 20, 30, 40, 0]


def test_finish_when_logits_are_equal_takes_the_lowest_id(rig):
    """Also where the highest are zeros of both signs, and with nothing but minus infinity."""
    logits = rig.buffers.logits
    for fill, places, expected in (
        (-5.0, {77: 2.0, 30: 2.0, 99: 2.0}, 30),
        (-1.0, {50: -0.0, 51: 0.0}, 50),
        (float("-inf"), {}, 0),
        (float("-inf"), {100: -3e38}, 100),
    ):
        logits.fill_(fill)
        for place, value in places.items():
            logits[:, place] = value
        rig.finish(0)
        assert rig.buffers.ids.tolist() == [expected] * rig.shape.rows


def test_finish_when_a_logit_is_nan_says_so_for_that_row_only(rig):
    """-1 is no token: the host ends the reply with an error."""
    rig.buffers.logits.zero_()
    rig.buffers.logits[-1, 64] = float("nan")
    rig.finish(0)
    rig.synchronize()
    assert rig.report.ids[rig.shape.rows - 1] == -1
    assert list(rig.report.ids[: rig.shape.rows - 1]) == [0] * (rig.shape.rows - 1)


def test_step_when_kernels_overlap_has_the_same_bits(rig):
    """A kernel may start before the one before it has ended, and waits at the right place."""
    alone = rig.whole_step(alone=True)
    assert not alone.isnan().any()
    logits = rig.buffers.logits.clone()
    for _ in range(1 if rig.device.type == "cpu" else 50):
        assert torch.equal(rig.whole_step(alone=False), alone)
        assert torch.equal(rig.buffers.logits, logits)


def test_products_when_the_card_differs_have_the_same_bits(place):
    """The grid is a matter of speed: no bit depends on how many CTAs share the rows."""
    shape = SHAPES["blocks"]
    rigs = [make_rig(shape, place, card=Card(count, 227 << 10)) for count in (1, 7)]
    for rig in rigs:
        rig.random_x()
        rig.kernels.qkv(1, 0)
    assert torch.equal(rigs[0].buffers.qkv, rigs[1].buffers.qkv)


def test_products_when_rows_change_places_keep_their_bits(place):
    """A row's result does not depend on its place or on its neighbours."""
    rig = make_rig(SHAPES["blocks"], place)
    x = rig.random_x()
    rig.kernels.qkv(0, 0)
    first = rig.buffers.qkv.clone()
    rig.buffers.x.copy_(x.flip(0))
    rig.buffers.x[0].fill_(float("nan"))
    rig.kernels.qkv(0, 0)
    assert torch.equal(first[:-1], rig.buffers.qkv.flip(0)[:-1])
    assert rig.buffers.qkv[0].isnan().all()


def test_products_when_a_code_is_nan_spread_it(place):
    """0x7f and 0xff are NaN, as the reference reads them; all other codes are exact."""
    rig = make_rig(SHAPES["blocks"], place)
    rig.random_x()
    weight = rig.weights.layers[0].q
    codes = weight.values.view(torch.uint8)
    every = torch.arange(384, device=codes.device)
    codes[0] = every.remainder(256).where(every % 128 != 127, 0)
    codes[1, 300] = 0xFF
    codes[2, 5] = 0x7F
    rig.kernels.qkv(0, 0)
    is_nan = rig.buffers.qkv.isnan()
    assert is_nan[:, 1:3].all()
    assert int(is_nan.sum()) == 2 * rig.shape.rows
    expected = expected_qkv(rig, 0, rig.buffers.x)
    assert_close(rig.buffers.qkv[:, 0].double(), expected[:, 0], **CLOSE)


def test_plans_when_inputs_are_large_stage_them_in_parts():
    """The shape that is there for it does what it is there for."""
    plan = gemv_plans(SHAPES["long"]).qkv
    assert plan.staged < plan.blocks
    assert not (plan.blocks * plan.depth * plan.step_columns) % 256


@pytest.mark.parametrize("fault", ["dtype", "sizes", "strides", "encoding", "layers"])
def test_kernels_when_a_tensor_is_not_what_was_compiled_refuse_it(rig, fault):
    """Kernels take addresses: whatever does not fit would be read as something else."""
    weights, shape = rig.weights, rig.shape
    norm = weights.final_norm
    if fault == "dtype":
        weights = dataclasses.replace(weights, final_norm=norm.double())
    elif fault == "sizes":
        weights = dataclasses.replace(weights, final_norm=norm[:-1])
    elif fault == "strides":
        weights = dataclasses.replace(weights, final_norm=norm.repeat_interleave(2)[::2])
    elif fault == "encoding":
        wide = DenseWeight(torch.zeros(weights.head.shape))
        narrow = DenseWeight(wide.values.bfloat16())
        other = narrow if weights.head.values.dtype == torch.float32 else wide
        weights = dataclasses.replace(weights, head=other)
    else:
        weights = dataclasses.replace(weights, layers=weights.layers[1:])
    with pytest.raises(ValueError, match=r"final norm|head|layers"):
        DenseKernels(shape, rig.module, weights, rig.inputs, rig.buffers, 0, rig.card)


def test_kernels_when_scale_blocks_differ_refuse_them():
    """The side of a block is compiled in."""
    rig = make_rig(SHAPES["blocks"])
    layer = rig.weights.layers[0]
    finer = DenseWeight(layer.q.values, torch.ones(2, 6), 64)
    layers = (dataclasses.replace(layer, q=finer), *rig.weights.layers[1:])
    weights = dataclasses.replace(rig.weights, layers=layers)
    with pytest.raises(ValueError, match="layer 0 q: blocks of 64, compiled for 128"):
        DenseKernels(rig.shape, rig.module, weights, rig.inputs, rig.buffers, 0, rig.card)


@pytest.mark.parametrize(
    ("structure", "num_bytes"),
    [
        (GemvArguments, 88),
        (AttentionArguments, 104),
        (EmbedArguments, 24),
        (FinishArguments, 80),
        (StepReport, 304),
    ],
)
def test_arguments_when_mirrored_have_the_sizes_that_the_sources_assert(structure, num_bytes):
    """A field more on one side only would shift every address behind it."""
    assert ctypes.sizeof(structure) == num_bytes
    sources = "".join(path.read_text() for path in SOURCES.iterdir())
    assert f"static_assert(sizeof({structure.__name__}) == {num_bytes}," in sources
