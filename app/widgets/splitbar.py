"""The VRAM split bar: six parts in fixed order, two dividers, a ghost where the engine still is.

Shows a division and asks for another; never moves on its own account. The owner (a view model, by
way of its view) answers with `show_split`. All moves are made by `app.predict.split.Split`, so only
legal divisions leave this widget. One focus stop; keys are in `keyPressEvent`.
"""

from PySide6.QtCore import QEasingCurve, QEvent, QPointF, Qt, QVariantAnimation, Signal
from PySide6.QtGui import (
    QAccessible,
    QAccessibleAnnouncementEvent,
    QHelpEvent,
    QKeyEvent,
    QMouseEvent,
    QPaintEvent,
)
from PySide6.QtWidgets import QSizePolicy, QToolTip, QWidget

from app.predict.split import ORDER, Divider, PartName, Phase, Split
from app.theme import SIZE, area, base_point, duration, painter, px, theme
from app.widgets.focus import FocusRing
from app.widgets.splitbar_paint import BAR, HEIGHT, RULER, Picture, paint, paint_empty
from app.widgets.splitbar_words import bounds_text, bubble, described, slots_inside, spoken
from app.wording import again, tr

_STEP, _LEAP, _TURN_MS = 0.01, 0.10, 1200
_KEYS = {
    Qt.Key.Key_Left: -_STEP,
    Qt.Key.Key_Right: _STEP,
    Qt.Key.Key_PageDown: -_LEAP,
    Qt.Key.Key_PageUp: _LEAP,
}


class SplitBar(FocusRing, QWidget):
    """One device's memory, divisible by pointer and keyboard.

    Signals:
        previewed(Split): a legal division under the pointer or after a key; nothing is asked yet.
        released(Split): the person wants it.
        reverted(): the person took the preview back.
        hovered(str): bounds of the part under the pointer in words; "" = none.
    """

    previewed = Signal(object)
    released = Signal(object)
    reverted = Signal()
    hovered = Signal(str)

    def __init__(self, empty: str = "") -> None:
        super().__init__()
        self._empty = empty or tr("No model is loaded.")
        self._applied: Split | None = None
        self._shown: Split | None = None
        self._asked: Split | None = None
        self._base: Split | None = None  # what a drag started from
        self._grip = 0.0  # bytes between pointer and divider
        self._forecast = ""
        self._num_experts = 0
        self.phase, self.active = Phase.IDLE, Divider.KV
        self._hot: Divider | None = None
        self._drawn: dict[PartName, float] = {}
        self._glide = QVariantAnimation(self)
        self._glide.setEasingCurve(QEasingCurve.Type.OutCubic)
        self._glide.setStartValue(0.0)
        self._glide.setEndValue(1.0)
        self._glide.valueChanged.connect(self._glide_to)
        self._glide_from: dict[PartName, float] = {}
        self._turn = QVariantAnimation(self)
        self._turn.setStartValue(0.0)
        self._turn.setEndValue(1.0)
        self._turn.setDuration(_TURN_MS)
        self._turn.setLoopCount(-1)
        self._turn.valueChanged.connect(self.update)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setMouseTracking(True)
        theme().changed.connect(self._retheme)
        self._retheme()

    # --- shown by the owner -----------------------------------------------------------------

    @property
    def shown(self) -> Split | None:
        """The division on screen; None without a model."""
        return self._shown

    @property
    def is_dragging(self) -> bool:
        """Whether the pointer holds a handle."""
        return self._base is not None

    def show_split(
        self,
        shown: Split | None,
        applied: Split | None = None,
        phase: Phase = Phase.IDLE,
        asked: Split | None = None,
    ) -> None:
        """Show a division, the one that holds in the engine, and what was refused, if any."""
        before, self._shown, self._applied = self._applied, shown, applied or shown
        self._asked, self.phase = asked, phase
        if shown is None:
            self._base, self._drawn = None, {}
        elif self._base is not None and self._applied is not None:
            self._base = _rebased(self._base, before, self._applied)
        other = asked or self._applied
        if shown is not None and other is not None and not self.is_dragging:
            self._follow_change(shown, other)
        if shown is not None:
            self._start_glide(shown)
        self._spin(phase is Phase.PENDING)
        self._retell()

    def set_num_experts(self, count: int) -> None:
        """How many experts the model has in all; 0 = not known."""
        self._num_experts = count
        self.update()

    def set_forecast(self, words: str) -> None:
        """Words read out after each step, such as the predicted speed."""
        self._forecast = words

    # --- pointer ----------------------------------------------------------------------------

    def mousePressEvent(self, event: QMouseEvent) -> None:
        """Take a handle."""
        divider = self._near(base_point(event.position()))
        if event.button() != Qt.MouseButton.LeftButton or divider is None or self._shown is None:
            super().mousePressEvent(event)
            return
        self.active, self._base = divider, self._shown
        self._grip = self._bytes_at(event) - self._left_bytes(self._shown)
        self.update()

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        """Preview while a handle is held; else show what can be held."""
        if self._base is not None:
            self._preview(self._base.move(self.active, self._bytes_at(event) - self._grip))
            return
        place = base_point(event.position())
        hot = self._near(place)
        if hot is not self._hot:
            self._hot = hot
            self.update()
        self.setCursor(Qt.CursorShape.SplitHCursor if hot else Qt.CursorShape.ArrowCursor)
        part = self._part_at(place)
        self.hovered.emit(bounds_text(self._shown, part) if part and self._shown else "")

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        """Ask for what is shown; a click without a move asks for nothing."""
        if self._base is None or event.button() != Qt.MouseButton.LeftButton:
            super().mouseReleaseEvent(event)
            return
        self._base = None
        if self._shown is not None and self.phase is Phase.PREVIEW:
            self.released.emit(self._shown)
        self.update()

    def leaveEvent(self, event: QEvent) -> None:
        """Nothing is under the pointer any more."""
        self._hot = None
        self.hovered.emit("")
        self.update()
        super().leaveEvent(event)

    def event(self, event: QEvent) -> bool:
        """Tool tips name the part under the pointer; Esc is ours while a preview is shown."""
        override = event.type() is QEvent.Type.ShortcutOverride
        if override and isinstance(event, QKeyEvent) and self.phase is Phase.PREVIEW:
            if event.key() != Qt.Key.Key_Escape:
                return super().event(event)
            event.accept()
            return True
        if event.type() is QEvent.Type.ToolTip and isinstance(event, QHelpEvent):
            part = self._part_at(base_point(QPointF(event.pos())))
            if part and self._shown is not None:
                QToolTip.showText(event.globalPos(), bounds_text(self._shown, part), self)
                return True
        return super().event(event)

    # --- keys -------------------------------------------------------------------------------

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Arrows 1 %, PgUp and PgDn 10 %, Space next divider, Enter apply, Esc back."""
        key = Qt.Key(event.key())
        if self._shown is None:
            super().keyPressEvent(event)
        elif key in _KEYS:
            self._preview(self._shown.nudge(self.active, _KEYS[key]))
            self._speak()
        elif key == Qt.Key.Key_Space:
            self.active = self.active.next
            self._speak()
            self.update()
        elif key in (Qt.Key.Key_Return, Qt.Key.Key_Enter) and self.phase is Phase.PREVIEW:
            self._base = None
            self.released.emit(self._shown)
        elif key == Qt.Key.Key_Escape and self.phase is Phase.PREVIEW:
            self._base = None
            self.reverted.emit()
        else:
            super().keyPressEvent(event)

    # --- drawing ----------------------------------------------------------------------------

    def paintEvent(self, _event: QPaintEvent) -> None:
        """Draw the bar, or its frame with one sentence."""
        p = painter(self)
        if self._shown is None or self._applied is None:
            paint_empty(p, area(self).width(), again(self._empty))
        else:
            paint(p, self._picture(self._shown, self._applied))
        p.end()

    def _picture(self, shown: Split, applied: Split) -> Picture:
        moving = self.phase is Phase.PREVIEW
        return Picture(
            width=area(self).width(),
            total=float(shown.total_bytes),
            shown=self._drawn or shown.sizes(),
            applied=applied.sizes(),
            phase=self.phase,
            active=self.active,
            hot=self.active if self.is_dragging else self._hot,
            movable=applied.can_move,
            asked=self._asked.sizes() if self._asked else None,
            bubble=bubble(shown, self.active) if moving else "",
            inside={
                "weights": tr("Fixed while loaded"),
                "experts": slots_inside(shown, self._num_experts),
            },
            ring=self.ring,
            turn=float(self._turn.currentValue() or 0.0),
        )

    # --- parts ------------------------------------------------------------------------------

    def _preview(self, split: Split) -> None:
        """Show at once, then tell; the owner answers with `show_split`."""
        self._shown, self._asked, self.phase = split, None, Phase.PREVIEW
        self._stop_glide(split)
        self.update()
        self.previewed.emit(split)

    def _speak(self) -> None:
        if self._shown is None:
            return
        words = spoken(self._shown, self.active)
        text = f"{words}, {again(self._forecast)}" if self._forecast else str(words)
        self.setAccessibleDescription(text)
        QAccessible.updateAccessibility(QAccessibleAnnouncementEvent(self, text))

    def _left_bytes(self, split: Split) -> int:
        return split.kv_bytes if self.active is Divider.KV else split.expert_bytes

    def _bytes_at(self, event: QMouseEvent) -> float:
        """Bytes between the start of the active divider's left part and the pointer."""
        if self._shown is None:
            return 0.0
        sizes = (self._base or self._shown).sizes()
        start = sizes["weights"] + (0 if self.active is Divider.KV else sizes["kv"])
        share = base_point(event.position()).x() / max(1.0, area(self).width())
        return share * self._shown.total_bytes - start

    def _near(self, place: QPointF) -> Divider | None:
        """The handle within reach of the pointer."""
        if self._shown is None or self._applied is None or not self._applied.can_move:
            return None
        if not RULER - 8 <= place.y() <= RULER + BAR + 8:
            return None
        picture = self._picture(self._shown, self._applied)
        gaps = {d: abs(picture.divider_x(picture.shown, d) - place.x()) for d in Divider}
        best = min(gaps, key=lambda d: gaps[d])
        return best if gaps[best] <= SIZE["handleHit"] / 2 else None

    def _part_at(self, place: QPointF) -> PartName | None:
        if self._shown is None or self._applied is None or place.y() < RULER:
            return None
        spans = self._picture(self._shown, self._applied).spans(self._shown.sizes())
        return next((n for n in ORDER if spans[n][0] <= place.x() < spans[n][1]), None)

    def _follow_change(self, shown: Split, other: Split) -> None:
        """Let the handle speak that a field or preset moved, if only one of them did."""
        same_kv = shown.kv_tokens == other.kv_tokens
        if same_kv and shown.expert_slots != other.expert_slots:
            self.active = Divider.EXPERTS

    def _start_glide(self, split: Split) -> None:
        """Move to a division that came from the owner; under the pointer there is no delay."""
        target = {name: float(size) for name, size in split.sizes().items()}
        time = duration("slow")
        same = self._drawn == target
        if (
            self.phase is Phase.PREVIEW
            or not time
            or not self.isVisible()
            or not self._drawn
            or same
        ):
            self._stop_glide(split)
            return
        self._glide.stop()
        self._glide_from = dict(self._drawn)
        self._glide.setDuration(time)
        self._glide.start()

    def _stop_glide(self, split: Split) -> None:
        self._glide.stop()
        self._drawn = {name: float(size) for name, size in split.sizes().items()}

    def _glide_to(self, share: float) -> None:
        if self._shown is None or not self._glide_from:
            return
        start, end = self._glide_from, self._shown.sizes()
        self._drawn = {n: start[n] + (end[n] - start[n]) * share for n in ORDER}
        self.update()

    def _spin(self, on: bool) -> None:
        running = self._turn.state() is QVariantAnimation.State.Running
        if on and duration("base") and not running and self.isVisible():
            self._turn.start()
        elif not on and running:
            self._turn.stop()

    def _retheme(self) -> None:
        self.setFixedHeight(px(HEIGHT))
        self._retell()

    def _retell(self) -> None:
        self.setAccessibleName(tr("VRAM split"))
        words = described(self._shown) if self._shown else again(self._empty)
        self.setAccessibleDescription(words)
        self.update()


def _rebased(base: Split, before: Split | None, applied: Split) -> Split:
    """Return where a drag began, in a division that changed under the pointer.

    Bounds may have moved; what the person did not touch follows a yield, or a context that grew.
    """
    return applied.like(base if before is None else base.following(before, applied))
