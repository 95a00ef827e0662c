"""A small MoE model around the kernels: records, residency, mailbox, pool, and the truth in bits.

Runs on the emulator or on a card: what differs is the module and where memory lies.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pytest
import torch

from kernels.cpu import isa_tier
from kernels.cpu.experts import NativeExperts
from kernels.cpu.pool import CpuPool, PoolMemory, mail_bytes, reply_bytes
from kernels.cuda.compile import compile_source
from kernels.cuda.dense import KernelModule
from kernels.cuda.driver import Module, architecture
from kernels.cuda.experts import BoundLayer, MoeKernels, MoeLayerWeights, MoeMemory
from kernels.cuda.moe_state import MAX_ROUTES, MoePolicy, MoeScratch, MoeState
from kernels.cuda.shape import DecodeShape
from kernels.layouts import DenseEncoding, Encoding, RecordLayout
from kernels.reference.canonical import fma
from tests.kernels.emulator import EmulatedModule

needs_native = pytest.mark.skipif(
    isa_tier() is None, reason="needs the C++ module: dev.py bootstrap builds it"
)
CPU = torch.device("cpu")
EPS = 1e-6
PLAN_WORDS = ("jobs", "listed", "units", "limit", "link_first", "call", "fills", "unserved")
PLAN_HEAD_BYTES = 96
JOB = np.dtype(
    [
        ("record", "<i4"),
        ("slot", "<i4"),
        ("valid", "<i2"),
        ("rows", "u1"),
        ("base", "u1"),
        ("start", "<i4"),
    ]
)
MAIL_JOB = np.dtype([("record", "<i4"), ("first", "<i2"), ("rows", "u1"), ("base", "u1")])
MAIL_JOBS_AT = 64 + 16 * 8
MAIL_GUESS_AT = MAIL_JOBS_AT + 64 * 8


def small_shape(
    rows: int = 1,
    encoding: Encoding = "bf16",
    hidden: int = 256,
    units: int = 3,
    experts: int = 12,
    top_k: int = 3,
    layers: int = 3,
    max_slots: int = 36,
    group: int = 64,
    router: DenseEncoding = "bf16",
    normalise: bool = True,
) -> DecodeShape:
    """A model that the emulator runs quickly."""
    layout = RecordLayout(hidden, 16 * units, encoding, group if encoding == "fp8_block" else 0)
    return DecodeShape(
        rows=rows,
        layout=layout,
        num_experts=experts,
        top_k=top_k,
        num_layers=layers,
        num_heads=4,
        num_kv_heads=2,
        head_dim=64,
        vocab=512,
        projections="bf16",
        head="bf16",
        embedding="bf16",
        router=router,
        normalise=normalise,
        max_slots=max_slots,
    )


def raw_records(layout: RecordLayout, count: int, seed: int, pinned: bool = False) -> torch.Tensor:
    """Large pools, made quickly: random signs and mantissas over eight binades, scales near 1/256.

    Shapes: -> uint8 [count, record_bytes].
    """
    g = torch.Generator().manual_seed(seed)
    records = torch.empty(count, layout.record_bytes, dtype=torch.uint8, pin_memory=pinned)
    words = records.view(torch.int16)
    for record in words:
        record.random_(-(2**15), 2**15, generator=g)
    if not layout.group:
        words.bitwise_and_(0x83FF - (1 << 16)).bitwise_or_(0x3800)
        return records
    records.bitwise_and_(0xBF)  # exponents up to 7: no NaN, and sums of moderate size
    units = records[:, : layout.num_units * layout.unit_bytes].view(count, layout.num_units, -1)
    end = layout.unit_value_bytes + layout.unit_scale_bytes
    for record in units:
        scales = torch.rand(layout.num_units, layout.unit_scale_bytes // 4, generator=g) + 0.5
        record[:, layout.unit_value_bytes : end] = (scales / 256).view(torch.uint8)
    return records


def random_records(layout: RecordLayout, count: int, seed: int) -> torch.Tensor:
    """Records with weights over several binades, so that a wrong order of sums shows.

    Shapes: -> uint8 [count, record_bytes].
    """
    g = torch.Generator().manual_seed(seed)
    records = torch.zeros(count, layout.record_bytes, dtype=torch.uint8)
    for record in records:
        for unit in range(layout.num_units):
            at = unit * layout.unit_bytes
            body = record[at : at + layout.unit_value_bytes].view(layout.value_dtype)
            size = torch.ldexp(
                torch.randn(len(body), generator=g),
                torch.randint(-9, -3, (len(body),), generator=g),
            )
            if layout.group:
                size = size * 256
                scales = record[at + layout.unit_value_bytes :][: layout.unit_scale_bytes]
                wide = torch.rand(len(scales) // 4, generator=g) * 2**-8
                scales.view(torch.float32).copy_(wide)
            body.copy_(size.to(layout.value_dtype))
    return records


class Plan(NamedTuple):
    """The plan tensor in words."""

    words: dict[str, int]
    taken: int
    jobs: np.ndarray
    route_job: np.ndarray
    route_pair: np.ndarray
    route_weight: np.ndarray


def read_plan(scratch: MoeScratch, shape: DecodeShape) -> Plan:
    """Return what route_plan wrote."""
    raw = scratch.plan.cpu().numpy()
    words = dict(zip(PLAN_WORDS, raw[:32].view("<i4").tolist(), strict=True))
    behind = PLAN_HEAD_BYTES + MAX_ROUTES * JOB.itemsize
    jobs = raw[PLAN_HEAD_BYTES:behind].view(JOB)[: words["jobs"]]
    routes = shape.rows * shape.top_k
    tables = raw[behind:].reshape(3, -1)
    return Plan(
        words,
        int(raw[52:56].view("<u4")[0]),
        jobs,
        tables[0].view("<i4")[:routes],
        tables[1].view("<i4")[:routes],
        tables[2].view("<f4")[:routes],
    )


class Mailbox:
    """Zeroed, aligned memory of both directions, in host memory."""

    def __init__(self, hidden: int, pinned: bool = False) -> None:
        self.mail = torch.zeros(mail_bytes(hidden) + 64, dtype=torch.uint8, pin_memory=pinned)
        self.reply = torch.zeros(reply_bytes(hidden) + 64, dtype=torch.uint8, pin_memory=pinned)
        self.mail_at = -(-self.mail.data_ptr() // 64) * 64
        self.reply_at = -(-self.reply.data_ptr() // 64) * 64

    def words(self) -> tuple[int, int, int, int]:
        """Call, jobs, rows and limit of the mail."""
        at = self.mail_at - self.mail.data_ptr()
        return tuple(self.mail[at : at + 16].view(torch.int32).tolist())  # type: ignore[return-value]

    def jobs(self, count: int) -> np.ndarray:
        """The first jobs of the mail."""
        at = self.mail_at - self.mail.data_ptr() + MAIL_JOBS_AT
        return self.mail.numpy()[at : at + count * MAIL_JOB.itemsize].view(MAIL_JOB)

    def guess(self) -> tuple[int, list[tuple[int, int]]]:
        """The number of the guess at the next layer's list, and its (record, first unit)."""
        at = self.mail_at - self.mail.data_ptr() + MAIL_GUESS_AT
        words = self.mail.numpy()[at : at + 16 * 8].view("<u8").tolist()
        number = words[0] >> 48
        own = (word for word in words if number and word >> 48 == number)
        return number, [(word & 0xFFFFFFFF, word >> 32 & 0xFFFF) for word in own]

    def behind_the_guess(self) -> torch.Tensor:
        """What nobody writes to, up to the rows."""
        at = self.mail_at - self.mail.data_ptr()
        return self.mail[at + MAIL_GUESS_AT + 16 * 8 : at + 4096]

    def x(self, rows: int, hidden: int) -> torch.Tensor:
        """The rows of the mail."""
        at = self.mail_at - self.mail.data_ptr() + 4096
        return self.mail[at : at + rows * hidden * 4].view(torch.float32).view(rows, hidden)


@dataclass
class Outcome:
    """One layer: what the kernels gave, and what they must give."""

    output: torch.Tensor
    expected: torch.Tensor
    plan: Plan


class SmallModel:
    """Layers of experts behind routers that look at one value an expert, so x decides.

    All routers and norms are the same, unless layers have `own_routers`: there expert e of layer l
    looks at value e + l, and the other values are normed differently.
    """

    def __init__(
        self,
        shape: DecodeShape,
        policy: MoePolicy | None = None,
        num_slots: int = 9,
        workers: int = 2,
        host_threads: int = 1,
        defines: dict[str, int] | None = None,
        seed: int = 1,
        device: torch.device = CPU,
        own_routers: bool = False,
    ) -> None:
        self.shape = shape
        count = shape.num_layers * shape.num_experts
        on_card = device.type == "cuda"
        self.records = (
            raw_records(shape.layout, count, seed, pinned=True)
            if on_card
            else random_records(shape.layout, count, seed)
        )
        self.state = MoeState(shape, device, num_slots, policy or MoePolicy())
        self.scratch = MoeScratch(shape, device, shape.rows)
        size = (shape.max_slots, shape.layout.record_bytes)
        self.slots = torch.zeros(size, dtype=torch.uint8, device=device)
        self.box = Mailbox(shape.hidden, pinned=on_card)
        self.x = torch.zeros(shape.rows, shape.hidden, device=device)
        sizes = shape.defines() | (defines or {})
        module: KernelModule
        if on_card:
            module = Module(compile_source("moe.cu", sizes, architecture()))
        else:
            module = EmulatedModule("moe.cu", sizes, host_threads)
        self._module = module
        g = torch.Generator().manual_seed(seed + 1)
        dtype = torch.bfloat16 if shape.router == "bf16" else torch.float32
        self.routers, self.norms = [], []
        for layer in range(shape.num_layers):
            router = torch.zeros(shape.num_experts, shape.hidden)
            router[:, : shape.num_experts] = torch.eye(shape.num_experts).roll(layer, 1)
            norm = torch.rand(shape.hidden, generator=g) + 0.5
            norm[: shape.num_experts] = 1.0 + layer / 2
            self.routers.append(router.to(device, dtype))
            self.norms.append(norm.to(device))
        if not own_routers:
            self.routers, self.norms = (
                [same[0]] * shape.num_layers for same in (self.routers, self.norms)
            )
        self.router, self.norm = self.routers[0], self.norms[0]
        self._native = NativeExperts(shape.layout, CPU)
        self.use_workers(workers)

    def use_workers(self, workers: int) -> None:
        """Launch with so many link workers from now on."""
        memory = MoeMemory(self.x, self.slots.data_ptr(), self.box.mail_at, self.box.reply_at)
        self.kernels = MoeKernels(
            self.shape, self._module, self.state, self.scratch, memory, workers
        )
        self.layers = [self._bind(layer) for layer in range(self.shape.num_layers)]

    def _bind(self, layer: int) -> BoundLayer:
        here, following = self._weights(layer), None
        if layer + 1 < self.shape.num_layers:
            following = self._weights(layer + 1)
        return self.kernels.bind(layer, here, following)

    def _weights(self, layer: int) -> MoeLayerWeights:
        address = self.records[layer * self.shape.num_experts].data_ptr()
        return MoeLayerWeights(self.routers[layer], self.norms[layer], address, EPS)

    def pool(self, threads: int = 1) -> AbstractContextManager[object]:
        """The C++ pool on the mailbox; none where nothing shall be published."""
        if threads == 0:
            return nullcontext()
        memory = PoolMemory(self.records, len(self.records), self.box.mail_at, self.box.reply_at)
        return CpuPool(self.shape.layout, memory, list(range(threads)))  # not pinned to them

    def inputs(self, routes: Sequence[Sequence[int]], seed: int) -> torch.Tensor:
        """Rows of x whose top experts are `routes`, in that order. Shapes: [R][K] -> [R, H]."""
        g = torch.Generator().manual_seed(seed)
        shape = (len(routes), self.shape.hidden)
        x = torch.ldexp(torch.randn(shape, generator=g), torch.randint(-6, 0, shape, generator=g))
        x[:, : self.shape.num_experts] = -1.0
        for row, experts in enumerate(routes):
            for place, expert in enumerate(experts):
                x[row, expert] = 4.0 - place / 8
        return x

    def run(self, layer: int, x: torch.Tensor) -> Outcome:
        """One layer on x, and what it must give for the routes and rows that the kernels found."""
        self.x.copy_(x)
        self.kernels.launch(self.layers[layer])
        plan = read_plan(self.scratch, self.shape)
        return Outcome(self.x.to("cpu", copy=True), self.truth(x, plan), plan)

    def truth(self, x: torch.Tensor, plan: Plan) -> torch.Tensor:
        """x plus its experts' weighted rows in router order, by the C++ kernels, bit for bit."""
        shape = self.shape
        out = torch.zeros(shape.rows, shape.hidden)
        normed = self.scratch.normed.cpu()
        for route, job in enumerate(plan.route_job.tolist()):
            row = route // shape.top_k
            self._native.load([self.records[int(plan.jobs["record"][job])]])
            y = self._native.row(normed[row])
            weight = torch.full_like(y, float(plan.route_weight[route]))
            out[row] = fma(weight, y, out[row])
        return x + out
