"""Job: measure this machine's rates for an expert format: fills, the CPU kernel, both at once.

Spec: {"mode": "quick"|"full", "model": path or null, "device": "cpu", "output": path, "id": str,
"threads": int}.
`output` is a folder, or a file if it ends in .json; default: the data root's profiles. Without a
model a typical expert of each format is measured. Points arrive as they are measured. On a
CPU-only machine the fill is a copy from memory to memory, and the result says so.
Result: path, paths, device, format, record_bytes, threads, emulated, note, fill_gbps, cpu_gbps,
joint_fill_gbps, joint_cpu_gbps (of the first format), formats (all).
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch

from engine.checkpoint.ftw import FtwReader
from engine.jobs.measure import GB, Effort, Links
from engine.loader.locate import locate_model
from engine.loader.open import set_threads
from engine.loader.rates import profile_key
from engine.memory.bandwidth import BandwidthProfile, CurvePoint, profile_path, write_profile
from engine.memory.budget import check_host
from engine.protocol.errors import BudgetError, Cancelled, InvalidRequest
from engine.protocol.messages import Event, ProfilePoint, Progress
from engine.protocol.places import DataRoot, data_root
from engine.quant.registry import FORMATS, get_format
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
NOTE_EMULATED = (
    "This machine has no GPU: the fill is a copy from main memory to main memory, not over PCIe."
)
Link = Literal["fill", "cpu", "joint_fill", "joint_cpu"]


@dataclass(frozen=True, slots=True)
class _TypicalExpert:
    """Sizes of what is measured where no model is named; `quant_group` 0 = the format's own."""

    hidden: int = 1024
    moe_intermediate: int = 512
    quant_group: int = 0


@dataclass(frozen=True, slots=True)
class _Wishes:
    """The job's spec, checked."""

    job_id: str
    effort: Effort
    device: str
    home: DataRoot
    model: str
    output: Path
    threads: int


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


@dataclass(slots=True)
class _Curve:
    """Points of one format as they are measured, told at once."""

    job_id: str
    layout: RecordLayout
    emit: Callable[[Event], None]
    check: Callable[[], None]
    steps: int
    done: int = 0
    points: list[CurvePoint] = field(default_factory=list)

    def step(self, detail: str) -> None:
        """Begin a step."""
        self.check()
        self.emit(
            Progress(
                id=self.job_id,
                stage="measure",
                done_bytes=self.done,
                total_bytes=self.steps,
                detail=f"{self.layout.encoding}: {detail}",
            )
        )
        self.done += 1

    def add(self, link: Link, size_bytes: int, rate: float) -> float:
        """Tell one point, in bytes/s; returns it."""
        gbps, threads = rate / GB, torch.get_num_threads()
        self.points.append(CurvePoint(link=link, size_bytes=size_bytes, gbps=gbps))
        self.emit(ProfilePoint(link=link, size_bytes=size_bytes, gbps=gbps, threads=threads))
        return rate


def _measure(
    layout: RecordLayout,
    device: Device,
    wishes: _Wishes,
    check: Callable[[], None],
    emit: Callable[[Event], None],
) -> tuple[Path, BandwidthProfile]:
    """Measure one format and store its profile, with the threads that a load would take."""
    set_threads(layout, wishes.threads)
    sizes = sorted({*FILL_SIZES, layout.record_bytes})
    curve = _Curve(wishes.job_id, layout, emit, check, len(sizes) + len(BATCHES) + 1)
    links = Links(layout, device, wishes.effort, check)
    try:
        fills: dict[int, float] = {}
        for size in sizes:
            curve.step("copies")
            fills[size] = curve.add("fill", size, links.fill_rate(size))
        batches: list[float] = []
        for batch in BATCHES:
            curve.step("CPU kernel")
            rate = links.cpu_rate(batch)
            batches.append(curve.add("cpu", batch * layout.record_bytes, rate))
        curve.step("both at once")
        joint_fill, joint_cpu = links.joint_rates()
        curve.add("joint_fill", layout.record_bytes, joint_fill)
        curve.add("joint_cpu", layout.record_bytes, joint_cpu)
        curve.step("done")
    finally:
        links.close()
    profile = BandwidthProfile(
        key=profile_key(layout.encoding, layout.record_bytes, device),
        fill=fills[layout.record_bytes],
        cpu=max(batches),
        joint_fill=joint_fill,
        joint_cpu=joint_cpu,
        measured_at_s=time.time(),
        emulated=device.emulated,
        points=tuple(curve.points),
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
        threads=int(spec.get("threads") or 0),
    )


def _layouts(wishes: _Wishes, cancelled: Callable[[], bool]) -> tuple[RecordLayout, ...]:
    if not wishes.model:
        typical = tuple(get_format(name).layout(_TypicalExpert()) for name in FORMATS)
        return typical if wishes.output.suffix != ".json" else typical[:1]
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
