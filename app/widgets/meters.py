"""Figures with their unit, facts in rows, shares with their legend, stages of a job.

Small parts of the memory pages' cards; they take numbers and phrases, no view model.
"""

from collections.abc import Sequence

from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QAccessible, QAccessibleAnnouncementEvent, QPainter, QPaintEvent
from PySide6.QtWidgets import QWidget

from app.predict import amounts
from app.theme import CENTER, color, draw_text, follow, painter, pen, px, text_width
from app.widgets import icons
from app.widgets.bars import Bar
from app.widgets.labels import Dot, Icon, Label
from app.widgets.layout import hbox, vbox
from app.wording import again, tr


class Metric(QWidget):
    """The figure of a card, its unit, and a second figure at the right."""

    def __init__(self, unit: str) -> None:
        super().__init__()
        bottom = Qt.AlignmentFlag.AlignBottom
        self.value = Label("–", "metric", "text", 600)
        self.side = Label("", "meta", "text2")
        self.setLayout(
            hbox(
                (self.value, 0, bottom),
                (Label(unit, "meta", "text3"), 0, bottom),
                None,
                (self.side, 0, bottom),
                gap=5,
            )
        )

    def show_value(self, value: str, side: str = "", side_role: str = "text2") -> None:
        """Show a figure, "–" for none."""
        self.value.set_text(value)
        self.side.set_role(side_role)
        self.side.set_text(side)


class Fact(QWidget):
    """A row: name left, perhaps the old value, the value right."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.before = Label("", "meta", "text3")
        self.value = Label("–", "meta", "text", 500)
        self._name = Label(name, "meta", "text2")
        self.setLayout(hbox(self._name, None, self.before, self.value, gap=6))

    def set_name(self, name: str) -> None:
        """Call the row something else."""
        self._name.set_text(name)

    def show_value(self, value: str, before: str = "") -> None:
        """Show a value; `before` stands left of it with an arrow."""
        self.value.set_text(value)
        self.before.set_text(f"{before} →" if before else "")


class ShareMeter(QWidget):
    """Where routes ran: a stacked bar and its legend with per cent."""

    def __init__(self, names: Sequence[tuple[str, str]]) -> None:
        """Take pairs of series role and name, in drawing order."""
        super().__init__()
        self._names = tuple(names)
        self._shares: tuple[float, ...] | None = None
        self._bar = Bar((), 8)
        self._words = tuple(Label("", "caption", "text2") for _ in self._names)
        keys = [
            hbox(Dot(role), words, gap=5)
            for (role, _), words in zip(self._names, self._words, strict=True)
        ]
        self.setLayout(vbox(self._bar, hbox(*keys, None, gap=12), gap=6))
        follow(self._retell)

    def show_shares(self, shares: Sequence[float] | None) -> None:
        """Show shares of 1 in the order of the names; None = nothing ran yet."""
        self._shares = tuple(shares) if shares is not None else None
        self._retell()

    def rename(self, names: Sequence[tuple[str, str]]) -> None:
        """Use other names for the same roles."""
        self._names = tuple(names)
        self._retell()

    def _retell(self) -> None:
        shares = self._shares or (0.0,) * len(self._names)
        known = self._shares is not None
        told = []
        for (_, name), words, share in zip(self._names, self._words, shares, strict=True):
            figure = amounts.share(share) if known else "–"
            words.setText(f"{again(name)} {figure}")
            told.append(f"{again(name)} {figure}")
        self._bar.set_parts(
            [(role, share) for (role, _), share in zip(self._names, shares, strict=True) if known]
        )
        self._bar.set_name(", ".join(told))


class Sentence(QWidget):
    """A sign and a sentence that assistive tools read out when it changes."""

    LOOKS = {
        "info": ("info", "text3"),
        "pending": ("clock", "link"),
        "applied": ("check", "accentText"),
        "refused": ("error", "danger"),
        "warn": ("warn", "warn"),
    }

    def __init__(self) -> None:
        super().__init__()
        self._icon = Icon("info", 14, "text3")
        self.words = Label("", "meta", "text2", wrap=True)
        self._told = ""
        top = Qt.AlignmentFlag.AlignTop
        self.setLayout(hbox((vbox(self._icon, pad=(0, 1, 0, 0)), 0, top), (self.words, 1), gap=6))

    def show_text(self, tone: str, text: str) -> None:
        """Show a sentence; tones are the keys of LOOKS."""
        name, role = self.LOOKS[tone]
        self._icon.set_icon(name, role)
        self._icon.setVisible(bool(text))
        self.words.set_text(text)
        if text != self._told:
            self._told = str(text)
            self.setAccessibleName(self._told)
            if tone != "info":
                QAccessible.updateAccessibility(QAccessibleAnnouncementEvent(self, self._told))

    def natural_width(self) -> float:
        """The width of the whole sentence on one line, px at 100 %."""
        return text_width(self.words.text(), "meta") + 24


class StageDots(QWidget):
    """Stages of a job on one line: tick = done, arc = now, hollow = waiting, octagon = failed.

    `edge` is the room for the words beside the first and the last dot, px at 100 %: the same for
    lines that stand below each other, whatever the number of stages.
    """

    def __init__(self, stages: Sequence[str], width: int = 300, edge: int = 38) -> None:
        super().__init__()
        self._stages, self._width, self._edge = tuple(stages), width, edge
        self._now, self._share, self._state = 0, 0.0, "run"
        follow(self._measure)

    def set_width(self, width: int, edge: int) -> None:
        """Take another width and edge, px at 100 %."""
        if (width, edge) != (self._width, self._edge):
            self._width, self._edge = width, edge
            self._measure()

    def place(self, stage: int) -> float:
        """Return where the dot of a stage stands, in px at 100 %."""
        step = (self._width - 2 * self._edge) / max(1, len(self._stages) - 1)
        return self._edge + stage * step

    def show_stage(self, now: int, share: float | None, state: str = "run") -> None:
        """Show stage `now` with a share done; states: run, wait, fail, done."""
        self._now, self._share, self._state = now, share if share is not None else 0.3, state
        self._measure()

    def _measure(self) -> None:
        self.setFixedSize(px(self._width), px(36))
        last = len(self._stages)
        words = again(self._stages[min(self._now, last - 1)])
        name = tr(
            "Stage {number} of {count}: {stage}", number=self._now + 1, count=last, stage=words
        )
        self.setAccessibleName(name)
        self.update()

    def paintEvent(self, _event: QPaintEvent) -> None:
        """Draw lines, dots and words."""
        p, y, count = painter(self), 9.0, len(self._stages)
        step = self.place(1) - self.place(0)
        for i in range(count - 1):
            x, done = self.place(i), i < self._now
            p.setPen(pen("accent" if done else "control", 1.5, alpha=1 if done else 0.6))
            p.drawLine(QPointF(x + 9, y), QPointF(x + step - 9, y))
        for i, name in enumerate(self._stages):
            x = self.place(i)
            self._dot(p, i, QPointF(x, y))
            role = "text" if i == self._now else "text2" if i < self._now else "text3"
            weight = 600 if i == self._now else 400
            box = QRectF(x - step / 2, 20, step, 15)
            draw_text(p, box, again(name), "caption", role, weight, CENTER, elide=True)
        p.end()

    def _dot(self, p: QPainter, index: int, c: QPointF) -> None:
        if index < self._now or self._state == "done":
            p.setPen(Qt.PenStyle.NoPen)
            p.setBrush(color("accent"))
            p.drawEllipse(c, 6.5, 6.5)
            icons.draw(p, "check", QRectF(c.x() - 4.5, c.y() - 4.5, 9, 9), "accentInk", 2.6)
        elif index == self._now and self._state == "fail":
            icons.draw(p, "error", QRectF(c.x() - 8, c.y() - 8, 16, 16), "danger", 1.8)
        elif index == self._now and self._state == "run":
            p.setBrush(Qt.BrushStyle.NoBrush)
            p.setPen(pen("track", 2.5))
            p.drawEllipse(c, 6, 6)
            p.setPen(pen("accent", 2.5))
            box = QRectF(c.x() - 6, c.y() - 6, 12, 12)
            p.drawArc(box, 90 * 16, -round(self._share * 5760))
        else:
            p.setBrush(Qt.BrushStyle.NoBrush)
            p.setPen(pen("control", 1.5))
            p.drawEllipse(c, 5, 5)
