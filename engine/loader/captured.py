"""Builds what decodes by captured steps: shape, kernels, residency, CPU threads, runner.

The second of two ways to run a model; `engine.loader.way` chooses. Knows the parts of a
step and their order, not their arithmetic.
"""

import ctypes
import logging
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch

from engine.cache.kv import KvPool
from engine.forward import PAGE_TOKENS
from engine.loader.step_kernels import StepKernels
from engine.memory.bandwidth import Rates
from engine.models.base import DecodeWeights, ModelFamily
from engine.models.spec import ModelSpec
from engine.moe.arena import ExpertArena
from engine.moe.device_experts import DeviceExperts, DeviceParts
from engine.moe.device_prefill import DevicePrefill, PrefillOptions
from engine.moe.device_residency import DeviceResidency
from engine.moe.device_stream import pass_table_bytes
from engine.moe.pool import ExpertPool
from engine.moe.router import TILE_TOKENS
from engine.protocol.errors import BudgetError, InternalError
from engine.protocol.messages import MissPolicy
from engine.runner.captured import CapturedDecode, StepBuffers, StepMaker
from kernels.cpu import expert_obstacle
from kernels.cpu.pool import CpuPool, PoolMemory, PoolOptions, mail_bytes, reply_bytes
from kernels.cpu.topology import default_cpus
from kernels.cuda.dense import (
    DenseBuffers,
    LayerWeights,
    ModelWeights,
    StepInputs,
    StepReport,
)
from kernels.cuda.experts import MoeLayerWeights
from kernels.cuda.moe_state import MAX_SLOTS, MoeScratch, MoeState, moe_obstacle
from kernels.cuda.shape import DecodeShape
from kernels.cuda.step import DecodeStep, StepAddresses, StepModel, rotary_table
from kernels.cuda.tools import Tools
from kernels.device.base import Device, DeviceMemoryError
from kernels.grouped import grouped_kernel, grouped_scratch_bytes
from kernels.layouts import DenseEncoding, RecordLayout
from kernels.weights import DenseWeight

KV_DTYPE = torch.bfloat16
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Encodings:
    """How a checkpoint stores its dense weights, by role; `group` is the side of scale blocks."""

    projections: DenseEncoding
    head: DenseEncoding
    embedding: DenseEncoding
    router: DenseEncoding
    group: int = 0


@dataclass(frozen=True, slots=True)
class CapturedPlan:
    """What is decided before anything is built.

    Attributes:
        shape: of one row; other row counts differ in `rows` only.
        max_rows: rows that a step can have.
        pages_of_a_row: pages of the longest sequence.
    """

    shape: DecodeShape
    max_rows: int
    pages_of_a_row: int

    def for_rows(self, rows: int) -> DecodeShape:
        """Return the shape of a step of so many rows."""
        return replace(self.shape, rows=rows)


@dataclass(frozen=True, slots=True)
class CapturedRequest:
    """What is built from, with the sizes that the budget gave."""

    plan: CapturedPlan
    spec: ModelSpec
    pool: ExpertPool
    kv: KvPool
    device: Device
    tools: Tools
    kernels: StepKernels
    num_slots: int
    staging_records: int
    policy: MissPolicy
    rates: Rates | None
    num_threads: int


class CapturedParts(NamedTuple):
    """What came of it."""

    experts: DeviceExperts
    program: CapturedDecode


@dataclass(frozen=True, slots=True)
class _Mailbox:
    """Host memory that the device reads and writes: a step's talk with CPU threads and host."""

    mail: torch.Tensor
    reply: torch.Tensor
    report: torch.Tensor

    @classmethod
    def make(cls, tools: Tools, hidden: int) -> "_Mailbox":
        """Allocate it, zeroed."""
        sizes = (mail_bytes(hidden), reply_bytes(hidden), _REPORT_BYTES)
        return cls(*map(tools.shared_memory, sizes))


def plan_captured(
    spec: ModelSpec, layout: RecordLayout, stored: Encodings, max_slots: int, max_rows: int
) -> CapturedPlan:
    """Return the plan of a model.

    Raises: ValueError, as half a sentence, for a model that the kernels do not take.
    """
    if len(spec.moe_layers) != spec.num_layers:
        raise ValueError(f"only {len(spec.moe_layers)} of {spec.num_layers} layers have experts")
    if spec.router.score != "softmax":
        raise ValueError(f"a router by {spec.router.score}")
    shape = DecodeShape(
        rows=1,
        layout=layout,
        num_experts=spec.router.num_experts,
        top_k=spec.router.top_k,
        num_layers=spec.num_layers,
        num_heads=spec.num_heads,
        num_kv_heads=spec.num_kv_heads,
        head_dim=spec.head_dim,
        vocab=spec.vocab_size,
        projections=stored.projections,
        head=stored.head,
        embedding=stored.embedding,
        router=stored.router,
        dense_group=stored.group,
        normalise=spec.router.normalise,
        max_slots=max_slots,
    )
    if problem := moe_obstacle(replace(shape, rows=max_rows)):
        raise ValueError(problem)
    return CapturedPlan(shape, max_rows, -(-spec.max_context // PAGE_TOKENS))


def max_captured_slots(num_records: int) -> int:
    """Return the most slots that the kernels manage."""
    return min(num_records, MAX_SLOTS)


def prompt_scratch_bytes(plan: CapturedPlan, chunk_tokens: int) -> int:
    """Return what the experts of a prompt chunk take beside their records: one tile of tokens.

    With its inputs, which are those of all tokens only where these are one tile.
    """
    tokens, layout = min(max(chunk_tokens, plan.max_rows), TILE_TOKENS), plan.shape.layout
    return grouped_scratch_bytes(layout, tokens, plan.shape.top_k) + 2 * tokens * layout.hidden


def scratch_bytes(plan: CapturedPlan) -> int:
    """Return what steps take of the device beside weights, slots and pages, for all row counts.

    Their buffers, residency, the link's staging, the rotary table, norms in float32, and a prompt's
    tables of records. Nothing is allocated.
    """
    shape, nowhere = plan.shape, torch.device("meta")
    row_counts = range(1, plan.max_rows + 1)
    owners = [
        MoeState(shape, nowhere, 1),
        MoeScratch(shape, nowhere, plan.max_rows),
        *(DenseBuffers(plan.for_rows(rows), nowhere) for rows in row_counts),
    ]
    parts = [one for owner in owners for one in vars(owner).values()]
    parts += [StepInputs(rows, plan.pages_of_a_row, nowhere).packed for rows in row_counts]
    buffers = sum(one.nbytes for one in parts if isinstance(one, torch.Tensor))
    rotary = plan.pages_of_a_row * PAGE_TOKENS * shape.head_dim
    norms = shape.num_layers * 2 * (shape.hidden + shape.head_dim) + shape.hidden
    return buffers + 4 * (rotary + norms) + pass_table_bytes(shape.num_layers, shape.num_experts)


def build_captured(
    request: CapturedRequest,
    family: ModelFamily,
    weight: Callable[[str], DenseWeight],
    stack: ExitStack,
) -> CapturedParts:
    """Build the experts and the decode program; `stack` learns how to free them.

    Other numbers of rows than one are compiled on a thread, if the tools allow it.

    Raises: BudgetError if the device has no room.
    """
    weights = family.decode_weights(request.spec, weight)
    if weights is None:
        raise InternalError("This model's steps cannot be captured.")
    plan, tools = request.plan, request.tools
    kernels = request.kernels
    mailbox = _Mailbox.make(tools, request.pool.layout.hidden)
    parts = _device_parts(request, mailbox)
    experts = DeviceExperts(parts, request.policy, request.rates, request.device)
    stack.callback(experts.close)
    model = _model(request, weights, parts.state)
    addresses = StepAddresses(
        kv=request.kv.values.data_ptr(),
        slots=parts.arena.address,
        mail=tools.address(mailbox.mail),
        reply=tools.address(mailbox.reply),
        report=tools.address(mailbox.report),
    )

    def nodes(rows: int) -> _Nodes:
        shape, modules = plan.for_rows(rows), kernels.load(rows)
        step = DecodeStep(shape, modules, model, addresses, tools.card, plan.pages_of_a_row)
        return _Nodes(step)

    program = CapturedDecode(
        StepMaker(nodes, kernels.is_ready, tools.record, experts.before_step, experts.check)
    )
    stack.callback(program.close)
    program.prepare(1)
    kernels.compile_ahead(plan.max_rows)
    return CapturedParts(experts, program)


def _device_parts(request: CapturedRequest, mailbox: _Mailbox) -> DeviceParts:
    """Build what the experts own; frees all of it if a part is refused."""
    device, pool, plan = request.device, request.pool, request.plan
    unpinned = pool.num_layers - pool.num_pinned_layers
    if unpinned and (obstacle := expert_obstacle()):
        raise BudgetError(
            f"Nobody could compute a missing expert of {unpinned} layers: {pool.pin_problem} "
            f"And on the CPU {obstacle}.",
            "Close other programs, so that more memory can be pinned.",
        )
    with ExitStack() as undo:
        try:
            arena = ExpertArena(device, pool.layout, plan.shape.max_slots, request.num_slots)
        except DeviceMemoryError as problem:
            raise BudgetError(f"No room for {request.num_slots} experts: {problem}.") from problem
        undo.callback(arena.close)
        state = MoeState(plan.shape, device.torch_device, request.num_slots)
        residency = DeviceResidency(state, arena, pool.num_experts)
        kernel = grouped_kernel(pool.layout, device.torch_device)
        options = PrefillOptions(staging_records=request.staging_records)
        prefill = DevicePrefill(pool, residency, device, kernel, options)
        undo.callback(prefill.close)
        parts = DeviceParts(
            pool=pool,
            arena=arena,
            state=state,
            prefill=prefill,
            residency=residency,
            threads=_threads(request, mailbox),
            report=StepReport.from_address(mailbox.report.data_ptr()),
            keep=(mailbox,),
        )
        undo.pop_all()
    return parts


class _Nodes:
    """A step as the runner sees it."""

    def __init__(self, step: DecodeStep) -> None:
        inputs, outputs = step.inputs, step.outputs
        self.buffers = StepBuffers(
            inputs.token_ids, inputs.positions, inputs.page_table, outputs.logits, outputs.ids
        )
        self._step = step

    def launch(self, stream: int) -> None:
        """Queue the kernels."""
        self._step.launch(stream)


def _model(request: CapturedRequest, weights: DecodeWeights, state: MoeState) -> StepModel:
    spec, pool, here = request.spec, request.pool, request.device.torch_device

    def norm(values: torch.Tensor) -> torch.Tensor:
        return values.to(here, torch.float32).contiguous()

    def records(layer: int) -> int:
        return request.tools.address(pool.layer(layer)) if pool.is_layer_pinned(layer) else 0

    for layer in range(pool.num_layers):
        state.set_link(layer, pool.is_layer_pinned(layer))
    routers = [
        MoeLayerWeights(
            router=layer.router.values,
            norm=norm(layer.post_norm.dequantise()),
            records=records(number),
            eps=spec.rms_eps,
            weight_scale=spec.router.scale,
        )
        for number, layer in enumerate(weights.layers)
    ]
    layers = tuple(
        LayerWeights(
            q=layer.q,
            k=layer.k,
            v=layer.v,
            o=layer.o,
            input_norm=norm(layer.input_norm.dequantise()),
            query_norm=norm(layer.q_norm.dequantise()),
            key_norm=norm(layer.k_norm.dequantise()),
        )
        for layer in weights.layers
    )
    shape = request.plan.shape
    return StepModel(
        weights=ModelWeights(
            embedding=weights.embedding,
            head=weights.head,
            final_norm=norm(weights.final_norm.dequantise()),
            rotary=rotary_table(
                request.plan.pages_of_a_row * PAGE_TOKENS, shape.head_dim, spec.rope_theta, here
            ),
            layers=layers,
            eps=spec.rms_eps,
        ),
        layers=routers,
        state=state,
        scratch=MoeScratch(shape, here, request.plan.max_rows),
        steps=torch.zeros(1, dtype=torch.int64, device=here),
    )


def _threads(request: CapturedRequest, mailbox: _Mailbox) -> CpuPool | None:
    """Start the CPU's side of the mailbox, if this machine has the C++ kernels."""
    if expert_obstacle():
        return None
    choice = default_cpus(request.num_threads or None)
    pool = request.pool
    mail, reply = mailbox.mail.data_ptr(), mailbox.reply.data_ptr()
    _log.info("expert threads on CPUs %s, pinned: %s", choice.cpus, choice.pin)
    memory = PoolMemory(pool.storage, pool.num_records, mail, reply)
    options = PoolOptions(pin=choice.pin, tune=True)
    return CpuPool(pool.layout, memory, choice.cpus, options)


_REPORT_BYTES = ctypes.sizeof(StepReport)
