"""When to give device memory to other programs, how much, and when to take it back.

Pure: readings and rules in, a state, its cause and a wished number of expert slots out. Shrinks
within one reading, grows in steps after a calm time, and never beyond what is free above the floor.
Acting on a wish is the caller's; so are words.
"""

import math
from dataclasses import dataclass, replace
from enum import StrEnum


class YieldState(StrEnum):
    """Where the engine stands between all its slots and the least."""

    FULL = "full"
    YIELDING = "yielding"  # fewer slots are wished for than are held
    YIELDED = "yielded"
    RESTORING = "restoring"


class Cause(StrEnum):
    """Why it stands there."""

    NONE = "none"
    MANUAL = "manual"  # "Yield now"
    APP = "app"  # a listed program runs
    FULL_SCREEN = "full_screen"
    MEMORY = "memory"  # free memory is below the floor, or too little to grow
    CALM = "calm"  # nothing asks for memory any more; the return time runs
    FLOOR = "floor"  # full as far as the floor allows
    KEPT = "kept"  # something asks for memory, and the person took it back


@dataclass(frozen=True, slots=True)
class YieldRules:
    """What the person chose, and how gently memory is taken back.

    Attributes:
        is_on: act by itself; off leaves "Yield now" and the floor of every growth.
        floor_bytes: free device memory that is kept for other programs.
        margin_bytes: free memory beyond the floor that growing must leave (hysteresis).
        return_after_s: how long there must be room before growing.
        least_share: part of the wanted slots that is never given away; the engine's floor holds
            anyway.
        step_share: part of the yielded slots taken back in one step.
        step_s: least time between two such steps.
    """

    is_on: bool
    floor_bytes: int
    margin_bytes: int
    return_after_s: float
    least_share: float = 0.0
    step_share: float = 0.25
    step_s: float = 2.0


@dataclass(frozen=True, slots=True)
class Seen:
    """What other programs do.

    Attributes:
        sampled_s: when this was read, on the clock of `step`.
        free_bytes: free memory of the device as its driver reports it; None = cannot be known (an
            emulated device, no driver library), then only the engine's own bounds hold.
        full_screen: an app fills the screen.
        app: name of the listed program that runs, "" = none.
    """

    sampled_s: float
    free_bytes: int | None = None
    full_screen: bool = False
    app: str = ""


@dataclass(frozen=True, slots=True)
class Held:
    """What the engine holds, and its bounds now, all in slots of `record_bytes`."""

    slots: int
    wanted: int  # what the person, or the engine at load, chose
    min_slots: int
    max_slots: int
    record_bytes: int

    @property
    def goal(self) -> int:
        """What is held when nobody else needs memory."""
        return max(self.min_slots, min(self.wanted, self.max_slots))

    def least(self, share: float) -> int:
        """The fewest slots that yielding may ask for."""
        return max(self.min_slots, min(self.goal, math.ceil(share * self.goal)))


@dataclass(frozen=True, slots=True)
class Decision:
    """What follows from one reading.

    Attributes:
        slots: what the engine should hold now; equal to what it holds = do nothing.
        app: the program meant by cause APP or KEPT, "" = a full-screen app.
        returns_in_s: rest of the calm time, for cause CALM.
    """

    state: YieldState
    cause: Cause
    slots: int
    app: str = ""
    returns_in_s: float = 0.0


class YieldPolicy:
    """Remembers just enough to be neither late nor nervous.

    A reading that was sampled before the newest resize says nothing about memory now; it neither
    shrinks nor grows anything.
    """

    def __init__(self, rules: YieldRules) -> None:
        self.rules = rules
        self._is_manual = self._is_kept = False
        self._is_rushed = self._is_restoring = False
        self._fits: int | None = None  # slots that the floor left of a new choice
        self._asked = Cause.NONE  # what memory was given for last
        self._is_short = False  # the last reading of memory was below the floor
        self._is_new = True  # a choice that the floor has not judged yet
        self._resized_s = self._stepped_s = self._refused_s = -math.inf
        self._calm_since_s: float | None = None
        self._least_free: int | None = None  # since the newest resize, while calm

    # --- what happens -----------------------------------------------------------------------

    def use(self, rules: YieldRules) -> None:
        """Take other rules; switching off takes back at once what was given by itself."""
        if self.rules.is_on and not rules.is_on:
            self._is_rushed = True
        if rules.floor_bytes != self.rules.floor_bytes:
            self._is_new, self._fits = True, None
        self.rules = rules

    @property
    def is_manual(self) -> bool:
        """Whether memory stays yielded until the person takes it back."""
        return self._is_manual

    def yield_now(self) -> None:
        """Shrink to the least, and stay there until `take_back`."""
        self._is_manual, self._is_kept, self._is_rushed = True, False, False

    def take_back(self) -> None:
        """Grow at once, as far as there is room; a program that runs now asks in vain."""
        self._is_manual, self._is_kept, self._is_rushed = False, True, True

    def chosen(self, now_s: float) -> None:
        """The person chose a division: it holds against programs, not against the floor."""
        self._is_manual, self._is_kept, self._is_rushed = False, True, False
        self.loaded(now_s)

    def loaded(self, now_s: float) -> None:
        """A division that was not wished for here holds: a model was loaded."""
        self._is_new, self._fits = True, None
        self._rest()
        self.resized(now_s)

    def resized(self, now_s: float) -> None:
        """A resize was applied; readings from before are stale."""
        self._resized_s, self._least_free = now_s, None

    def refused(self, now_s: float) -> None:
        """A wish was refused: ask for nothing before the calm time has passed again."""
        self._refused_s = now_s
        self._is_rushed = False
        self._rest()

    # --- the decision -----------------------------------------------------------------------

    def step(self, now_s: float, seen: Seen, held: Held) -> Decision:
        """Decide by one reading.

        Returns: min_slots <= slots; more than are held only within free memory above the floor.
        """
        cause = self._cause(seen)
        if cause in (Cause.MANUAL, Cause.APP, Cause.FULL_SCREEN):
            self._is_rushed = False
            self._rest()
            least = min(held.slots, held.least(self.rules.least_share))
            return self._shrunk(now_s, cause, least, seen, held)
        fresh = seen.free_bytes is None or seen.sampled_s > self._resized_s
        if fresh and seen.free_bytes is not None:
            judged = self._judge(now_s, seen, held)
            if judged is not None:
                return judged
        if held.slots >= held.goal:
            self._is_rushed, self._fits = False, None
            self._rest()
            return Decision(YieldState.FULL, cause, held.slots, seen.app)
        return self._grow(now_s, cause, seen, held) if fresh else self._wait(now_s, cause, held)

    def _cause(self, seen: Seen) -> Cause:
        """What asks for memory besides memory itself."""
        if not (seen.app or seen.full_screen):
            self._is_kept = False
        if self._is_manual:
            return Cause.MANUAL
        if not self.rules.is_on or not (seen.app or seen.full_screen):
            return Cause.NONE
        if self._is_kept:
            return Cause.KEPT
        return Cause.APP if seen.app else Cause.FULL_SCREEN

    def _judge(self, now_s: float, seen: Seen, held: Held) -> Decision | None:
        """Shrink if less than the floor is free; None = enough is."""
        is_new, self._is_new = self._is_new, False
        missing = self.rules.floor_bytes - (seen.free_bytes or 0)
        was_short, self._is_short = self._is_short, missing > 0
        if missing <= 0 or not self.rules.is_on:
            return None
        if was_short and missing > self.rules.margin_bytes:
            missing *= 2  # no noise: somebody takes what is given, as fast as it comes
        self._is_rushed = False
        self._rest()
        if is_new:  # leave what growing would leave, so that this can be reached again
            missing += self.rules.margin_bytes
        least = min(held.slots, held.least(self.rules.least_share))
        slots = max(least, held.slots - -(-missing // held.record_bytes))
        if is_new:
            self._fits = slots
        if self._fits is not None and slots >= self._fits:  # our own choice was too large
            return Decision(YieldState.FULL, Cause.FLOOR, self._pause(now_s, slots, held), seen.app)
        return self._shrunk(now_s, Cause.MEMORY, slots, seen, held)

    def _shrunk(self, now_s: float, cause: Cause, slots: int, seen: Seen, held: Held) -> Decision:
        """Name a decision to hold `slots` and not more."""
        self._asked = cause
        state = YieldState.YIELDING if slots < held.slots else YieldState.YIELDED
        if slots == held.slots and held.slots >= held.goal:
            state = YieldState.FULL  # there is nothing to give
        return Decision(state, cause, self._pause(now_s, slots, held), seen.app)

    def _grow(self, now_s: float, cause: Cause, seen: Seen, held: Held) -> Decision:
        """Take back a step, if there has been room for long enough."""
        room = self._room(seen, held)
        if room <= 0:
            self._is_rushed = False
            self._rest()
            return self._stay(cause, Cause.MEMORY, held)
        if self._calm_since_s is None:
            self._calm_since_s = now_s
        calm_s = 0.0 if self._is_rushed else self.rules.return_after_s
        rest_s = max(self._calm_since_s, self._refused_s) + calm_s - now_s
        if rest_s > 0 and not self._is_restoring:
            return Decision(YieldState.YIELDED, Cause.CALM, held.slots, seen.app, rest_s)
        self._is_restoring = True
        if now_s - self._stepped_s < self.rules.step_s and not self._is_rushed:
            return Decision(YieldState.RESTORING, cause, held.slots, seen.app)
        self._stepped_s = now_s
        gap = held.goal - held.slots
        given = held.goal - held.least(self.rules.least_share)
        step = gap if self._is_rushed else max(1, math.ceil(given * self.rules.step_share))
        slots = held.slots + min(step, gap, room)
        return Decision(YieldState.RESTORING, cause, slots, seen.app)

    def _room(self, seen: Seen, held: Held) -> int:
        """Slots that fit into the least that was free lately, above floor and margin."""
        if seen.free_bytes is None:
            return held.goal - held.slots
        low = seen.free_bytes if self._least_free is None else self._least_free
        self._least_free = min(low, seen.free_bytes)
        spare = self._least_free - self.rules.floor_bytes - self.rules.margin_bytes
        return max(0, spare // held.record_bytes)

    def _wait(self, now_s: float, cause: Cause, held: Held) -> Decision:
        """Say where things stand until there is a reading of memory after the resize."""
        if self._is_restoring:
            return Decision(YieldState.RESTORING, cause, held.slots)
        why = Cause.MEMORY if self._asked is Cause.MEMORY else Cause.CALM
        return replace(
            self._stay(cause, why, held), returns_in_s=max(0.0, self.rules.return_after_s)
        )

    def _stay(self, cause: Cause, why: Cause, held: Held) -> Decision:
        """Hold what is held; as good as full counts as full, the floor is in the way."""
        goal, least = held.goal, held.least(self.rules.least_share)
        near = min(self.rules.margin_bytes // held.record_bytes, (goal - least) // 4)
        enough = (goal if self._fits is None else min(goal, self._fits)) - near
        is_full = held.slots >= enough
        why = Cause.FLOOR if is_full else why
        return Decision(
            YieldState.FULL if is_full else YieldState.YIELDED,
            cause if cause is Cause.KEPT else why,
            held.slots,
        )

    def _pause(self, now_s: float, slots: int, held: Held) -> int:
        """Wish for nothing new for a moment after a refusal."""
        return held.slots if now_s - self._refused_s < self.rules.step_s else slots

    def _rest(self) -> None:
        self._calm_since_s = self._least_free = None
        self._is_restoring = False
