"""The stats line below a reply, and the trace that opens in place."""

from collections.abc import Sequence

from PySide6.QtCore import QPointF, QRectF, Qt, Signal
from PySide6.QtGui import QPaintEvent, QPolygonF, QResizeEvent
from PySide6.QtWidgets import QBoxLayout, QWidget

from app.services.chat_records import Message
from app.services.chat_words import has_routes, seconds_text, stats_text
from app.theme import RIGHT, area, color, draw_text, follow, painter, pen, px
from app.widgets import Bar, Button, Card, Chip, Dot, Elide, Label, fixed, hbox, holder, vbox
from app.widgets.layout import Box
from app.wording import again, figures, tr
from engine.protocol.messages import Trace

SERIES = (
    ("hit", tr("In the cache")),
    ("fill", tr("Copied for this use")),
    ("cpu", tr("Computed by the CPU")),
)
BAR_FROM = 480  # px of the line


def shares(trace: Trace) -> tuple[tuple[str, float], ...]:
    """Return the three shares as parts of a bar."""
    return (("hit", trace.hit_share), ("fill", trace.fill_share), ("cpu", trace.cpu_share))


class StatsLine(QWidget):
    """64 px bar, speed, first token, tokens, hits; Trace opens the card below.

    Signals:
        split_wanted: the person wants to see how memory is divided.
    """

    split_wanted = Signal()

    def __init__(self) -> None:
        super().__init__()
        self._message: Message | None = None
        self.bar = Bar(height=6, width=64)
        self.label = Elide("", "meta", "text2")
        self.trace = Button(tr("Trace"), "ghost", "performance", small=True, tail="down")
        self.trace.setCheckable(True)
        self.card: TraceCard | None = None
        self._column = vbox(hbox(self.bar, (self.label, 1), self.trace, gap=10), gap=8)
        self.setLayout(self._column)
        self.trace.toggled.connect(self._open)
        follow(self._tell)

    def _tell(self) -> None:
        """Say the figures in the present language: several phrases in one line."""
        if self._message is not None:
            self.label.set_text(stats_text(self._message))

    def set_message(self, message: Message) -> None:
        """Show the figures of a finished reply."""
        self._message = message
        trace = message.facts.trace
        self._tell()
        self.trace.setVisible(trace is not None)
        self._show_bar()
        if trace is not None and has_routes(message):
            self.bar.set_parts(shares(trace))
            self.bar.set_name(
                tr(
                    "Expert uses: {hit} in the cache, {fill} copied, {cpu} on the CPU",
                    hit=figures.share(trace.hit_share),
                    fill=figures.share(trace.fill_share),
                    cpu=figures.share(trace.cpu_share),
                )
            )
        if self.card is not None:
            self._open(False)
            self._open(self.trace.isChecked())

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Leave the bar out where the words need the room; the trace shows it larger."""
        super().resizeEvent(event)
        self._show_bar()

    def _show_bar(self) -> None:
        has = self._message is not None and has_routes(self._message)
        self.bar.setVisible(has and self.width() >= px(BAR_FROM))

    def _open(self, on: bool) -> None:
        if self.card is not None:
            self._column.removeWidget(self.card)
            self.card.hide()
            self.card.deleteLater()
            self.card = None
        if on and self._message is not None and self._message.facts.trace is not None:
            self.card = TraceCard(self._message, self._message.facts.trace)
            self.card.split.clicked.connect(self.split_wanted)
            self._column.addWidget(self.card)


class TraceCard(Card):
    """Where one reply's time and bytes went. Everything here is measured."""

    def __init__(self, message: Message, trace: Trace) -> None:
        columns = [_where(trace), _links(message, trace)]
        if message.facts.speed:
            columns.append(_along(message.facts.speed))
        self._row: Box = hbox(*((column, 1) for column in columns), gap=24)
        self.split = Button(tr("Open split"), small=True)
        foot = hbox(Chip(tr("Measured")), None, self.split, gap=8)
        super().__init__(vbox(self._row, foot, gap=10, pad=(16, 12, 14, 10)))
        fixed(self, min_width=200)  # not the sum of the columns: they may go below each other

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Put the columns below each other where they have no room."""
        super().resizeEvent(event)
        items = [self._row.itemAt(i) for i in range(self._row.count())]
        needed = sum(item.minimumSize().width() + px(24) for item in items if item is not None)
        way = QBoxLayout.Direction
        wanted = way.TopToBottom if self.width() < needed + px(6) else way.LeftToRight
        if self._row.direction() != wanted:
            self._row.setDirection(wanted)


def _head(text: str, value: str = "") -> QWidget:
    items = [Label(text, "meta", "text", 600), None, Label(value, "meta", "text", 600)]
    return fixed(holder(hbox(*items, gap=6)), height=20)


def _fact(name: str, value: str) -> Box:
    return hbox(Label(name, "meta", "text2"), None, Label(value, "meta", "text", 500), gap=7)


def _where(trace: Trace) -> Box:
    rows = [
        hbox(
            Dot(role),
            Label(name, "meta", "text2"),
            None,
            Label(figures.share(share), "meta", "text", 500),
            gap=7,
        )
        for (role, name), (_, share) in zip(SERIES, shares(trace), strict=True)
    ]
    bar = Bar(shares(trace), 8, name=tr("Where experts ran"))
    return vbox(_head(tr("Where experts ran")), bar, *rows, None, gap=7)


def _links(message: Message, trace: Trace) -> Box:
    usage = message.facts.usage
    rows = []
    if trace.decode_tokens_per_s > 0:
        rows.append(_fact(tr("Per token"), f"{1000 / trace.decode_tokens_per_s:.1f} ms"))
    rows.append(_fact(tr("Copies"), f"{trace.fill_gbps:.2f} GB/s"))
    rows.append(_fact(tr("CPU"), f"{trace.cpu_gbps:.2f} GB/s"))
    if trace.prefill_tokens_per_s > 0:
        speed = tr("{rate} tok/s", rate=figures.rate(trace.prefill_tokens_per_s))
        rows.append(_fact(tr("Prefill"), speed))
    if trace.queued_s >= 0.01:
        rows.append(_fact(tr("Waited"), f"{seconds_text(trace.queued_s)} s"))
    used = tr(
        "{reused} of {all}",
        reused=figures.tokens(usage.reused_tokens),
        all=figures.tokens(usage.prompt_tokens),
    )
    rows.append(_fact(tr("Context reused"), used))
    return vbox(_head(tr("Time and links")), *rows, None, gap=5)


def _along(speed: Sequence[float]) -> Box:
    title = Label(tr("Speed along the reply"), "meta", "text", 600)
    head = fixed(
        holder(hbox(title, Label(tr("tok/s"), "caption", "text3"), None, gap=6)), height=20
    )
    return vbox(head, SpeedCurve(speed), None, gap=7)


class SpeedCurve(QWidget):
    """Tokens per second along one reply; the last value stands at the end of the line."""

    def __init__(self, speed: Sequence[float]) -> None:
        super().__init__()
        self._speed = tuple(speed)
        fixed(self, height=92)
        follow(self.retheme)

    def retheme(self) -> None:
        """Say the figures in the present language."""
        self.setAccessibleName(
            tr(
                "Speed along the reply: {low} to {high} tokens per second, at the end {last}",
                low=figures.rate(min(self._speed)),
                high=figures.rate(max(self._speed)),
                last=figures.rate(self._speed[-1]),
            )
        )
        self.update()

    def paintEvent(self, _event: QPaintEvent) -> None:
        """Draw grid, area, line, end dot and labels."""
        p, whole = painter(self), area(self)
        top = max(self._speed) * 1.15 or 1.0
        plot = QRectF(28, 6, whole.width() - 28 - 36, whole.height() - 26)
        for share in (0.0, 0.5, 1.0):
            y = plot.bottom() - share * plot.height()
            p.setPen(pen("control" if share == 0 else "line"))
            p.drawLine(QPointF(plot.left(), y), QPointF(plot.right(), y))
            label = QRectF(0, y - 7, 24, 14)
            draw_text(
                p,
                label,
                figures.rate(share * top).removesuffix(".0"),
                "caption",
                "text3",
                align=RIGHT,
            )
        step = plot.width() / max(1, len(self._speed) - 1)
        points = [
            QPointF(plot.left() + i * step, plot.bottom() - plot.height() * value / top)
            for i, value in enumerate(self._speed)
        ]
        ground = QPolygonF([plot.bottomLeft(), *points, QPointF(points[-1].x(), plot.bottom())])
        p.setBrush(color("accent", 0.12))
        p.setPen(Qt.PenStyle.NoPen)
        p.drawPolygon(ground)
        p.setPen(pen("accent", 1.8))
        p.drawPolyline(QPolygonF(points))
        p.setBrush(color("accent"))
        p.drawEllipse(points[-1], 2.8, 2.8)
        end = QRectF(points[-1].x() + 6, points[-1].y() - 8, 34, 16)
        draw_text(p, end, figures.rate(self._speed[-1]), "caption", "text", 600)
        foot = QRectF(plot.left(), plot.bottom() + 4, plot.width(), 14)
        draw_text(p, foot, again(tr("first token")), "caption", "text3")
        draw_text(p, foot, again(tr("last")), "caption", "text3", align=RIGHT)
