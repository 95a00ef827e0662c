"""Checkpoint + family + format + budget + pools + runner -> a loaded engine.

The one long import list. Nothing is read before budget and main memory were checked, and a failure
or a cancel at any point frees everything. Called by `engine.service`, on its thread.
"""

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch

from engine.cache.kv import KvPool, kv_bytes_per_token
from engine.cache.pages import PageAllocator
from engine.checkpoint.ftw import FtwReader
from engine.loader.captured import CapturedRequest, build_captured, prompt_scratch_bytes
from engine.loader.chunk import PromptChunk, decide_chunk
from engine.loader.locate import locate_model
from engine.loader.parts import LoadedModel, LoadWatch
from engine.loader.plan import (
    LoadPlan,
    ModelCost,
    Room,
    choose_threads,
    plan_load,
    staged_records,
    total_params,
)
from engine.loader.rates import measured_rates
from engine.loader.rehearsal import rehearse
from engine.loader.step_kernels import StepKernels
from engine.loader.tools import OpenTools, card_tools
from engine.loader.unpinned import build_or_unpin, pin_notices
from engine.loader.way import Way, choose_way
from engine.loader.weights import on_device, read_weights
from engine.memory.bandwidth import Rates
from engine.memory.budget import PAGE_TOKENS
from engine.models.base import ModelFamily, Parts
from engine.models.registry import get_family
from engine.models.spec import ModelSpec
from engine.moe.cache import ExpertCache
from engine.moe.device_experts import DeviceExperts
from engine.moe.executor import MoeExecutor, MoeOptions
from engine.moe.pool import ExpertPool, layer_bytes
from engine.protocol.errors import BudgetError, DeviceError, InvalidRequest
from engine.protocol.messages import Budget, DeviceInfo, Load, MissPolicy, ModelInfo
from engine.runner.model_runner import ModelRunner
from engine.settings import EngineSettings
from engine.system import host_memory, usable_cores
from engine.text.chat import ChatText
from kernels.cuda.tools import Tools
from kernels.device.base import (
    LOST_ERRORS,
    MEMORY_ERRORS,
    Device,
    DeviceLostError,
    memory_refusals,
)
from kernels.device.registry import open_device
from kernels.layouts import RecordLayout
from kernels.registry import choices
from kernels.weights import DenseWeight


@dataclass(frozen=True, slots=True)
class _Checkpoint:
    """What is known of a model before its weights are read."""

    reader: FtwReader
    family: ModelFamily
    spec: ModelSpec
    chat: ChatText


@dataclass(frozen=True, slots=True)
class _Opened:
    """A device, how the model will run on it, and how its memory is divided."""

    device: Device
    way: Way
    tools: Tools | None
    cost: ModelCost
    plan: LoadPlan
    policy: MissPolicy


class _Ingredients(NamedTuple):
    """What was read, and what was measured."""

    pool: ExpertPool
    rates: Rates | None
    weight: Callable[[str], DenseWeight]
    kernels: StepKernels | None


class _Built(NamedTuple):
    """A model that runs."""

    kv: KvPool
    experts: DeviceExperts | MoeExecutor
    runner: ModelRunner


def open_model(
    command: Load,
    settings: EngineSettings,
    watch: LoadWatch,
    open_reader: Callable[[Path], FtwReader] = FtwReader,
    open_tools: OpenTools | None = None,
) -> LoadedModel:
    """Load a model. Stages: "convert" and "verify" (built-in, first time), "read", "build".

    `open_reader` opens the folder; another one may bring experts from elsewhere than its files.
    `open_tools` says what the device offers for captured steps; the default asks the card.
    Raises: FileAccess, UnsupportedCheckpoint, CorruptCheckpoint, BudgetError (before reading),
        InvalidRequest (device, chunk size), DeviceError, Cancelled. Everything is freed then.
    """
    start_s = time.monotonic()
    device_name = _one_device(command.devices)
    folder = locate_model(command.model, settings.home, watch.progress, watch.cancelled)
    checkpoint = _read_facts(open_reader(folder))
    set_threads(checkpoint.reader.layout, settings.threads)
    try:
        with memory_refusals(), ExitStack() as stack:
            tools = open_tools or card_tools
            opened = _open_device(checkpoint, device_name, settings, command, tools)
            device, plan = opened.device, opened.plan
            stack.callback(device.close)
            kernels = _compile_first(opened, stack)
            pool = _fill_pool(checkpoint.reader, device, watch, stack)
            rates, notices = measured_rates(checkpoint.reader, device, settings)
            notices += [("memory_nodes", pool.placement)] if pool.placement else []
            weight = read_weights(checkpoint.reader, watch)
            given = _Ingredients(pool, rates, weight, kernels)
            build = partial(_build, checkpoint, opened, given, settings)
            built, was_unpinned = build_or_unpin(build, pool, device, stack)
            if was_unpinned or not device.emulated:
                notices += pin_notices(pool, isinstance(built.experts, DeviceExperts))
            return LoadedModel(
                info=_info(checkpoint, opened.cost, command, folder, time.monotonic() - start_s),
                device=_device_info(device, plan),
                budget=plan.budget,
                chat=checkpoint.chat,
                runner=built.runner,
                pages=PageAllocator(plan.division.kv_tokens // PAGE_TOKENS),
                kv=built.kv,
                experts=built.experts,
                policy=command.policy,
                free_bytes=device.free_bytes,
                kernels=_kernels(checkpoint, opened),
                notices=tuple(notices),
                memory_errors=MEMORY_ERRORS,
                lost_errors=LOST_ERRORS,
                close=stack.pop_all().close,  # last: until here a failure frees everything
            )
    except MEMORY_ERRORS as problem:
        raise BudgetError(
            f"Memory was refused while loading: {problem}.", "Close other programs."
        ) from problem
    except LOST_ERRORS as problem:
        raise DeviceError(f"The device was lost while loading: {problem}.") from problem


def set_threads(layout: RecordLayout, asked: int) -> None:
    """Spread operations over `asked` threads; 0 = as many as experts of this size keep busy."""
    values = 3 * layout.hidden * layout.intermediate
    torch.set_num_threads(asked or choose_threads(values, usable_cores()))


def _one_device(names: tuple[str, ...]) -> str:
    if len(names) != 1:
        raise InvalidRequest(
            f"{len(names)} devices were named; this version runs on exactly one.",
            "Choose one device.",
        )
    return names[0]


def _read_facts(reader: FtwReader) -> _Checkpoint:
    family = get_family(reader.model_type)
    spec = family.read_config(reader.config)
    return _Checkpoint(reader, family, spec, ChatText.from_folder(reader.folder))


def _open_device(
    checkpoint: _Checkpoint,
    name: str,
    settings: EngineSettings,
    command: Load,
    open_tools: OpenTools,
) -> _Opened:
    """Divide the device, then open it with the emulated total if it has no memory of its own."""
    total, available = host_memory()
    emulated = not name.startswith("cuda")
    device = None if emulated else _open(name, None)
    try:
        tools, obstacle = open_tools(device, settings)
        way = choose_way(
            checkpoint.reader, checkpoint.family, checkpoint.spec, obstacle, settings.max_rows
        )
        room = Room(
            emulated=emulated,
            device_total_bytes=device.total_bytes() if device else 0,
            device_free_bytes=device.free_bytes() if device else 0,
            host_total_bytes=total,
            host_available_bytes=available,
            asked_bytes=settings.device_bytes,
        )
        cost, plan = _plan(checkpoint, way, room, command, settings)
    except BaseException:
        if device is not None:
            device.close()
        raise
    device = device or _open(name, plan.budget.total_bytes)
    return _Opened(device, way, tools, cost, plan, command.policy)


def _plan(
    checkpoint: _Checkpoint, way: Way, room: Room, command: Load, settings: EngineSettings
) -> tuple[ModelCost, LoadPlan]:
    """Choose the length of a prompt's chunks, and divide the device."""
    asked, spec = command.budget or Budget(), checkpoint.spec
    device_bytes = min(room.device_total_bytes, asked.total_bytes or room.device_total_bytes)
    is_captured = way.captured is not None
    chunk = decide_chunk(command.chunk_tokens, spec, is_captured, device_bytes)
    cost = _cost(checkpoint, way, chunk)
    if is_captured and staged_records(cost, spec, room, asked) < cost.num_experts:
        cost = _cost(checkpoint, way, chunk.passing_parts())
    return cost, plan_load(cost, spec, room, asked, settings.max_rows)


def _cost(checkpoint: _Checkpoint, way: Way, chunk: PromptChunk) -> ModelCost:
    reader, spec = checkpoint.reader, checkpoint.spec
    token = kv_bytes_per_token(spec.num_layers, spec.num_kv_heads, spec.head_dim, way.dtype)
    if way.captured:  # a chunk's attention reads a copy of one layer's
        token += token // spec.num_layers
    return ModelCost(
        dense_values=reader.dense_values,
        record_bytes=reader.record_bytes,
        num_records=reader.num_records,
        num_experts=reader.num_experts,
        chunk_tokens=chunk.tokens,
        kv_token_bytes=token,
        dense_bytes=way.dense_bytes,
        scratch_bytes=way.scratch_bytes
        + (prompt_scratch_bytes(way.captured, chunk.tokens) if way.captured else 0),
        tile_tokens=chunk.tile_tokens,
    )


def _open(name: str, budget_bytes: int | None) -> Device:
    try:
        return open_device(name, budget_bytes)
    except DeviceLostError as problem:  # another name is the caller's mistake
        kind = DeviceError if name.startswith("cuda") else InvalidRequest
        raise kind(str(problem), "Choose another device.") from problem


def _fill_pool(reader: FtwReader, device: Device, watch: LoadWatch, stack: ExitStack) -> ExpertPool:
    piece = layer_bytes(reader.layout, reader.num_experts)
    buffer = device.host_buffer(reader.pool_bytes, piece)
    stack.callback(buffer.close)
    pool = ExpertPool(reader.layout, reader.num_moe_layers, reader.num_experts, buffer)
    reader.read_pool(
        pool.storage, lambda done, total: watch.progress("read", done, total), watch.cancelled
    )
    return pool


def _make_kv(spec: ModelSpec, opened: _Opened) -> KvPool:
    plan = opened.plan
    return KvPool(
        spec.num_layers,
        spec.num_kv_heads,
        spec.head_dim,
        opened.way.dtype,
        opened.device,
        plan.budget.bounds().max_kv_tokens // PAGE_TOKENS,
        plan.division.kv_tokens // PAGE_TOKENS,
    )


def _build(
    checkpoint: _Checkpoint,
    opened: _Opened,
    given: _Ingredients,
    settings: EngineSettings,
    stack: ExitStack,
) -> _Built:
    """Build KV, experts, model and runner, by captured steps or layer by layer."""
    device, way, spec = opened.device, opened.way, checkpoint.spec
    kv = _make_kv(spec, opened)
    stack.callback(kv.close)
    experts: DeviceExperts | MoeExecutor
    program, weight = None, given.weight
    if way.captured and opened.tools and given.kernels:
        weight = on_device(weight, device)
        request = CapturedRequest(
            plan=way.captured,
            spec=spec,
            pool=given.pool,
            kv=kv,
            device=device,
            tools=opened.tools,
            kernels=given.kernels,
            num_slots=opened.plan.division.expert_slots,
            staging_records=opened.plan.staging_records,
            policy=opened.policy,
            rates=given.rates,
            num_threads=settings.threads,
        )
        experts, program = build_captured(request, checkpoint.family, weight, stack)
    else:
        experts = _make_experts(given, opened, stack)
    parts = Parts(device.torch_device, way.dtype, kv, experts, opened.cost.tile_tokens)
    model = checkpoint.family.build(spec, weight, parts)
    runner = ModelRunner(model, kv, device, settings.max_rows, program)
    stack.callback(runner.close)  # first: what it holds must be gone when the device is closed
    if isinstance(experts, DeviceExperts) and not device.emulated:
        rehearse(runner, experts, spec.router.top_k)
    return _Built(kv, experts, runner)


def _compile_first(opened: _Opened, stack: ExitStack) -> StepKernels | None:
    """Let the compiler begin, so that it is done when the model has been read."""
    if opened.way.captured is None or opened.tools is None:
        return None
    kernels = StepKernels(opened.tools, opened.way.captured.for_rows)
    stack.callback(kernels.close)
    kernels.begin()
    return kernels


def _make_experts(given: _Ingredients, opened: _Opened, stack: ExitStack) -> MoeExecutor:
    """Build the experts of a model whose layers run one by one."""
    plan, device, pool = opened.plan, opened.device, given.pool
    cache = ExpertCache(pool, device, plan.division.expert_slots, plan.budget.bounds().max_slots)
    stack.callback(cache.close)
    options = MoeOptions(staging_records=plan.staging_records, dtype=opened.way.dtype)
    experts = MoeExecutor(pool, cache, opened.policy, given.rates, device, options)
    stack.callback(experts.close)
    return experts


def _kernels(checkpoint: _Checkpoint, opened: _Opened) -> dict[str, str]:
    """Return which implementation runs each operation, and why."""
    encoding = checkpoint.reader.layout.encoding
    found = {one.op: f"{one.name}: {one.reason}" for one in choices(opened.device.name, encoding)}
    if opened.way.captured is not None:
        found["decode"] = "captured: one graph a step, experts on card and CPU at once"
    elif not opened.device.emulated:
        found["decode"] = f"layer by layer: {opened.way.reason}"
    return found


def _device_info(device: Device, plan: LoadPlan) -> DeviceInfo:
    total = plan.budget.total_bytes
    return DeviceInfo(
        name=device.name,
        title=device.title,
        total_bytes=total if device.emulated else device.total_bytes(),
        free_bytes=plan.budget.free_bytes(plan.division),
        emulated=device.emulated,
    )


def _info(
    checkpoint: _Checkpoint, cost: ModelCost, command: Load, folder: Path, load_s: float
) -> ModelInfo:
    reader, spec = checkpoint.reader, checkpoint.spec
    params, active = total_params(cost, spec)
    return ModelInfo(
        path=str(folder),
        name=reader.name,
        model_type=reader.model_type,
        quant=reader.quant,
        num_layers=spec.num_layers,
        num_moe_layers=reader.num_moe_layers,
        num_experts=reader.num_experts,
        top_k=spec.router.top_k,
        hidden_size=spec.hidden,
        context_tokens=spec.max_context,
        record_bytes=reader.record_bytes,
        num_records=reader.num_records,
        pool_bytes=reader.pool_bytes,
        total_params=params,
        active_params=active,
        chunk_tokens=cost.chunk_tokens,
        sampling=checkpoint.chat.sampling,
        devices=command.devices,
        load_s=load_s,
    )
