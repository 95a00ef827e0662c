"""How device memory is divided: weights, runtime, KV tokens, expert slots, and what stays free.

Arithmetic only: bytes in, units out; no device, no torch. The window's bounds come from here, so
that no slider offers what a resize would refuse. Called by `engine.loader`, `engine.service`.
"""

from dataclasses import dataclass, replace

from engine.protocol.errors import BudgetError

KIB, MIB, GIB = 1024, 1024**2, 1024**3
PAGE_TOKENS = 16
# Below this a chat turn hardly fits; a person may not go lower, the engine does not by itself.
KV_FLOOR_TOKENS = 256
EMULATED_KV_TOKENS = 4096
DEVICE_KV_TOKENS = 8192
DEVICE_KV_SHARE = 0.2
EMULATED_FREE_SHARE = 0.12
EMULATED_SLOT_SHARE = 0.5


@dataclass(frozen=True, slots=True)
class Division:
    """Sizes of the two elastic pools; `kv_tokens` is a multiple of a page."""

    kv_tokens: int
    expert_slots: int


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a resize may ask for right now; each maximum has the other pool at its floor."""

    min_kv_tokens: int
    max_kv_tokens: int
    min_slots: int
    max_slots: int


@dataclass(frozen=True, slots=True)
class MemoryBudget:
    """One device's memory and what its parts cost.

    Attributes:
        total_bytes: what the engine may use.
        weights_bytes: dense weights on the device.
        runtime_bytes: activations, staging, graphs.
        kv_token_bytes: keys and values of one token over all layers.
        record_bytes: one expert.
        num_records: experts over all layers.
        min_slots: fewest experts the cache can work with (top-k).
        context_tokens: the model's limit.
        max_rows: replies at once; bounds the KV pool.
    """

    total_bytes: int
    weights_bytes: int
    runtime_bytes: int
    kv_token_bytes: int
    record_bytes: int
    num_records: int
    min_slots: int
    context_tokens: int
    max_rows: int = 8

    @property
    def kv_floor_tokens(self) -> int:
        """Fewest KV tokens that any division may have."""
        return up_to_page(min(KV_FLOOR_TOKENS, self.context_tokens))

    @property
    def kv_chat_tokens(self) -> int:
        """Most KV tokens that one reply could ever use."""
        return up_to_page(self.context_tokens)

    @property
    def kv_limit_tokens(self) -> int:
        """Most KV tokens that could ever be used: every row at the model's limit."""
        return up_to_page(self.context_tokens * self.max_rows)

    @property
    def elastic_bytes(self) -> int:
        """What KV and experts share; 0 if weights and runtime already take all."""
        return max(0, self.total_bytes - self.weights_bytes - self.runtime_bytes)

    @property
    def smallest_bytes(self) -> int:
        """The least total that works."""
        return self.need_bytes(Division(self.kv_floor_tokens, self.min_slots))

    def kv_bytes(self, tokens: int) -> int:
        """Bytes of a KV pool."""
        return up_to_page(tokens) * self.kv_token_bytes

    def expert_bytes(self, slots: int) -> int:
        """Bytes of an expert cache."""
        return slots * self.record_bytes

    def need_bytes(self, division: Division) -> int:
        """Total bytes of a division, fixed parts included."""
        return (
            self.weights_bytes
            + self.runtime_bytes
            + self.kv_bytes(division.kv_tokens)
            + self.expert_bytes(division.expert_slots)
        )

    def free_bytes(self, division: Division) -> int:
        """What a division leaves; never negative."""
        return max(0, self.total_bytes - self.need_bytes(division))

    def bounds(self, kv_used_tokens: int = 0) -> Bounds:
        """Return the bounds while `kv_used_tokens` are in use.

        Returns: min <= max on both sides, even where nothing fits.
        """
        min_kv = max(self.kv_floor_tokens, up_to_page(kv_used_tokens))
        slots = (self.elastic_bytes - self.kv_bytes(min_kv)) // self.record_bytes
        room = self.elastic_bytes - self.expert_bytes(self.min_slots)
        tokens = down_to_page(max(0, room) // self.kv_token_bytes)
        return Bounds(
            min_kv_tokens=min_kv,
            max_kv_tokens=max(min_kv, min(tokens, self.kv_limit_tokens)),
            min_slots=self.min_slots,
            max_slots=max(self.min_slots, min(slots, self.num_records)),
        )

    def problem(self, division: Division, kv_used_tokens: int = 0) -> str:
        """Return why a division cannot be, as a sentence; "" if it can."""
        limits = self.bounds(kv_used_tokens)
        if division.kv_tokens < limits.min_kv_tokens:
            least = format_bytes(self.kv_bytes(limits.min_kv_tokens))
            if kv_used_tokens > self.kv_floor_tokens:
                return f"Not below {least}: this chat already uses {kv_used_tokens:,} tokens."
            return f"Not below {least}: the context needs at least {limits.min_kv_tokens} tokens."
        if division.expert_slots < limits.min_slots:
            return f"Not below {limits.min_slots} experts: one token of one layer needs as many."
        if division.expert_slots > self.num_records:
            return f"Not above {self.num_records} experts: the model has no more."
        if division.kv_tokens > self.kv_limit_tokens:
            return (
                f"Not above {self.kv_limit_tokens:,} tokens: {self.max_rows} chats at the model's "
                f"limit of {self.context_tokens:,}."
            )
        if self.need_bytes(division) > self.total_bytes:
            return self._too_big(division)
        return ""

    def check(self, division: Division, kv_used_tokens: int = 0) -> None:
        """Raise BudgetError with the sum and what would fit, if `division` cannot be."""
        reason = self.problem(division, kv_used_tokens)
        if reason:
            raise BudgetError(reason, self._hint(division, kv_used_tokens))

    def nearest(self, division: Division, kv_used_tokens: int = 0) -> Division:
        """Return the closest division that fits; experts give way before context does."""
        limits = self.bounds(kv_used_tokens)
        kv = _clip(up_to_page(division.kv_tokens), limits.min_kv_tokens, limits.max_kv_tokens)
        room = (self.elastic_bytes - self.kv_bytes(kv)) // self.record_bytes
        slots = min(division.expert_slots, room, limits.max_slots)
        return Division(kv, max(self.min_slots, slots))

    def choose(
        self, emulated: bool, kv_tokens: int | None = None, expert_slots: int | None = None
    ) -> Division:
        """Divide at load. None = the engine's choice; what a person asked for is kept or refused.

        On an emulated device half of the experts are resident at first, so that growing and
        shrinking both mean something; on a real one the experts take all that context leaves, and
        context keeps a sensible floor (case M-09). Monotone in `total_bytes`.
        Raises: BudgetError with the sum and the nearest plan.
        """
        if self.smallest_bytes > self.total_bytes:
            smallest = Division(self.kv_floor_tokens, self.min_slots)
            raise BudgetError(self._too_big(smallest), self._hint(smallest, 0))
        asked_kv = up_to_page(kv_tokens) if kv_tokens is not None else None
        room = self.elastic_bytes - self.expert_bytes(
            self.min_slots if expert_slots is None else expert_slots
        )
        kv_bytes = (
            self._kv_share_bytes(emulated, room) if asked_kv is None else self.kv_bytes(asked_kv)
        )
        kv = down_to_page(kv_bytes // self.kv_token_bytes) if asked_kv is None else asked_kv
        left = (self.elastic_bytes - kv_bytes) // self.record_bytes
        most = int(self.num_records * EMULATED_SLOT_SHARE) if emulated else self.num_records
        slots = (
            max(self.min_slots, min(left, most, self.num_records))
            if expert_slots is None
            else expert_slots
        )
        division = Division(kv, slots)
        self.check(division)
        return division

    def _kv_share_bytes(self, emulated: bool, room: int) -> int:
        """Bytes for KV out of `room`, before rounding to pages."""
        wanted = up_to_page(
            min(self.context_tokens, EMULATED_KV_TOKENS if emulated else DEVICE_KV_TOKENS)
        )
        share = 0 if emulated else int(max(0, self.elastic_bytes) * DEVICE_KV_SHARE)
        most = self.kv_bytes(self.context_tokens)
        least = self.kv_bytes(self.kv_floor_tokens)
        return max(least, min(max(self.kv_bytes(wanted), share), most, room))

    def _too_big(self, division: Division) -> str:
        parts = (
            f"weights {format_bytes(self.weights_bytes)} + runtime "
            f"{format_bytes(self.runtime_bytes)} + context "
            f"{format_bytes(self.kv_bytes(division.kv_tokens))} + experts "
            f"{format_bytes(self.expert_bytes(division.expert_slots))}"
        )
        return (
            f"Needs {format_bytes(self.need_bytes(division))}: {parts}; "
            f"{format_bytes(self.total_bytes)} are free for it."
        )

    def _hint(self, division: Division, kv_used_tokens: int) -> str:
        if self.smallest_bytes > self.total_bytes:
            missing = format_bytes(self.smallest_bytes - self.total_bytes)
            return (
                f"The smallest plan needs {format_bytes(self.smallest_bytes)}: free {missing} more "
                "or choose a smaller model."
            )
        fit = self.nearest(division, kv_used_tokens)
        return f"What fits: {fit.kv_tokens:,} tokens of context and {fit.expert_slots:,} experts."


def emulated_total(parts: MemoryBudget) -> int:
    """Return the emulated device's size: room for all, 4096 tokens at most, and ~12 % free.

    `parts.total_bytes` is ignored. Units: bytes, a whole number of MiB.
    """
    kv = up_to_page(min(parts.context_tokens, EMULATED_KV_TOKENS))
    need = parts.need_bytes(Division(kv, parts.num_records))
    return -(-int(need / (1.0 - EMULATED_FREE_SHARE)) // MIB) * MIB


def device_total(total_bytes: int, free_bytes: int, asked_bytes: int | None = None) -> int:
    """Return what the engine may take of a real device: never above free minus reserve (M-16).

    Raises: BudgetError if `asked_bytes` is more than that.
    """
    limit = max(0, free_bytes - device_reserve(total_bytes))
    if asked_bytes is None:
        return limit
    if asked_bytes > limit:
        reserve = format_bytes(device_reserve(total_bytes))
        raise BudgetError(
            f"{format_bytes(asked_bytes)} were asked for; {format_bytes(free_bytes)} of "
            f"{format_bytes(total_bytes)} are free, and {reserve} "
            "stay reserved for the desktop.",
            f"What fits: {format_bytes(limit)}.",
        )
    return asked_bytes


def device_reserve(total_bytes: int) -> int:
    """Bytes never touched on a real device: for the desktop and the driver's own needs."""
    return max(512 * MIB, total_bytes * 3 // 100)


def check_host(need_bytes: int, available_bytes: int, total_bytes: int) -> None:
    """Refuse a load that would exhaust host memory, before anything is read (M-06, M-22).

    Raises: BudgetError with need and available bytes.
    """
    if need_bytes > host_limit(available_bytes, total_bytes):
        reserve = _host_reserve(total_bytes)
        raise BudgetError(
            f"Loading needs {format_bytes(need_bytes)} of main memory and "
            f"{format_bytes(reserve)} stay reserved for the system; "
            f"{format_bytes(available_bytes)} are available.",
            "Close other programs, or choose a smaller model.",
        )


def host_limit(available_bytes: int, total_bytes: int) -> int:
    """Return what a load may take of main memory: never above available minus reserve."""
    return max(0, available_bytes - _host_reserve(total_bytes))


def _host_reserve(total_bytes: int) -> int:
    return min(max(512 * MIB, total_bytes // 50), total_bytes // 8)


def with_total(parts: MemoryBudget, total_bytes: int) -> MemoryBudget:
    """Return the same parts on a device of another size."""
    return replace(parts, total_bytes=total_bytes)


def format_bytes(num_bytes: int) -> str:
    """Return a size for people: "9.1 GiB", "26 MiB", "512 KiB"; never negative (M-07)."""
    size = max(0, num_bytes)
    if size >= GIB:
        return f"{size / GIB:.1f} GiB"
    if size >= 10 * MIB:
        return f"{size / MIB:.0f} MiB"
    if size >= MIB:
        return f"{size / MIB:.1f} MiB"
    return f"{-(-size // KIB)} KiB"


def up_to_page(tokens: int) -> int:
    """Round tokens up to whole pages."""
    return -(-tokens // PAGE_TOKENS) * PAGE_TOKENS


def down_to_page(tokens: int) -> int:
    """Round tokens down to whole pages."""
    return tokens // PAGE_TOKENS * PAGE_TOKENS


def _clip(value: int, low: int, high: int) -> int:
    return max(low, min(value, high))
