"""How fast a prompt passes the experts of every layer on a GPU, against what link and card allow.

    python -m tests.perf.gpu_prefill [--layers 24] [--tokens 512 4096 16384 32768]
                                     [--resident 0.125 0.25 0.5 1.0] [--fp8] [--sweep] [--json FILE]

The expert stack alone, without attention: synthetic records in pinned memory, uniform routes.
`link` is the time of the missing bytes at the rate that one large copy reaches here, `compute` that
of the same chunk with everything resident; the limit is the larger one.
"""

import argparse
import json
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path

import torch

from engine.moe.device_prefill import DevicePrefill, PrefillOptions
from engine.moe.pool import ExpertPool, pool_bytes
from engine.moe.router import Routing, kept
from kernels.device.base import Device
from kernels.device.registry import open_device
from kernels.grouped import RecordTable, grouped_kernel
from kernels.layouts import BYTE_ENCODINGS, RecordLayout
from kernels.triton.grouped import TritonGrouped, TritonTask
from kernels.triton.tiles import Tile

HIDDEN, INTERMEDIATE, EXPERTS, TOP_K = 2048, 768, 128, 8  # Qwen3-30B-A3B
ROUNDS = 3
PROBE_BYTES = 1 << 30


@dataclass(frozen=True)
class Row:
    """One measured case; seconds are medians."""

    tokens: int
    resident: float
    seconds: float
    link_s: float
    compute_s: float

    @property
    def limit_s(self) -> float:
        return max(self.link_s, self.compute_s)


class StaticSlots:
    """A residency that never changes: the first records of every layer."""

    def __init__(self, pool: ExpertPool, share: float, device: Device) -> None:
        self._each = round(share * pool.num_experts)
        self._bytes = pool.layout.record_bytes
        size = (pool.num_layers, self._each, self._bytes)
        self._memory = torch.empty(size, dtype=torch.uint8, device=device.torch_device)
        generator = torch.Generator().manual_seed(1)
        self._experts = [
            sorted(torch.randperm(pool.num_experts, generator=generator)[: self._each].tolist())
            for _ in range(pool.num_layers)
        ]
        for layer, experts in enumerate(self._experts):
            for place, expert in enumerate(experts):
                self._memory[layer, place].copy_(pool.record(layer * pool.num_experts + expert))

    def resident(self, moe_layer: int) -> Mapping[int, int]:
        first = moe_layer * self._each
        return {expert: first + i for i, expert in enumerate(self._experts[moe_layer])}

    def slot_address(self, slot: int) -> int:
        return self._memory.data_ptr() + slot * self._bytes

    def slot(self, slot: int) -> torch.Tensor:
        return self._memory.view(-1, self._bytes)[slot]

    def admit(self, records: Sequence[int], hotness: Sequence[float]) -> Mapping[int, int]:
        return {}


def make_pool(device: Device, layers: int, fp8: bool) -> ExpertPool:
    """Fill a pinned pool: one layer of random bytes of sane size, repeated."""
    encoding = BYTE_ENCODINGS[int(fp8)]
    layout = RecordLayout(HIDDEN, INTERMEDIATE, encoding, 128 if fp8 else 0)
    buffer = device.host_buffer(pool_bytes(layout, layers, EXPERTS))
    if not buffer.pinned:
        print(f"not pinned: {buffer.reason}")
    pool = ExpertPool(layout, layers, EXPERTS, buffer)
    body = layout.num_units * layout.unit_bytes
    sample = torch.zeros(8, layout.record_bytes, dtype=torch.uint8)
    units = sample[:, :body].view(8, layout.num_units, layout.unit_bytes)
    values = torch.randn(8, layout.num_units, 3 * 16 * HIDDEN) * 0.02
    if fp8:
        scaled = (values * 1000).to(layout.value_dtype)
        units[..., layout.unit_value_bytes :][..., : layout.unit_scale_bytes].copy_(
            torch.full((8, layout.num_units, layout.unit_scale_bytes // 4), 1e-3).view(torch.uint8)
        )
    else:
        scaled = values.to(layout.value_dtype)
    units[..., : layout.unit_value_bytes].copy_(scaled.view(torch.uint8))
    for record in range(pool.num_records):
        pool.record(record).copy_(sample[record % 8])
    return pool


def routes(tokens: int, device: Device) -> Routing:
    """Uniform routes, one for every layer alike."""
    generator = torch.Generator(device.torch_device).manual_seed(tokens)
    scores = torch.rand(tokens, EXPERTS, generator=generator, device=device.torch_device)
    ids = scores.topk(TOP_K).indices.to(torch.int32)
    return Routing(ids, torch.full(ids.shape, 1 / TOP_K, device=device.torch_device))


def link_rate(device: Device, pool: ExpertPool) -> float:
    """Return bytes/s of one large copy."""
    flat = pool.storage.view(-1)
    target = torch.empty(min(PROBE_BYTES, flat.numel()), dtype=torch.uint8)
    target = target.to(device.torch_device)
    seconds = []
    for _ in range(ROUNDS):
        event = device.copy(target, flat[: target.numel()])
        event.synchronize()
        seconds.append(event.seconds())
    return target.numel() / min(seconds)


def timed(device: Device, prefill: DevicePrefill, tokens: int, layers: int) -> float:
    """Return the median seconds of one chunk through all layers."""
    hidden = torch.randn(tokens, HIDDEN, device=device.torch_device).to(torch.bfloat16)
    out = torch.zeros(tokens, HIDDEN, device=device.torch_device)
    routing, seconds = routes(tokens, device), []
    for _ in range(ROUNDS + 1):
        device.synchronize()
        begin = time.perf_counter()
        prefill.start(tokens, TOP_K)
        for layer in range(layers):
            prefill.add(layer, kept(hidden), routing, out)
        device.synchronize()
        seconds.append(time.perf_counter() - begin)
    return statistics.median(seconds[1:])


def measure(device: Device, pool: ExpertPool, tokens: list[int], shares: list[float]) -> list[Row]:
    """Measure every case; full residency first, because it is everybody's compute."""
    rate, rows = link_rate(device, pool), []
    print(f"link {rate / 1e9:.1f} GB/s, pool {pool.storage.numel() / 1e9:.1f} GB")
    kernel = grouped_kernel(pool.layout, device.torch_device)
    compute: dict[int, float] = {}
    for share in sorted({1.0, *shares}, reverse=True):
        slots = StaticSlots(pool, share, device)
        options = PrefillOptions(staging_records=2 if share == 1.0 else None)
        prefill = DevicePrefill(pool, slots, device, kernel, options)
        for count in tokens:
            before = prefill.num_bytes
            seconds = timed(device, prefill, count, pool.num_layers)
            crossed = (prefill.num_bytes - before) / (ROUNDS + 1)
            compute.setdefault(count, seconds)
            rows.append(Row(count, share, seconds, crossed / rate, compute[count]))
        prefill.close()
        del prefill, slots
    return rows


def show(rows: list[Row], layers: int) -> None:
    """Print a table: seconds, the limit and the fraction reached, and both rates."""
    print("tokens  resident  seconds   limit  time/limit  link busy  TFLOP/s")
    for row in sorted(rows, key=lambda row: (row.tokens, row.resident)):
        flops = row.tokens * TOP_K * 6 * HIDDEN * INTERMEDIATE * layers
        crossed = row.link_s / row.seconds
        print(
            f"{row.tokens:6} {row.resident:9.1%} {row.seconds:8.4f} {row.limit_s:7.4f}"
            f" {row.seconds / row.limit_s:10.2f} {crossed:10.1%} {flops / row.seconds / 1e12:8.0f}"
        )


def sweep(device: Device, pool: ExpertPool, tokens: list[int]) -> None:
    """Print the seconds of one layer for launch shapes beside the chosen one."""
    layout, group = pool.layout, pool.layout.group
    kernel = TritonGrouped(layout, device.torch_device, torch.bfloat16)
    memory = pool.layer(0).to(device.torch_device)
    ranks = torch.arange(EXPERTS, dtype=torch.int32, device=device.torch_device)
    addresses = memory.data_ptr() + torch.arange(EXPERTS) * layout.record_bytes
    table = RecordTable(ranks, addresses.to(device.torch_device), memory.__getitem__)
    for count in tokens:
        x = torch.randn(count, HIDDEN, device=device.torch_device).to(torch.bfloat16)
        routing, found = routes(count, device), []
        for tile in candidates(group):
            try:
                found.append((one_layer(device, kernel, x, routing, table, tile), tile))
            except Exception as problem:  # noqa: BLE001 - a shape that does not fit is no candidate
                print(f"  {tile}: {type(problem).__name__}")
        flops = count * TOP_K * 6 * HIDDEN * INTERMEDIATE
        for seconds, tile in sorted(found, key=lambda pair: pair[0])[:5]:
            print(f"{count:6} {seconds * 1e3:8.3f} ms {flops / seconds / 1e12:6.0f} TFLOP/s {tile}")


def candidates(group: int) -> list[Tile]:
    """Launch shapes worth a try."""
    shapes = product((16, 64, 128), (32, 64, 128), (64, 128, 256), (64, 128), (4, 8), (3, 4))
    return [
        Tile(rows, columns, down, depth, warps, stages, 1 if group and rows < 64 else stages)
        for rows, columns, down, depth, warps, stages in shapes
        if down in (columns, 2 * columns) and (rows >= 128 or warps == 4)
    ]


def one_layer(
    device: Device,
    kernel: TritonGrouped,
    x: torch.Tensor,
    routing: Routing,
    table: RecordTable,
    tile: Tile,
) -> float:
    """Return the best of some runs of one layer."""
    seconds = []
    for _ in range(2 * ROUNDS):
        task = TritonTask(kernel, x, routing.ids, table, tile)
        device.synchronize()
        begin = time.perf_counter()
        task.compute(0, EXPERTS)
        device.synchronize()
        seconds.append(time.perf_counter() - begin)
    return min(seconds)


def main() -> int:
    """Measure and print; `--json FILE` keeps the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, default=24)
    parser.add_argument("--tokens", type=int, nargs="+", default=[512, 4096, 16384, 32768])
    parser.add_argument("--resident", type=float, nargs="+", default=[0.125, 0.25, 0.5, 1.0])
    parser.add_argument("--fp8", action="store_true")
    parser.add_argument("--sweep", action="store_true", help="try launch shapes on one layer")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    device = open_device("cuda")
    pool = make_pool(device, 1 if options.sweep else options.layers, options.fp8)
    print(f"{device.title}, {pool.num_layers} layers, torch {torch.__version__}")
    if options.sweep:
        sweep(device, pool, options.tokens)
        return 0
    rows = measure(device, pool, options.tokens, options.resident)
    show(rows, options.layers)
    if options.json:
        options.json.write_text(json.dumps([asdict(row) for row in rows], indent=1))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
