"""Checkpoint + family + format + budget + pools + runner -> a loaded engine.

The one long import list. Nothing is read before budget and main memory were checked, and a failure
or a cancel at any point frees everything. Called by `engine.service`, on its thread.
"""

import math
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import torch

from engine.cache.kv import KvPool, kv_bytes_per_token
from engine.cache.pages import PageAllocator
from engine.checkpoint.ftw import FtwReader
from engine.loader.locate import locate_model
from engine.loader.parts import LoadedModel, LoadWatch
from engine.loader.plan import (
    LoadPlan,
    ModelCost,
    Room,
    choose_threads,
    plan_load,
    total_params,
)
from engine.memory.bandwidth import ProfileKey, Rates, profile_path, read_profile, stale_reason
from engine.memory.budget import PAGE_TOKENS
from engine.models.base import ModelFamily, Parts
from engine.models.registry import get_family
from engine.models.spec import ModelSpec
from engine.moe.cache import ExpertCache
from engine.moe.executor import MoeExecutor, MoeOptions
from engine.moe.pool import ExpertPool
from engine.protocol.errors import BudgetError, Cancelled, InvalidRequest
from engine.protocol.messages import Budget, DeviceInfo, Load, ModelInfo
from engine.runner.model_runner import ModelRunner
from engine.settings import ENGINE_VERSION, EngineSettings
from engine.system import cpu_title, host_memory, usable_cores
from engine.text.chat import ChatText
from kernels.device.base import LOST_ERRORS, Device, DeviceLostError, DeviceMemoryError
from kernels.device.registry import open_device
from kernels.layouts import RecordLayout
from kernels.registry import choices

CHUNK_TOKENS = 256
MAX_CHUNK_TOKENS = 8192
DTYPE = torch.float32  # of activations and KV: decision of the foundation


@dataclass(frozen=True, slots=True)
class _Checkpoint:
    """What is known of a model before its weights are read."""

    reader: FtwReader
    family: ModelFamily
    spec: ModelSpec
    chat: ChatText
    cost: ModelCost


def open_model(command: Load, settings: EngineSettings, watch: LoadWatch) -> LoadedModel:
    """Load a model. Stages: "convert" and "verify" (built-in, first time), "read", "build".

    Raises: FileAccess, UnsupportedCheckpoint, CorruptCheckpoint, BudgetError (before reading),
        InvalidRequest (device, chunk size), Cancelled. Everything is freed then.
    """
    start_s = time.monotonic()
    device_name = _one_device(command.devices)
    folder = locate_model(command.model, settings.home, watch.progress, watch.cancelled)
    checkpoint = _read_facts(folder, _chunk_tokens(command.chunk_tokens))
    set_threads(checkpoint.reader.layout, settings.threads)
    try:
        with ExitStack() as stack:
            device, plan = _plan(checkpoint, device_name, settings, command.budget)
            stack.callback(device.close)
            pool = _fill_pool(checkpoint.reader, device, watch, stack)
            rates, notices = _rates(checkpoint, device, settings)
            if pool.pin_problem and not device.emulated:
                notices.append(("not_pinned", pool.pin_problem))
            kv = _make_kv(checkpoint.spec, device, plan)
            stack.callback(kv.close)
            cache = ExpertCache(
                pool, device, plan.division.expert_slots, plan.budget.bounds().max_slots
            )
            stack.callback(cache.close)
            options = MoeOptions(staging_records=plan.staging_records, dtype=DTYPE)
            experts = MoeExecutor(pool, cache, command.policy, rates, device, options)
            stack.callback(experts.close)
            parts = Parts(device=device.torch_device, dtype=DTYPE, kv=kv, experts=experts)
            model = checkpoint.family.build(
                checkpoint.spec, _weights(checkpoint.reader, watch), parts
            )
            runner = ModelRunner(model, kv, device, settings.max_rows)
            return LoadedModel(
                info=_info(checkpoint, command, folder, time.monotonic() - start_s),
                device=_device_info(device, plan),
                budget=plan.budget,
                chat=checkpoint.chat,
                runner=runner,
                pages=PageAllocator(plan.division.kv_tokens // PAGE_TOKENS),
                kv=kv,
                experts=experts,
                policy=command.policy,
                free_bytes=device.free_bytes,
                kernels={
                    choice.op: f"{choice.name}: {choice.reason}"
                    for choice in choices(device.name, checkpoint.reader.layout.encoding)
                },
                notices=tuple(notices),
                memory_errors=(DeviceMemoryError, torch.OutOfMemoryError),
                lost_errors=LOST_ERRORS,
                close=stack.pop_all().close,  # last: until here a failure frees everything
            )
    except (DeviceMemoryError, torch.OutOfMemoryError) as problem:
        raise BudgetError(
            f"Memory was refused while loading: {problem}.", "Close other programs."
        ) from problem


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


def _chunk_tokens(asked: int) -> int:
    if not 0 <= asked <= MAX_CHUNK_TOKENS:
        raise InvalidRequest(
            f"chunk_tokens is {asked}; it must lie between 1 and {MAX_CHUNK_TOKENS}, or be 0."
        )
    return asked or CHUNK_TOKENS


def _read_facts(folder: Path, chunk_tokens: int) -> _Checkpoint:
    reader = FtwReader(folder)
    family = get_family(reader.model_type)
    spec = family.read_config(reader.config)
    dense = sum(math.prod(one.shape) for one in reader.index.tensors if one.role == "dense")
    cost = ModelCost(
        dense_values=dense,
        record_bytes=reader.record_bytes,
        num_records=reader.num_records,
        num_experts=reader.num_experts,
        chunk_tokens=chunk_tokens,
        kv_token_bytes=kv_bytes_per_token(spec.num_layers, spec.num_kv_heads, spec.head_dim, DTYPE),
    )
    return _Checkpoint(reader, family, spec, ChatText.from_folder(folder), cost)


def _plan(
    checkpoint: _Checkpoint, name: str, settings: EngineSettings, asked: Budget | None
) -> tuple[Device, LoadPlan]:
    """Divide the device, then open it with the emulated total if it has no memory of its own."""
    total, available = host_memory()
    emulated = not name.startswith("cuda")
    device = None if emulated else _open(name, None)
    room = Room(
        emulated=emulated,
        device_total_bytes=device.total_bytes() if device else 0,
        device_free_bytes=device.free_bytes() if device else 0,
        host_total_bytes=total,
        host_available_bytes=available,
        asked_bytes=settings.device_bytes,
    )
    try:
        plan = plan_load(
            checkpoint.cost, checkpoint.spec, room, asked or Budget(), settings.max_rows
        )
    except BaseException:
        if device is not None:
            device.close()
        raise
    return device or _open(name, plan.budget.total_bytes), plan


def _open(name: str, budget_bytes: int | None) -> Device:
    try:
        return open_device(name, budget_bytes)
    except DeviceLostError as problem:  # at a load this is a wrong name, not a lost card
        raise InvalidRequest(str(problem), "Choose another device.") from problem


def _fill_pool(reader: FtwReader, device: Device, watch: LoadWatch, stack: ExitStack) -> ExpertPool:
    buffer = device.host_buffer(reader.pool_bytes)
    stack.callback(buffer.close)
    pool = ExpertPool(reader.layout, reader.num_moe_layers, reader.num_experts, buffer)
    reader.read_pool(
        pool.storage, lambda done, total: watch.progress("read", done, total), watch.cancelled
    )
    return pool


def _make_kv(spec: ModelSpec, device: Device, plan: LoadPlan) -> KvPool:
    return KvPool(
        spec.num_layers,
        spec.num_kv_heads,
        spec.head_dim,
        DTYPE,
        device,
        plan.budget.bounds().max_kv_tokens // PAGE_TOKENS,
        plan.division.kv_tokens // PAGE_TOKENS,
    )


def _weights(reader: FtwReader, watch: LoadWatch) -> Callable[[str], torch.Tensor]:
    """Return the family's way to dense weights: cancellable, and telling how far it is."""
    done = 0

    def weight(name: str) -> torch.Tensor:
        nonlocal done
        if watch.cancelled():
            raise Cancelled("Loading was cancelled.")
        tensor = reader.weight(name)
        done += tensor.numel()
        watch.progress("build", min(done, total), total)
        return tensor

    total = sum(math.prod(one.shape) for one in reader.index.tensors if one.role == "dense")
    return weight


def _rates(
    checkpoint: _Checkpoint, device: Device, settings: EngineSettings
) -> tuple[Rates | None, list[tuple[str, str]]]:
    """Return the measured rates, and a notice if they are stale. No measurement = no rates."""
    key = profile_key(checkpoint.reader.layout.encoding, checkpoint.cost.record_bytes, device)
    path = profile_path(settings.home.profiles, device.title, key.format)
    profile = read_profile(path)
    if profile is None:
        return None, []
    reason = stale_reason(profile, key, time.time())
    if reason:
        return profile.rates, [("profile_stale", f"{reason} Measure again on the Profiler page.")]
    return profile.rates, []


def profile_key(expert_format: str, record_bytes: int, device: Device) -> ProfileKey:
    """Return what a measurement of this process on this device is true for."""
    return ProfileKey(
        device=device.title,
        cpu=cpu_title(),
        format=expert_format,
        record_bytes=record_bytes,
        threads=torch.get_num_threads(),
        engine_version=ENGINE_VERSION,
    )


def _device_info(device: Device, plan: LoadPlan) -> DeviceInfo:
    total = plan.budget.total_bytes
    return DeviceInfo(
        name=device.name,
        title=device.title,
        total_bytes=total if device.emulated else device.total_bytes(),
        free_bytes=plan.budget.free_bytes(plan.division),
        emulated=device.emulated,
    )


def _info(checkpoint: _Checkpoint, command: Load, folder: Path, load_s: float) -> ModelInfo:
    reader, spec = checkpoint.reader, checkpoint.spec
    params, active = total_params(checkpoint.cost, spec)
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
        chunk_tokens=checkpoint.cost.chunk_tokens,
        sampling=checkpoint.chat.sampling,
        devices=command.devices,
        load_s=load_s,
    )
