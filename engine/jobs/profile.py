"""Job: measure this machine's rates for an expert format: fills, the CPU kernel, both at once.

Spec: {"mode": "quick"|"full", "model": path or null, "device": "cpu", "output": path, "id": str}.
`output` is a folder, or a file if it ends in .json; default: the data root's profiles. Without a
model a typical expert of each format is measured. Points arrive as they are measured. On a
CPU-only machine the fill is a copy from memory to memory, and the result says so.
Result: path, paths, device, format, record_bytes, threads, emulated, note, fill_gbps, cpu_gbps,
joint_fill_gbps, joint_cpu_gbps (of the first format), formats (all).
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from engine.checkpoint.ftw import FtwReader
from engine.jobs.measure import GB, Effort, Links
from engine.loader.locate import locate_model
from engine.loader.open import profile_key
from engine.memory.bandwidth import BandwidthProfile, CurvePoint, profile_path, write_profile
from engine.memory.budget import check_host
from engine.protocol.errors import BudgetError, Cancelled, InvalidRequest
from engine.protocol.messages import Event, ProfilePoint, Progress
from engine.protocol.places import DataRoot, data_root
from engine.system import host_memory
from kernels.device.base import Device, DeviceLostError, DeviceMemoryError
from kernels.device.registry import open_device
from kernels.layouts import RecordLayout

KIB, MIB = 1024, 1024**2
EFFORTS = {
    "quick": Effort(rounds=3, round_s=0.08, pool_bytes=256 * MIB),
    "full": Effort(rounds=7, round_s=0.5, pool_bytes=1024 * MIB),
}
FILL_SIZES = tuple(64 * KIB * 4**step for step in range(6))  # 64 KiB .. 64 MiB
BATCHES = (1, 2, 4, 8)
TYPICAL = (
    RecordLayout(hidden=1024, intermediate=512, encoding="fp8_block", group=128),
    RecordLayout(hidden=1024, intermediate=512, encoding="bf16"),
)
NOTE_EMULATED = (
    "This machine has no GPU: the fill is a copy from main memory to main memory, not over PCIe."
)
Link = Literal["fill", "cpu", "joint_fill", "joint_cpu"]


@dataclass(frozen=True, slots=True)
class _Wishes:
    """The job's spec, checked."""

    job_id: str
    effort: Effort
    device: str
    home: DataRoot
    model: str
    output: Path


def run(
    spec: dict[str, Any], emit: Callable[[Event], None], cancelled: Callable[[], bool]
) -> dict[str, Any]:
    """Run the job; stage of its progress: "measure" (bytes count steps of equal weight).

    Raises: InvalidRequest (spec), BudgetError (no room to measure), Cancelled, FileAccess; what
        reading a model raises.
    """
    wishes = _read(spec)

    def check() -> None:
        if cancelled():
            raise Cancelled("The measurement was cancelled.")

    layouts = _layouts(wishes, cancelled)
    total, available = host_memory()
    check_host(2 * wishes.effort.pool_bytes, available, total)
    device = _open(wishes)
    try:
        made = [_measure(layout, device, wishes, check, emit) for layout in layouts]
    except DeviceMemoryError as problem:
        raise BudgetError(f"No room to measure: {problem}.", "Unload the model first.") from problem
    finally:
        device.close()
    return _result(made)


def _measure(
    layout: RecordLayout,
    device: Device,
    wishes: _Wishes,
    check: Callable[[], None],
    emit: Callable[[Event], None],
) -> tuple[Path, BandwidthProfile]:
    """Measure one format and store its profile."""
    links = Links(layout, device, wishes.effort, check)
    points: list[CurvePoint] = []
    threads = torch.get_num_threads()
    sizes = sorted({*FILL_SIZES, layout.record_bytes})
    steps = len(sizes) + len(BATCHES) + 1

    def tell(link: Link, size_bytes: int, rate: float) -> None:
        points.append(CurvePoint(link=link, size_bytes=size_bytes, gbps=rate / GB))
        emit(ProfilePoint(link=link, size_bytes=size_bytes, gbps=rate / GB, threads=threads))

    def step(done: int, detail: str) -> None:
        check()
        emit(
            Progress(
                id=wishes.job_id,
                stage="measure",
                done_bytes=done,
                total_bytes=steps,
                detail=f"{layout.encoding}: {detail}",
            )
        )

    try:
        fills: dict[int, float] = {}
        for done, size in enumerate(sizes):
            step(done, "copies")
            fills[size] = links.fill_rate(size)
            tell("fill", size, fills[size])
        batches: dict[int, float] = {}
        for done, batch in enumerate(BATCHES, start=len(sizes)):
            step(done, "CPU kernel")
            batches[batch] = links.cpu_rate(batch)
            tell("cpu", batch * layout.record_bytes, batches[batch])
        step(steps - 1, "both at once")
        joint_fill, joint_cpu = links.joint_rates()
        tell("joint_fill", layout.record_bytes, joint_fill)
        tell("joint_cpu", layout.record_bytes, joint_cpu)
        step(steps, "done")
    finally:
        links.close()
    profile = BandwidthProfile(
        key=profile_key(layout.encoding, layout.record_bytes, device),
        fill=fills[layout.record_bytes],
        cpu=max(batches.values()),
        joint_fill=joint_fill,
        joint_cpu=joint_cpu,
        measured_at_s=time.time(),
        emulated=device.emulated,
        points=tuple(points),
    )
    path = wishes.output
    if path.suffix != ".json":
        path = profile_path(path, device.title, layout.encoding)
    write_profile(path, profile)
    return path, profile


def _read(spec: dict[str, Any]) -> _Wishes:
    mode = str(spec.get("mode") or "quick")
    if mode not in EFFORTS:
        raise InvalidRequest(f"The job's 'mode' is {mode!r}; it must be quick or full.")
    home = data_root(str(spec.get("home") or "") or None)
    output = str(spec.get("output") or "")
    return _Wishes(
        job_id=str(spec.get("id", "")),
        effort=EFFORTS[mode],
        device=str(spec.get("device") or "cpu"),
        home=home,
        model=str(spec.get("model") or ""),
        output=Path(output) if output else home.profiles,
    )


def _layouts(wishes: _Wishes, cancelled: Callable[[], bool]) -> tuple[RecordLayout, ...]:
    if not wishes.model:
        return TYPICAL if wishes.output.suffix != ".json" else TYPICAL[:1]
    folder = locate_model(wishes.model, wishes.home, lambda *_: None, cancelled)
    return (FtwReader(folder).layout,)


def _open(wishes: _Wishes) -> Device:
    try:
        return open_device(wishes.device, 2 * wishes.effort.pool_bytes)
    except DeviceLostError as problem:
        raise InvalidRequest(str(problem), "Choose another device.") from problem


def _result(made: list[tuple[Path, BandwidthProfile]]) -> dict[str, Any]:
    path, first = made[0]
    return {
        "path": str(path),
        "paths": [str(one) for one, _ in made],
        "device": first.key.device,
        "threads": first.key.threads,
        "emulated": first.emulated,
        "note": NOTE_EMULATED if first.emulated else "",
        **_figures(first),
        "formats": [_figures(profile) for _, profile in made],
    }


def _figures(profile: BandwidthProfile) -> dict[str, Any]:
    return {
        "format": profile.key.format,
        "record_bytes": profile.key.record_bytes,
        "fill_gbps": profile.fill / GB,
        "cpu_gbps": profile.cpu / GB,
        "joint_fill_gbps": profile.joint_fill / GB,
        "joint_cpu_gbps": profile.joint_cpu / GB,
    }
