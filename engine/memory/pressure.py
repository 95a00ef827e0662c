"""When other programs need device memory: shrink the expert cache, and grow it back later.

Pure: readings in, wished slot counts out; acting is the scheduler's safe point. Called by
`engine.service` for real devices.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PressureRules:
    """When to act.

    Attributes:
        reserve_bytes: free memory to keep for others; below it the cache shrinks at once.
        margin_bytes: free memory beyond the reserve before anything grows back (hysteresis).
        calm_s: how long there must be that much before growing.
        interval_s: least time between two steps in the same direction.
        grow_share: largest part of the missing slots given back in one step.
    """

    reserve_bytes: int
    margin_bytes: int
    calm_s: float = 5.0
    interval_s: float = 1.0
    grow_share: float = 0.25


@dataclass(frozen=True, slots=True)
class Reading:
    """Facts at one moment; `free_bytes` is what the device reports, other programs included."""

    now_s: float
    free_bytes: int
    slots: int
    floor_slots: int
    wanted_slots: int  # what the person chose
    record_bytes: int


class Pressure:
    """Remembers just enough to be neither late nor nervous."""

    def __init__(self, rules: PressureRules) -> None:
        self._rules = rules
        self._last_shrink_s = float("-inf")
        self._last_grow_s = float("-inf")
        self._calm_since_s: float | None = None

    def step(self, reading: Reading) -> int | None:
        """Return the slots that the cache should have, None to leave it.

        Returns: floor_slots <= slots <= max(wanted_slots, the present slots).
        """
        rules = self._rules
        missing = rules.reserve_bytes - reading.free_bytes
        if missing > 0:
            self._calm_since_s = None
            return self._shrink(reading, missing)
        spare = reading.free_bytes - rules.reserve_bytes - rules.margin_bytes
        if spare < reading.record_bytes:
            self._calm_since_s = None
            return None
        if self._calm_since_s is None:
            self._calm_since_s = reading.now_s
        if reading.now_s - self._calm_since_s < rules.calm_s:
            return None
        return self._grow(reading, spare)

    def _shrink(self, reading: Reading, missing: int) -> int | None:
        if reading.slots <= reading.floor_slots:
            return None
        if reading.now_s - self._last_shrink_s < self._rules.interval_s:
            return None  # the last step may not show in the reading yet
        self._last_shrink_s = reading.now_s
        fewer = -(-missing // reading.record_bytes)
        return max(reading.floor_slots, reading.slots - fewer)

    def _grow(self, reading: Reading, spare: int) -> int | None:
        lacking = reading.wanted_slots - reading.slots
        if lacking <= 0 or reading.now_s - self._last_grow_s < self._rules.interval_s:
            return None
        self._last_grow_s = reading.now_s
        step = min(spare // reading.record_bytes, max(1, int(lacking * self._rules.grow_share)))
        return reading.slots + min(step, lacking)
