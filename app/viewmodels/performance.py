"""The Performance page's state: the division of the device, what it does now, what it would do.

All bounds come from Status events. A preview is asked for 150 ms after the last move, a resize when
the person lets go; the division on screen is the engine's again as soon as it answers. QtCore only.
"""

import time
from collections.abc import Callable
from pathlib import Path

from PySide6.QtCore import QObject, QTimer, Signal

from app.predict import amounts
from app.predict.profiles import Profile, best_profile
from app.predict.split import Phase, Split
from app.services.engine_client import EngineClient
from app.services.loans import is_loan
from app.services.presence import Presence
from app.services.settings import SettingsStore
from app.viewmodels.performance_decode import DecodeLog, Setup
from app.viewmodels.performance_forecast import Forecast, make_forecast
from app.viewmodels.performance_history import History
from app.viewmodels.performance_presets import Presets
from app.viewmodels.performance_state import (
    PREVIEW_NOTES,
    Figures,
    Means,
    Note,
    grown_note,
    resize_event,
)
from app.viewmodels.profile_shelf import ProfileShelf
from app.wording import tr
from engine.protocol import messages as m

DEBOUNCE_MS, SETTLE_MS, SLOW_MS, TICK_MS = 150, 450, 2000, 1200


class PerformanceViewModel(QObject):
    """See the module.

    Signals:
        division_changed(): `shown`, `applied`, `phase`, `asked`, `note` or `preset` differ.
        device_changed(): another device, model or policy; pools may have other bounds.
        figures_changed(): a stats frame came: `figures` and the history.
        forecast_changed(): `forecast` differs.
        map_changed(object): a CacheMap, or None when there is none any more.
    """

    division_changed = Signal()
    device_changed = Signal()
    figures_changed = Signal()
    forecast_changed = Signal()
    map_changed = Signal(object)

    def __init__(
        self,
        client: EngineClient,
        profiles: Path,
        clock: Callable[[], float] = time.monotonic,
        settings: SettingsStore | None = None,
    ) -> None:
        super().__init__()
        self._presets = Presets(settings)
        self._client, self._shelf, self._clock = client, ProfileShelf(profiles), clock
        self._decode = DecodeLog(clock)
        self.shown: Split | None = None
        self.applied: Split | None = None
        self.asked: Split | None = None
        self.phase = Phase.IDLE
        self.note = Note("info", "")
        self.forecast = Forecast()
        self.map: m.CacheMap | None = None
        self.policy = m.MissPolicy.TWO_ENDED
        self.is_emulated = True  # until a device is known; what is said then is true of both
        self._device: m.DeviceStatus | None = None
        self._model: m.ModelInfo | None = None
        self._profile: Profile | None = None
        self._undo: Split | None = None
        self._resize_id = self._preview_id = ""
        self._debounce = self._timer(DEBOUNCE_MS, self._send_preview)
        self._settle = self._timer(SETTLE_MS, self._release_shown)
        self._slow = self._timer(SLOW_MS, self._tell_slow)
        self._tick = self._timer(TICK_MS, self._end_tick)
        self._waiting_for = ""
        self._others: int | None = None  # bytes that other programs hold, by the driver
        self._connect()

    def _timer(self, interval_ms: int, act: Callable[[], None]) -> QTimer:
        timer = QTimer(self)
        timer.setSingleShot(True)
        timer.setInterval(interval_ms)
        timer.timeout.connect(act)
        return timer

    def _connect(self) -> None:
        client = self._client
        client.status.connect(self._on_status)
        client.stats.connect(self._on_stats)
        client.finished.connect(self._on_finished)
        client.cache_map.connect(self._on_map)
        client.resize_preview.connect(self._on_preview)
        client.resize_pending.connect(self._on_pending)
        client.resize_applied.connect(self._on_applied)
        client.resize_refused.connect(self._on_refused)
        client.failed.connect(self._on_failed)
        client.unloaded.connect(self._clear)
        client.stopped.connect(self._clear)
        if client.last_status is not None:
            self._on_status(client.last_status)

    # --- facts ------------------------------------------------------------------------------

    @property
    def device(self) -> m.DeviceStatus | None:
        """The device that is divided; None before a status came."""
        return self._device

    @property
    def model(self) -> m.ModelInfo | None:
        """The loaded model."""
        return self._model

    @property
    def profile(self) -> Profile | None:
        """This machine's measured rates, if there are any."""
        return self._profile

    @property
    def history(self) -> History:
        """Values over time, for the charts."""
        return self._decode.history

    @property
    def figures(self) -> Figures | None:
        """What decode did last; None before a reply."""
        return self._decode.figures

    @property
    def preset(self) -> int:
        """Index of the preset that is shown; the number of presets = custom."""
        return self._presets.index_of(self.shown)

    def now(self) -> float:
        """The clock of the history."""
        return self._clock()

    # --- intents ----------------------------------------------------------------------------

    def preview(self, split: Split, means: Means = "pointer") -> None:
        """Show a division without asking for it; the engine is asked what it thinks."""
        if self.applied is None:
            return
        self._tick.stop()
        self.shown, self.asked = split, None
        self._set(Phase.PREVIEW, Note("info", PREVIEW_NOTES[means]))
        self._debounce.start()

    def release(self, split: Split | None = None) -> None:
        """Ask for a division; what holds already is not asked for again."""
        self._debounce.stop()
        self._settle.stop()
        if split is not None:
            self.shown = split
        if self.shown is None or self.applied is None:
            return
        if self.shown.same_as(self.applied):
            self.revert()
            return
        self.asked = None
        self._waiting_for = ""
        shown, applied = self.shown, self.applied
        self._resize_id = self._client.resize(
            kv_tokens=shown.kv_tokens if shown.kv_tokens != applied.kv_tokens else None,
            expert_slots=shown.expert_slots if shown.expert_slots != applied.expert_slots else None,
        )
        self._set(Phase.PENDING, Note("pending", tr("Waiting for a safe point.")))
        self._slow.start()

    def revert(self) -> None:
        """Take the preview back: what the engine holds is shown again."""
        self._debounce.stop()
        self._settle.stop()
        self.shown, self.asked = self.applied, None
        self._set(Phase.IDLE, self._idle_note())

    def set_kv_tokens(self, tokens: int) -> None:
        """Ask for an exact context once the field rests."""
        if self.shown is not None and tokens != self.shown.kv_tokens:
            self.preview(self.shown.with_kv(tokens), "field")
            self._settle.start()

    def set_slots(self, slots: int) -> None:
        """Ask for an exact number of experts once the field rests."""
        if self.shown is not None and slots != self.shown.expert_slots:
            self.preview(self.shown.with_slots(slots), "field")
            self._settle.start()

    def choose_preset(self, index: int) -> None:
        """Ask for a preset's shares, or for the model's own division if it has one."""
        applied = self.applied
        wanted = self._presets.wanted(index, applied, self._model) if applied else None
        if wanted is not None:
            self.release(wanted)
        self.division_changed.emit()

    def undo(self) -> None:
        """Ask for the division before the last applied one."""
        if self._undo is not None and self.applied is not None:
            self.release(self.applied.like(self._undo))

    def hover(self, words: str) -> None:
        """Show the bounds of the part under the pointer while nothing else is to be said."""
        note = Note("info", words) if words else self._idle_note()
        if self.phase is Phase.IDLE and not self.note.can_undo and note != self.note:
            self._set(Phase.IDLE, note)

    def choose_policy(self, policy: m.MissPolicy) -> None:
        """Serve misses in another way from the next safe point on."""
        if policy is not self.policy and self._model is not None:
            self._client.set_policy(policy)

    def reload_profiles(self) -> None:
        """Look for measurements again, after the profiler ran."""
        self._shelf.refresh()
        self._choose_profile()
        self.device_changed.emit()
        self._renew_forecast()

    def take_presence(self, presence: Presence) -> None:
        """Work out what other programs hold now, for the chart of memory over time."""
        free, applied = presence.free_bytes, self.applied
        self._others = None
        if free is not None and applied is not None and not self.is_emulated:
            sizes = applied.sizes()
            ours = sum(sizes[part] for part in ("weights", "kv", "experts", "runtime"))
            self._others = max(0, applied.total_bytes - free - ours)

    # --- events -----------------------------------------------------------------------------

    def _on_status(self, event: m.Status) -> None:
        device = event.devices[0] if event.devices else None
        self._device, self.policy = device, event.policy
        self.is_emulated = device.device.emulated if device is not None else self.is_emulated
        if event.model != self._model:
            self._model = event.model
            self._undo = None
            self._decode.forget()
            self._shelf.refresh()
            self._choose_profile()
        applied = Split.from_status(device) if device is not None and event.model else None
        self._hold(applied)
        self.device_changed.emit()

    def _hold(self, applied: Split | None) -> None:
        """Take what the engine holds; a preview or request on screen stays, within new bounds."""
        shown, self.applied = self.shown, applied
        if applied is None:
            self.shown, self.asked, self.phase = None, None, Phase.IDLE
            self.note = Note("info", "")
        elif shown is not None and self.phase in (Phase.PREVIEW, Phase.PENDING):
            self.shown = applied.like(shown)
        else:
            self.shown = applied
            if not self.note.text:
                self.note = self._idle_note()
        self.division_changed.emit()
        self._renew_forecast()

    def _on_stats(self, event: m.Stats) -> None:
        self._decode.take(event, self._setup())
        self.figures_changed.emit()
        self._renew_forecast()

    def _on_finished(self, event: m.Finished) -> None:
        self._decode.finish(event, self._setup())
        self.figures_changed.emit()
        self._renew_forecast()

    def _setup(self) -> Setup:
        return Setup(self._model, self._profile, self.policy, self.applied, self._others)

    def _on_map(self, event: m.CacheMap | None) -> None:
        self.map = event
        self.map_changed.emit(event)

    def _on_preview(self, event: m.ResizePreview) -> None:
        if event.id == self._preview_id and self.phase is Phase.PREVIEW and not event.fits:
            self._set(self.phase, Note("warn", event.reason or tr("This does not fit.")))

    def _on_pending(self, event: m.ResizePending) -> None:
        if event.id == self._resize_id:
            self._waiting_for = event.waiting_for

    def _on_applied(self, event: m.ResizeApplied) -> None:
        if self.applied is None:
            return
        before = self.applied
        self.applied = Split(before.pools, before.total_bytes, event.kv_tokens, event.expert_slots)
        grew = bool(event.taken_slots)  # by itself: neither undone nor a choice
        if grew:
            self.history.mark(resize_event(self._clock(), before, self.applied))
        # A yield is marked as one by whoever asked for it, and taken back without Undo.
        elif not before.same_as(self.applied) and not is_loan(event.id):
            self._undo = before
            self.history.mark(resize_event(self._clock(), before, self.applied))
            self._presets.remember(self.applied, self._model)
        promised = self.forecast.speed if self.forecast.kind == "predicted" else None
        self._decode.seen.resized(promised, self._clock())
        if (grew or is_loan(event.id)) and self.shown is not None:
            self.shown = self.shown.following(before, self.applied)
        if event.id == self._resize_id and self.phase is Phase.PENDING:
            self.shown = self.applied
            text = tr("Applied in {time}.", time=amounts.milliseconds(event.pause_ms))
            self._set(Phase.APPLIED, Note("applied", text, can_undo=self._undo is not None))
            self._slow.stop()
            self._tick.start()
        else:
            self._hold(self.applied)
        if grew and self.phase is Phase.IDLE:
            self._set(Phase.IDLE, grown_note(self.applied))

    def _on_refused(self, event: m.ResizeRefused) -> None:
        if event.id == self._resize_id:
            self._refuse(event.reason)

    def _on_failed(self, event: m.Error) -> None:
        if event.id and event.id == self._resize_id and self.phase is Phase.PENDING:
            self._refuse(event.message)

    def _refuse(self, reason: str) -> None:
        self._slow.stop()
        self.asked, self.shown = self.shown, self.applied
        self._set(Phase.REFUSED, Note("refused", reason))

    def _clear(self, *_: object) -> None:
        """The model, or the engine with it, is gone."""
        for timer in (self._debounce, self._settle, self._slow, self._tick):
            timer.stop()
        self._model, self._undo = None, None
        self._decode.forget()
        if not self._client.is_running:
            self._device = None
        self._hold(None)
        self.device_changed.emit()
        self.figures_changed.emit()
        self._on_map(None)

    # --- parts ------------------------------------------------------------------------------

    def _send_preview(self) -> None:
        if self.shown is not None and self.phase is Phase.PREVIEW:
            self._preview_id = self._client.resize(
                self.shown.kv_tokens, self.shown.expert_slots, preview=True
            )

    def _release_shown(self) -> None:
        if self.phase is Phase.PREVIEW:
            self.release()

    def _tell_slow(self) -> None:
        if self.phase is Phase.PENDING:
            who = self._waiting_for or tr("the engine")
            self._set(self.phase, Note("pending", tr("Still waiting for {who}.", who=who)))

    def _end_tick(self) -> None:
        if self.phase is Phase.APPLIED:
            self._set(Phase.IDLE, self.note)

    def _idle_note(self) -> Note:
        if self.applied is None:
            return Note("info", "")
        if not self.applied.can_move:
            return Note("info", tr("There is nothing to divide: every part is at its bounds."))
        return Note("info", tr("Dividers can be dragged or moved with the arrow keys."))

    def _set(self, phase: Phase, note: Note) -> None:
        self.phase, self.note = phase, note
        self.division_changed.emit()
        self._renew_forecast()

    def _choose_profile(self) -> None:
        model = self._model
        self._profile = (
            best_profile(self._shelf.profiles, model.quant, model.record_bytes) if model else None
        )

    def _renew_forecast(self) -> None:
        forecast = make_forecast(
            self._decode.seen,
            self._model,
            self._profile,
            self.policy,
            (self.applied, self.shown),
            self._clock(),
        )
        if forecast != self.forecast:
            self.forecast = forecast
            self.forecast_changed.emit()
