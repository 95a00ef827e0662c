"""One device's memory as a division that can be moved within the bounds the engine named.

Pure integers: the split bar, the exact fields and the presets all ask here, so that none of them
can offer what a resize must refuse. Knows no pixels and no words.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Literal

from engine.protocol.messages import DeviceStatus, Pool

PartName = Literal["weights", "kv", "experts", "runtime", "free", "other"]
ORDER: tuple[PartName, ...] = ("weights", "kv", "experts", "runtime", "free", "other")
PAGE_TOKENS = 16  # a KV page; the engine hands out whole pages only


class Divider(StrEnum):
    """What can be dragged: the edge right of the KV cache, and the edge right of the experts."""

    KV = "kv"
    EXPERTS = "experts"

    @property
    def next(self) -> "Divider":
        """The other one."""
        return Divider.EXPERTS if self is Divider.KV else Divider.KV


class Phase(StrEnum):
    """Where a change of the division stands."""

    IDLE = "idle"
    PREVIEW = "preview"  # shown, not asked for
    PENDING = "pending"  # asked for; waits for a safe point
    APPLIED = "applied"  # done a moment ago
    REFUSED = "refused"  # nothing changed


@dataclass(frozen=True, slots=True)
class Split:
    """A division of one device: the engine's pools, and the two sizes that a person may choose.

    Attributes:
        pools: the pools of the last Status, by name; every bound comes from here.
        total_bytes: the whole device; the parts add up to it.
        kv_tokens: context capacity asked for, in whole pages.
        expert_slots: experts asked for on the device.
    """

    pools: Mapping[str, Pool]
    total_bytes: int
    kv_tokens: int
    expert_slots: int

    @classmethod
    def from_status(cls, device: DeviceStatus) -> "Split | None":
        """Return what the device holds now; None without a model (no KV or expert pool)."""
        pools: dict[str, Pool] = {pool.name: pool for pool in device.pools}
        if "kv" not in pools or "experts" not in pools:
            return None
        return cls(pools, device.total_bytes, pools["kv"].units, pools["experts"].units)

    # --- sizes ------------------------------------------------------------------------------

    @property
    def kv_bytes(self) -> int:
        """Bytes of the KV cache at the size asked for."""
        return self._bytes("kv", self.kv_tokens)

    @property
    def expert_bytes(self) -> int:
        """Bytes of the expert cache at the size asked for."""
        return self._bytes("experts", self.expert_slots)

    @property
    def divisible_bytes(self) -> int:
        """What KV, experts and free memory hold together: the room for every choice."""
        return sum(
            self.pools[name].used_bytes for name in ("kv", "experts", "free") if name in self.pools
        )

    @property
    def free_bytes(self) -> int:
        """What this division leaves free; never below 0 for a legal one."""
        return self.divisible_bytes - self.kv_bytes - self.expert_bytes

    def sizes(self) -> dict[PartName, int]:
        """Bytes of every part in drawing order; their sum is `total_bytes`."""
        fixed = {name: self.pools[name].used_bytes if name in self.pools else 0 for name in ORDER}
        moved: dict[PartName, int] = {
            "kv": self.kv_bytes,
            "experts": self.expert_bytes,
            "free": max(0, self.free_bytes),
        }
        return {name: moved.get(name, fixed[name]) for name in ORDER}

    def bounds(self, divider: Divider) -> tuple[int, int]:
        """Least and greatest units (tokens, slots) that this divider may give its left part."""
        if divider is Divider.KV:
            low = _up(self.pools["kv"].min_units)
            room = self.divisible_bytes - self._bytes("experts", self.pools["experts"].min_units)
            return low, max(low, _down(min(self.pools["kv"].max_units, self._units("kv", room))))
        low = self.pools["experts"].min_units
        room = self.divisible_bytes - self.kv_bytes
        return low, max(low, min(self.pools["experts"].max_units, self._units("experts", room)))

    @property
    def can_move(self) -> bool:
        """Whether at least one divider has somewhere to go."""
        return any(low < high for low, high in map(self.bounds, Divider))

    @property
    def is_legal(self) -> bool:
        """Whether both sizes lie within the bounds, in whole units, and fit together."""
        kv, experts = self.pools["kv"], self.pools["experts"]
        whole = self.kv_tokens % PAGE_TOKENS == 0 or self.kv_tokens == kv.units
        return (
            whole
            and kv.min_units <= self.kv_tokens <= kv.max_units
            and experts.min_units <= self.expert_slots <= experts.max_units
            and self.free_bytes >= 0
        )

    # --- moves ------------------------------------------------------------------------------

    def move(self, divider: Divider, left_bytes: float) -> "Split":
        """Give `left_bytes` to the part left of the divider, snapped to whole units.

        The KV divider trades with the experts, the experts' divider with free memory; what is
        smaller than one slot stays free.
        Returns: a legal division if this one is legal.
        """
        if divider is Divider.EXPERTS:
            return self.with_slots(self._units("experts", left_bytes + self._unit("experts") / 2))
        low, high = self.bounds(Divider.KV)
        wanted = self._units("kv", left_bytes + PAGE_TOKENS * self._unit("kv") / 2)
        tokens = min(max(_down(wanted), low), high)
        spare = self.free_bytes % self._unit("experts")  # a remainder of earlier roundings
        room = self.expert_bytes + self.kv_bytes - self._bytes("kv", tokens) + spare
        experts = self.pools["experts"]
        slots = min(max(self._units("experts", room), experts.min_units), experts.max_units)
        return replace(self, kv_tokens=tokens, expert_slots=slots)._fitted()

    def nudge(self, divider: Divider, share: float) -> "Split":
        """Move the divider by `share` of the whole device, but by one unit at least."""
        left = self.kv_bytes if divider is Divider.KV else self.expert_bytes
        unit = self._unit("kv") * PAGE_TOKENS if divider is Divider.KV else self._unit("experts")
        step = max(abs(share) * self.total_bytes, float(unit))
        return self.move(divider, left + (step if share > 0 else -step))

    def with_kv(self, tokens: int) -> "Split":
        """Set the context exactly; free memory pays first, then the experts."""
        low, high = self.bounds(Divider.KV)
        return replace(self, kv_tokens=min(max(_down(tokens), low), high))._fitted()

    def with_slots(self, slots: int) -> "Split":
        """Set the experts exactly; free memory pays, the context never does."""
        low, high = self.bounds(Divider.EXPERTS)
        return replace(self, expert_slots=min(max(slots, low), high))

    def by_shares(self, kv_share: float, expert_share: float) -> "Split":
        """Divide the divisible room by two shares of it (0..1 each), within the bounds."""
        room = self.divisible_bytes
        return self.with_kv(self._units("kv", kv_share * room)).with_slots(
            self._units("experts", expert_share * room)
        )

    def same_as(self, other: "Split") -> bool:
        """Whether both ask for the same two sizes."""
        return (self.kv_tokens, self.expert_slots) == (other.kv_tokens, other.expert_slots)

    def like(self, other: "Split") -> "Split":
        """These pools with the sizes of `other`, made legal again under these bounds."""
        return self.with_kv(other.kv_tokens).with_slots(other.expert_slots)

    def following(self, before: "Split", after: "Split") -> "Split":
        """These sizes, where those that were not moved away from `before` are those of `after`.

        So neither what was yielded nor what a long chat took is asked back with the other part.
        """
        kv_rests = self.kv_tokens == before.kv_tokens
        slots_rest = self.expert_slots == before.expert_slots
        return replace(
            self,
            kv_tokens=after.kv_tokens if kv_rests else self.kv_tokens,
            expert_slots=after.expert_slots if slots_rest else self.expert_slots,
        )

    # --- arithmetic -------------------------------------------------------------------------

    def _unit(self, name: str) -> int:
        return max(1, self.pools[name].unit_bytes)

    def _bytes(self, name: str, units: int) -> int:
        """Bytes at `units`, exact at the size that holds now (a pool may carry a fixed part)."""
        pool = self.pools[name]
        return pool.used_bytes + (units - pool.units) * self._unit(name)

    def _units(self, name: str, size_bytes: float) -> int:
        """The most units that fit into `size_bytes`."""
        pool = self.pools[name]
        return pool.units + int((size_bytes - pool.used_bytes) // self._unit(name))

    def _fitted(self) -> "Split":
        """Take slots away until the sum fits."""
        over = -self.free_bytes
        if over <= 0:
            return self
        lost = -(-over // self._unit("experts"))
        low = self.pools["experts"].min_units
        return replace(self, expert_slots=max(low, self.expert_slots - lost))


def _down(tokens: int) -> int:
    return tokens - tokens % PAGE_TOKENS


def _up(tokens: int) -> int:
    return -(-tokens // PAGE_TOKENS) * PAGE_TOKENS
