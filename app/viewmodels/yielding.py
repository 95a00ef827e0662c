"""Auto-yield: readings and settings -> policy -> resizes; its state for card, pill and tray.

One wish at a time, never while any other resize is open. The sizes that a person chose are
remembered and returned to; a yield never becomes a choice. QtCore only.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime

from PySide6.QtCore import QObject, Signal

from app.predict.split import Divider, Split
from app.predict.yielding import Cause, Decision, Held, Seen, YieldPolicy, YieldRules, YieldState
from app.services.engine_client import EngineClient
from app.services.loans import LOAN, is_loan
from app.services.presence import Presence, PresenceWatch
from app.services.settings import Settings, SettingsStore
from app.viewmodels.performance_history import Event
from app.viewmodels.yielding_words import (
    STATES,
    Terms,
    describe,
    event_words,
    explain,
    last_words,
)
from app.wording import Phrase, tr
from engine.protocol import messages as m

GIB = 1 << 30
_MARGIN_BYTES, _MARGIN_PART = 512 << 20, 16  # hysteresis: this, or less on a small device
_RESIZES = ("resize-", f"{LOAN}-")  # how ids of open resizes begin


@dataclass(frozen=True, slots=True)
class YieldNow:
    """What is shown.

    Attributes:
        state, cause: of the policy.
        is_on: it acts by itself.
        is_known: a model is loaded, so there is something to yield.
        has_memory: the device's free memory is known: the floor counts.
        is_emulated: no GPU.
        reason: why the state is so, one sentence.
        last: what happened last, or "".
        can_take_back: "Yield now" means "Take back".
    """

    state: YieldState = YieldState.FULL
    cause: Cause = Cause.NONE
    is_on: bool = True
    is_known: bool = False
    has_memory: bool = False
    is_emulated: bool = True
    reason: str = ""
    last: str = ""
    can_take_back: bool = False

    @property
    def words(self) -> Phrase:
        """The state in a word."""
        return STATES[self.state]

    @property
    def is_yielded(self) -> bool:
        """Whether fewer slots are held than wanted, because of others."""
        return self.is_known and self.state is not YieldState.FULL


class YieldingViewModel(QObject):
    """See the module.

    Signals:
        changed(): `now` differs.
        happened(Event): memory was given or is back, for the chart.
        said(str): the answer to a command by key or tray, worth a toast.
    """

    changed = Signal()
    happened = Signal(object)
    said = Signal(str)

    def __init__(
        self,
        client: EngineClient,
        settings: SettingsStore,
        watch: PresenceWatch | None = None,
        clock: Callable[[], float] = time.monotonic,
        parent: QObject | None = None,
    ) -> None:
        super().__init__(parent)
        self._client, self._settings, self._watch, self._clock = client, settings, watch, clock
        self._split: Split | None = None
        self._emulated = True
        self._wanted: int | None = None
        self._presence: Presence | None = None
        self._policy = YieldPolicy(self._rules(settings.value))
        self._decision = Decision(YieldState.FULL, Cause.NONE, 0)
        self._asked: tuple[str, Decision, int, float] | None = None  # id, wish, slots, time
        self._yielded_from: int | None = None  # slots before the present yield
        self._lowest = 0  # slots in the present yield
        self._refusal: str = ""
        self._last: str = ""
        self._by_hand = False  # the next answer is worth a toast
        self.now = YieldNow()
        self._connect()

    def _connect(self) -> None:
        client = self._client
        client.status.connect(self._on_status)
        client.resize_applied.connect(self._on_applied)
        client.resize_refused.connect(self._on_refused)
        client.failed.connect(self._on_failed)
        client.loaded.connect(self._on_loaded)
        client.unloaded.connect(self._clear)
        client.stopped.connect(self._clear)
        client.notice.connect(self._on_notice)
        self._settings.changed.connect(self._on_settings)
        if self._watch is not None:
            self._watch.seen.connect(self._on_seen)
        self._on_settings(self._settings.value)
        if client.last_status is not None:
            self._on_status(client.last_status)

    # --- intents ----------------------------------------------------------------------------

    def toggle(self) -> None:
        """Yield now, or take back what is yielded: the key and the tray."""
        if not self.now.is_known:
            self.said.emit(tr("No model is loaded: there is no memory to give back."))
            return
        self._by_hand = True
        if self.now.can_take_back:
            self.take_back()
        else:
            self.yield_now()
        if self._asked is None:  # nothing to do, or not yet: say why
            self._by_hand = False
            self.said.emit(self.now.reason)

    def yield_now(self) -> None:
        """Give back all that can be given, until `take_back`."""
        self._policy.yield_now()
        self._step()

    def take_back(self) -> None:
        """Return to the chosen size at once, as far as memory is free."""
        self._policy.take_back()
        self._step()

    def set_on(self, is_on: bool) -> None:
        """Act by itself, or only by hand."""
        self._settings.set(auto_yield=is_on)

    def set_floor(self, gib: float) -> None:
        """Keep so much free for others."""
        self._settings.set(yield_floor_gib=gib)

    def set_return(self, seconds: float) -> None:
        """Wait so long before memory is taken back."""
        self._settings.set(yield_return_s=int(seconds))

    @property
    def floor_gib(self) -> float:
        """Free memory that is kept for others."""
        return self._settings.value.yield_floor_gib

    @property
    def return_s(self) -> int:
        """Calm time before memory is taken back."""
        return self._settings.value.yield_return_s

    # --- readings and events ----------------------------------------------------------------

    def _on_settings(self, settings: Settings) -> None:
        self._policy.use(self._rules(settings))
        if self._watch is not None:
            self._watch.set_apps(listed(settings.yield_apps) if settings.auto_yield else ())
        self._step()

    def _rules(self, settings: Settings) -> YieldRules:
        total = self._split.total_bytes if self._split is not None else 0
        return YieldRules(
            is_on=settings.auto_yield,
            floor_bytes=int(settings.yield_floor_gib * GIB),
            margin_bytes=min(_MARGIN_BYTES, total // _MARGIN_PART),
            return_after_s=settings.yield_return_s,
            least_share=settings.yield_least_share,
        )

    def _on_seen(self, presence: Presence) -> None:
        self._presence = presence
        self._step()

    def _on_status(self, event: m.Status) -> None:
        device = event.devices[0] if event.devices else None
        split = Split.from_status(device) if device is not None and event.model else None
        if split is None or device is None:
            self._clear()
            return
        is_new = self._split is None or self._split.total_bytes != split.total_bytes
        self._split, self._emulated = split, device.device.emulated
        if self._wanted is None:  # what a load gave
            self._wanted = split.expert_slots
            self._policy.loaded(self._clock())
        if is_new:
            self._policy.use(self._rules(self._settings.value))
        self._step()

    def _on_loaded(self, event: m.Loaded) -> None:
        """Another model, another size to return to."""
        self._wanted = self._yielded_from = None
        status = self._client.last_status
        if status is not None and status.model == event.model:
            self._on_status(status)

    def _on_applied(self, event: m.ResizeApplied) -> None:
        split = self._split
        if split is None:
            return
        now_s, before = self._clock(), split.expert_slots
        self._refusal = ""
        self._split = replace(split, kv_tokens=event.kv_tokens, expert_slots=event.expert_slots)
        if self._asked is not None and event.id == self._asked[0]:
            _, wish, _, asked_s = self._asked
            self._asked = None
            self._policy.resized(now_s)
            self._note_change(wish, before, event.expert_slots, now_s - asked_s)
        elif event.taken_slots:
            self._on_growth(event.taken_slots, now_s)
        elif not is_loan(event.id):
            self._on_choice(before, event.expert_slots, now_s)
        self._step()

    def _on_choice(self, before: int, after: int, now_s: float) -> None:
        """The person chose a division; another context alone is no choice of slots."""
        if after == before:
            self._policy.loaded(now_s)
            return
        self._policy.chosen(now_s)
        self._wanted, self._yielded_from = after, None

    def _on_growth(self, slots: int, now_s: float) -> None:
        """The context took slots for itself: nobody else has them, so they are not taken back."""
        self._policy.resized(now_s)
        self._lowest = max(0, self._lowest - slots)
        if self._wanted is not None:
            self._wanted = max(1, self._wanted - slots)
        if self._yielded_from is not None:
            self._yielded_from = max(1, self._yielded_from - slots)

    def _note_change(self, wish: Decision, before: int, after: int, seconds: float) -> None:
        """Tell what was given, or that all is back."""
        clock = datetime.now().strftime("%H:%M")
        if after < before and wish.state is YieldState.YIELDING:
            if self._yielded_from is None:
                self._yielded_from = before
                words = event_words(wish.cause, wish.app)
                self.happened.emit(Event(self._clock(), "yielded", words))
            self._lowest = after
            size = (self._yielded_from - after) * self._record_bytes
            self._tell(last_words(clock, size, seconds, given=True))
        elif after > before and after >= self._held().goal and self._yielded_from is not None:
            size = (after - self._lowest) * self._record_bytes
            self._yielded_from = None
            self.happened.emit(Event(self._clock(), "restored", tr("Restored")))
            self._tell(last_words(clock, size, seconds, given=False))

    def _tell(self, last: Phrase) -> None:
        self._last = last
        if self._by_hand:
            self._by_hand = False
            self.said.emit(last)

    def _on_refused(self, event: m.ResizeRefused) -> None:
        if self._asked is not None and event.id == self._asked[0]:
            self._refuse(event.reason)
        else:
            self._step()

    def _on_failed(self, event: m.Error) -> None:
        if self._asked is not None and event.id == self._asked[0]:
            self._refuse(event.message)

    def _refuse(self, reason: str) -> None:
        self._asked = None
        self._refusal = reason
        self._policy.refused(self._clock())
        self._step()
        if self._by_hand:
            self._by_hand = False
            self.said.emit(self.now.reason)

    def _on_notice(self, event: m.Notice) -> None:
        """The engine itself made room, or took it back: look at what it holds now."""
        if event.code in ("cache_shrunk", "cache_grown"):
            self._client.request_status()

    def _clear(self, *_: object) -> None:
        """The model, or the engine with it, is gone."""
        self._split = self._wanted = self._asked = self._yielded_from = None
        self._refusal, self._by_hand = "", False
        self._step()

    # --- the decision -----------------------------------------------------------------------

    @property
    def _record_bytes(self) -> int:
        return self._split.pools["experts"].unit_bytes if self._split is not None else 0

    def _held(self) -> Held:
        split = self._split
        if split is None:
            return Held(0, 0, 0, 0, 1)
        low, high = split.bounds(Divider.EXPERTS)
        wanted = self._wanted if self._wanted is not None else split.expert_slots
        return Held(split.expert_slots, wanted, low, high, max(1, self._record_bytes))

    def _seen(self) -> Seen:
        """The newest reading, as far as it counts on this device."""
        presence = self._presence
        if presence is None:  # of a device that is watched nothing is known yet: not free
            blind = self._emulated or self._watch is None
            return Seen(self._clock()) if blind else Seen(-math.inf, 0)
        if self._emulated:  # a full-screen app needs a GPU, and we hold none of it
            return Seen(presence.sampled_s, app=presence.app)
        asked = self._settings.value.yield_full_screen
        full_screen = bool(presence.full_screen) and asked
        return Seen(presence.sampled_s, presence.free_bytes, full_screen, presence.app)

    def _step(self) -> None:
        """Decide, ask for what follows, show."""
        if self._split is not None and self._asked is None:
            held = self._held()
            made = self._policy.step(self._clock(), self._seen(), held)
            self._decision = made
            if made.slots != held.slots and not self._is_busy():
                wish_id = self._client.resize(expert_slots=made.slots, loan=True)
                self._asked = (wish_id, made, held.slots, self._clock())
        self._show()

    def _is_busy(self) -> bool:
        """Whether any resize, the person's or ours, has no answer yet."""
        return any(key.startswith(_RESIZES) for key in self._client.open_ids)

    def _show(self) -> None:
        now = self._make_now()
        if now != self.now:
            self.now = now
            self.changed.emit()

    def _make_now(self) -> YieldNow:
        is_on = self._settings.value.auto_yield
        seen, held, made = self._seen(), self._held(), self._decision
        if self._split is None:
            return YieldNow(
                is_on=is_on,
                is_emulated=self._emulated,
                reason=describe(self._emulated),
                last=self._last,
            )
        terms = Terms(
            floor_bytes=self._policy.rules.floor_bytes,
            free_bytes=seen.free_bytes,
            return_after_s=self._policy.rules.return_after_s,
            slots=held.slots,
            wanted=held.goal,
            emulated=self._emulated,
        )
        reason: str = explain(made, terms)
        if self._refusal:
            reason = tr("The engine refused: {reason}", reason=self._refusal)
        return YieldNow(
            state=made.state,
            cause=made.cause,
            is_on=is_on,
            is_known=True,
            has_memory=seen.free_bytes is not None,
            is_emulated=self._emulated,
            reason=reason,
            last=self._last,
            can_take_back=made.state is not YieldState.FULL or self._policy.is_manual,
        )


def listed(apps: str) -> tuple[str, ...]:
    """Return the programs of a setting, which separates them by commas."""
    return tuple(name for part in apps.split(",") if (name := part.strip()))
