"""A client that records what is asked, answers when told, and needs no process."""

import base64
import random

from PySide6.QtCore import QObject, Signal

from engine.protocol import messages as m

MIB, GIB = 1 << 20, 1 << 30

BIG = m.ModelInfo(
    path="/models/big",
    name="DeepSeek-V4-Flash",
    model_type="deepseek_v4",
    quant="mxfp4",
    num_layers=43,
    num_moe_layers=43,
    num_experts=256,
    top_k=6,
    hidden_size=4096,
    context_tokens=1 << 20,
    record_bytes=13_421_772,
    num_records=11_008,
    pool_bytes=11_008 * 13_421_772,
)
TINY = m.ModelInfo(
    path="/models/tiny",
    name="tiny-moe-fp8",
    model_type="qwen3_moe",
    quant="fp8_block",
    num_layers=8,
    num_moe_layers=8,
    num_experts=32,
    top_k=4,
    hidden_size=256,
    context_tokens=4096,
    record_bytes=115_200,
    num_records=256,
    pool_bytes=256 * 115_200,
)


class StubClient(QObject):
    """The signals and commands of EngineClient that the memory pages use."""

    ready = Signal(object)
    status = Signal(object)
    stats = Signal(object)
    finished = Signal(object)
    cache_map = Signal(object)
    resize_preview = Signal(object)
    resize_pending = Signal(object)
    resize_applied = Signal(object)
    resize_refused = Signal(object)
    failed = Signal(object)
    loaded = Signal(object)
    unloaded = Signal(object)
    stopped = Signal(object)
    state_changed = Signal(object)
    running_changed = Signal()
    notice = Signal(object)

    def __init__(self):
        super().__init__()
        self.last_status = None
        self.model = None
        self.state = m.EngineState.IDLE
        self.is_running = True
        self.devices = ()
        self.open_ids = ()
        self.resizes = []
        self.policies = []

    def resize(self, kv_tokens=None, expert_slots=None, preview=False, loan=False):
        self.resizes.append((kv_tokens, expert_slots, preview))
        return f"{'loan' if loan else 'resize'}-{len(self.resizes)}"

    def set_policy(self, policy):
        self.policies.append(policy)
        return "policy-1"

    @property
    def asked(self):
        """Resizes that were really asked for."""
        return [(kv, slots) for kv, slots, preview in self.resizes if not preview]

    def tell_status(self, status):
        self.last_status, self.model = status, status.model
        self.status.emit(status)

    def decode(self, frame):
        """Send a frame of decode after one that holds a prefill, which counts for nothing."""
        self.stats.emit(m.Stats(interval_s=0.5, running=1, decode_tokens_per_s=1.0, routes=100))
        self.stats.emit(frame)

    def apply(self, kv, slots, number=None, pause_ms=31.0):
        """Answer the newest resize, then send the status that follows."""
        self.resize_applied.emit(
            m.ResizeApplied(
                id=f"resize-{number or len(self.resizes)}",
                kv_tokens=kv,
                expert_slots=slots,
                kv_bytes=0,
                expert_bytes=0,
                pause_ms=pause_ms,
            )
        )


def big_status(kv=512 * 1024, slots=1024, policy=m.MissPolicy.SPLIT):
    """The machine of the design pictures."""
    unit, fixed = 6963, int(9.6 * GIB)
    total = 32 * GIB
    runtime, other = int(1.4 * GIB), int(1.8 * GIB)
    kv_bytes, expert_bytes = kv * unit, slots * BIG.record_bytes
    free = total - fixed - runtime - other - kv_bytes - expert_bytes
    room = total - fixed - runtime - other
    pools = (
        m.Pool(name="weights", used_bytes=fixed),
        m.Pool(
            name="kv",
            used_bytes=kv_bytes,
            unit_bytes=unit,
            units=kv,
            min_units=181 * 1024,
            max_units=(room - 256 * BIG.record_bytes) // unit // 16 * 16,
            busy_units=181 * 1024,
        ),
        m.Pool(
            name="experts",
            used_bytes=expert_bytes,
            unit_bytes=BIG.record_bytes,
            units=slots,
            min_units=256,
            max_units=min(11_008, (room - 181 * 1024 * unit) // BIG.record_bytes),
            busy_units=slots,
        ),
        m.Pool(name="runtime", used_bytes=runtime),
        m.Pool(name="free", used_bytes=free),
        m.Pool(name="other", used_bytes=other),
    )
    device = m.DeviceInfo(
        name="cuda:0", title="GeForce RTX 5090", total_bytes=total, free_bytes=free
    )
    return m.Status(
        state=m.EngineState.GENERATING,
        devices=(m.DeviceStatus(device=device, total_bytes=total, pools=pools),),
        model=BIG,
        policy=policy,
    )


def tiny_status(kv=2048, slots=96, policy=m.MissPolicy.SPLIT):
    """The built-in model on a CPU-only machine."""
    unit, fixed, runtime, total = 4096, 5 * MIB, 2 * MIB, 48 * MIB
    kv_bytes, expert_bytes = kv * unit, slots * TINY.record_bytes
    free = total - fixed - runtime - kv_bytes - expert_bytes
    pools = (
        m.Pool(name="weights", used_bytes=fixed),
        m.Pool(
            name="kv",
            used_bytes=kv_bytes,
            unit_bytes=unit,
            units=kv,
            min_units=512,
            max_units=8192,
            busy_units=320,
        ),
        m.Pool(
            name="experts",
            used_bytes=expert_bytes,
            unit_bytes=TINY.record_bytes,
            units=slots,
            min_units=8,
            max_units=256,
            busy_units=slots,
        ),
        m.Pool(name="runtime", used_bytes=runtime),
        m.Pool(name="free", used_bytes=free),
        m.Pool(name="other", used_bytes=0),
    )
    device = m.DeviceInfo(
        name="cpu", title="Ryzen 9 9950X3D", total_bytes=total, free_bytes=free, emulated=True
    )
    return m.Status(
        state=m.EngineState.READY,
        devices=(m.DeviceStatus(device=device, total_bytes=total, pools=pools),),
        model=TINY,
        policy=policy,
    )


EMPTY = m.Status(
    devices=(
        m.DeviceStatus(
            device=m.DeviceInfo(
                name="cpu",
                title="Ryzen 9 9950X3D",
                total_bytes=48 * MIB,
                free_bytes=48 * MIB,
                emulated=True,
            ),
            total_bytes=48 * MIB,
            pools=(m.Pool(name="free", used_bytes=48 * MIB),),
        ),
    )
)


def stats(speed=24.8, hit=0.63, fill=0.29, routes=5_000, fill_gbps=24.9, cpu_gbps=6.9):
    """One frame of decode."""
    return m.Stats(
        interval_s=0.5,
        running=1,
        decode_tokens_per_s=speed,
        hit_share=hit,
        fill_share=fill,
        cpu_share=1 - hit - fill,
        fill_gbps=fill_gbps,
        cpu_gbps=cpu_gbps,
        routes=routes,
    )


def cache_map(layers=8, experts=32, held=12, seed=4):
    """A map in which busy experts tend to be resident."""
    rnd = random.Random(seed)
    hits, resident = bytearray(), bytearray()
    for _ in range(layers):
        row = [min(255, int((rnd.paretovariate(1.3) - 1) * 60)) for _ in range(experts)]
        best = sorted(range(experts), key=lambda i: -row[i])[: held + rnd.randrange(-2, 3)]
        hits += bytes(row)
        resident += bytes(1 if i in best else 0 for i in range(experts))
    return m.CacheMap(
        num_layers=layers,
        num_experts=experts,
        hits=base64.b64encode(bytes(hits)).decode(),
        resident=base64.b64encode(bytes(resident)).decode(),
        max_hits=40,
    )


def profile_bytes(scale=1.0, emulated=False, fmt="mxfp4", record=13_421_772, at=1_764_426_000.0):
    """A stored measurement, as the engine's job writes it."""
    import json

    points = []
    for link, top in (("fill", 49.6), ("cpu", 57.6), ("joint_fill", 48.3), ("joint_cpu", 31.5)):
        for k in range(16, 27, 2):
            points.append(
                {"link": link, "size_bytes": 1 << k, "gbps": scale * top * (1 - 0.8 ** (k - 13))}
            )
    return json.dumps(
        {
            "key": {
                "device": "Ryzen 9 9950X3D" if emulated else "GeForce RTX 5090",
                "cpu": "Ryzen 9 9950X3D",
                "format": fmt,
                "record_bytes": record,
                "threads": 16,
                "engine_version": "0.1.0",
            },
            "fill": 49.6e9 * scale,
            "cpu": 57.6e9 * scale,
            "joint_fill": 48.3e9 * scale,
            "joint_cpu": 31.5e9 * scale,
            "measured_at_s": at,
            "emulated": emulated,
            "points": points,
            "version": 1,
        }
    ).encode()
