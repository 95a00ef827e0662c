"""The rail at the left edge: the pages, and the meters at its foot.

Knows no page and no view model; the main window feeds it.
"""

from collections.abc import Sequence
from typing import Protocol

from PySide6.QtCore import QRectF, QSize, Qt, Signal
from PySide6.QtGui import QPaintEvent
from PySide6.QtWidgets import QButtonGroup, QPushButton, QWidget

from app.theme import (
    CENTER,
    RIGHT,
    SIZE,
    area,
    color,
    draw_ring,
    draw_text,
    follow,
    painter,
    px,
)
from app.widgets import icons
from app.widgets.bars import Bar
from app.widgets.buttons import Button
from app.widgets.cards import Line
from app.widgets.focus import FocusRing
from app.widgets.labels import Elide, Label
from app.widgets.layout import fixed, hbox, holder, vbox
from app.wording import Phrase, again, figures, tr
from app.wording.figures import memory_pair

Parts = Sequence[tuple[str, int]]  # series role, bytes


class Reading(Protocol):
    """What the meter of the machine says; bytes and degrees, None = unknown."""

    @property
    def gpu_name(self) -> str | None: ...  # noqa: D102
    @property
    def vram_used(self) -> int | None: ...  # noqa: D102
    @property
    def vram_total(self) -> int | None: ...  # noqa: D102
    @property
    def temperature(self) -> float | None: ...  # noqa: D102
    @property
    def ram_used(self) -> int: ...  # noqa: D102
    @property
    def ram_total(self) -> int: ...  # noqa: D102


class Mark(QWidget):
    """The sign of the product is the split bar itself."""

    def __init__(self, size: int = 20) -> None:
        super().__init__()
        fixed(self, size, size)
        follow(self.update)

    def paintEvent(self, _event: QPaintEvent) -> None:
        """Draw three bars: weights, KV, experts."""
        p = painter(self)
        unit = area(self).width() / 20
        p.setPen(Qt.PenStyle.NoPen)
        for x, width, top, role in ((1, 4, 7, "weights"), (6.6, 4, 4, "kv"), (12.2, 6.8, 1, "hit")):
            p.setBrush(color(role))
            bar = QRectF(x * unit, top * unit, width * unit, (19 - top) * unit)
            p.drawRoundedRect(bar, 1.6 * unit, 1.6 * unit)


class NavItem(FocusRing, QPushButton):
    """One page in a list of pages: icon, word, badge; folded, the icon alone."""

    def __init__(self, icon: str, text: str) -> None:
        super().__init__()
        self._icon, self._words = icon, text
        self._badge, self._folded = "", False
        self.setCheckable(True)
        self.setAutoDefault(False)
        self.setAttribute(Qt.WidgetAttribute.WA_Hover)
        fixed(self, height=SIZE["navItem"])
        follow(self.retheme)

    def set_badge(self, badge: str) -> None:
        """Show a short figure at the right end, such as a job's per cent."""
        self._badge = badge
        self.retheme()

    def set_folded(self, folded: bool) -> None:
        """Show the icon alone, with the word as tool tip."""
        self._folded = folded
        self.retheme()

    def retheme(self) -> None:
        """Take the words from the present language."""
        words, badge = again(self._words), again(self._badge)
        self.setText(words)
        self.setAccessibleName(f"{words}, {badge}" if badge else words)
        self.setToolTip((f"{words} · {badge}" if badge else words) if self._folded else "")
        self.update()

    def sizeHint(self) -> QSize:
        """Any width; the height of a row."""
        return QSize(px(40), px(SIZE["navItem"]))

    def minimumSizeHint(self) -> QSize:
        """Room for the icon."""
        return self.sizeHint()

    def paintEvent(self, _event: QPaintEvent) -> None:
        """Draw ground, accent bar, icon, word and badge."""
        p, whole = painter(self), area(self)
        on, over = self.isChecked(), self.underMouse()
        p.setPen(Qt.PenStyle.NoPen)
        if on or over:
            p.setBrush(color("selected" if on else "hover"))
            p.drawRoundedRect(whole.adjusted(0, 1, 0, -1), 6, 6)
        if on:
            p.setBrush(color("accent"))
            p.drawRoundedRect(QRectF(0, 9, 3, whole.height() - 18), 1.5, 1.5)
        ink = "text" if on or over else "text2"
        icons.draw(p, self._icon, QRectF(11, (whole.height() - 17) / 2, 17, 17), ink)
        if self._folded:
            if self._badge:
                p.setBrush(color("link"))
                p.drawEllipse(QRectF(whole.width() - 11, 6, 6, 6))
        else:
            word = whole.adjusted(38, 0, -8, 0)
            draw_text(p, word, self.text(), "body", ink, 500, elide=True)
            badge = whole.adjusted(0, 0, -10, 0)
            draw_text(p, badge, again(self._badge), "caption", "text3", 500, RIGHT)
        if self.ring:
            draw_ring(p, whole.adjusted(0, 1, 0, -1), 6)


class MeterCard(QWidget):
    """Foot of the open rail: device, VRAM and RAM; goes on after the engine has ended."""

    def __init__(self) -> None:
        super().__init__()
        self.device = Elide("", "meta", "text2", 500)
        self.heat = Label("", "caption", "text3")
        self.vram_text = Label("–", "caption", "text2")
        self.ram_text = Label("–", "caption", "text2")
        self.vram_name = Elide(tr("VRAM"), "caption", "text3")
        self.vram = Bar(height=6, name=tr("VRAM"))
        self.ram = Bar(height=6, name=tr("RAM"))
        self.setLayout(
            vbox(
                Line(),
                hbox((self.device, 1), self.heat, gap=6, pad=(0, 6, 0, 2)),
                hbox((self.vram_name, 1), self.vram_text, gap=4),
                self.vram,
                3,
                hbox(Label(tr("RAM"), "caption", "text3"), None, self.ram_text, gap=4),
                self.ram,
                gap=5,
                pad=(12, 0, 12, 14),
            )
        )


class SlimMeters(QWidget):
    """Foot of the folded rail: the same two bars, upright."""

    def __init__(self) -> None:
        super().__init__()
        self._bars: list[Sequence[tuple[str, float]]] = [(), ()]
        self._name = tr("VRAM and RAM")
        fixed(self, SIZE["railCollapsed"], 96)
        follow(self.retheme)

    def set_bars(
        self, vram: Sequence[tuple[str, float]], ram: Sequence[tuple[str, float]], name: Phrase
    ) -> None:
        """Show shares of 1 by series; `name` says them in words."""
        self._bars, self._name = [vram, ram], name
        self.retheme()

    def retheme(self) -> None:
        """Say the figures in the present language."""
        self.setAccessibleName(again(self._name))
        self.setToolTip(again(self._name))
        self.update()

    def paintEvent(self, _event: QPaintEvent) -> None:
        """Draw both bars from the bottom up."""
        p = painter(self)
        for index, parts in enumerate(self._bars):
            x, y, full = 16.0 + index * 14, 80.0, 68.0
            p.fillRect(QRectF(x, y - full, 8, full), color("track"))
            for role, share in parts:
                height = share * full
                if height > 0:
                    p.fillRect(QRectF(x, y - height, 8, max(1.0, height - 1)), color(role))
                y -= height
            draw_text(p, QRectF(x - 10, 81, 28, 14), "VR"[index], "caption", "text3", 500, CENTER)


class Rail(QWidget):
    """Pages and meters.

    Signals:
        chosen: name of the page the person picked.
        fold_clicked: the person asked to fold or unfold.
    """

    chosen = Signal(str)
    fold_clicked = Signal()

    def __init__(self, pages: Sequence[tuple[str, Phrase]]) -> None:
        super().__init__()
        self.setObjectName("rail")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self._names = [name for name, _ in pages]
        self.items = {name: NavItem(name, text) for name, text in pages}
        self._group = QButtonGroup(self)
        for index, item in enumerate(self.items.values()):
            self._group.addButton(item, index)
        self._group.idClicked.connect(self._choose)
        self.fold = Button(kind="ghost", icon="sidebar", small=True, name=tr("Fold the rail"))
        self.fold.clicked.connect(self.fold_clicked)
        self._word = Label("FreeToken", "body", "text", 600)
        self._head = hbox(Mark(18), self._word, None, self.fold, gap=9, pad=(14, 0, 8, 0))
        self.meters, self.slim = MeterCard(), SlimMeters()
        self.folded = False
        self._parts: tuple[Parts, int, int] | None = None  # pools, total, expert bytes in RAM
        self._emulated = True  # what the engine divides is an ordinary buffer
        self._reading: Reading | None = None
        upper, last = list(self.items.values())[:-1], list(self.items.values())[-1]
        self.setLayout(
            vbox(
                fixed(holder(self._head), height=SIZE["strip"]),
                holder(vbox(*upper, gap=2, pad=(8, 4, 8, 0))),
                None,
                holder(vbox(last, pad=(8, 0, 8, 8))),
                self.meters,
                self.slim,
                gap=0,
            )
        )
        self.set_folded(False)
        self._show_meters()

    def set_page(self, name: str) -> None:
        """Mark the page in front; of a page that is not in the rail none is marked."""
        self._group.setExclusive(name in self.items)
        for key, item in self.items.items():
            item.setChecked(key == name)

    def set_badge(self, name: str, badge: str) -> None:
        """Show a short figure beside a page."""
        self.items[name].set_badge(badge)

    def set_folded(self, folded: bool) -> None:
        """Show icons alone and upright bars, or the whole."""
        self.folded = folded
        for item in self.items.values():
            item.set_folded(folded)
        self._word.setVisible(not folded)
        self.fold.setVisible(not folded)
        self._head.set_pad((18, 0, 0, 0) if folded else (14, 0, 8, 0))
        self.meters.setVisible(not folded)
        self.slim.setVisible(folded)
        fixed(self, SIZE["railCollapsed" if folded else "rail"])

    def set_meter(self, reading: Reading) -> None:
        """Show the machine's memory as the driver and the system report it."""
        self._reading = reading
        self._show_meters()

    def set_pools(
        self, parts: Parts, total_bytes: int, expert_ram_bytes: int, emulated: bool = False
    ) -> None:
        """Show how the engine divides the device; no parts = no engine or no model."""
        self._emulated = emulated
        self._parts = (parts, total_bytes, expert_ram_bytes) if parts else None
        self._show_meters()

    def _choose(self, index: int) -> None:
        self.chosen.emit(self._names[index])

    def _show_meters(self) -> None:
        reading, card = self._reading, self.meters
        gpu = reading.gpu_name if reading else None
        emulated = self._emulated if self._parts is not None else not gpu
        card.device.set_text(figures.card_name(gpu) if gpu else tr("CPU · emulated VRAM"))
        card.device.set_tip(gpu or "")
        card.vram_name.set_text(tr("Emulated") if emulated else tr("VRAM"))
        heat = reading.temperature if reading else None
        card.heat.set_text("" if heat is None else f"{heat:.0f} °C")
        vram, vram_text = self._vram()
        card.vram.set_parts(vram)
        card.vram_text.set_text(vram_text)
        ram, ram_text = self._ram()
        card.ram.set_parts(ram)
        card.ram_text.set_text(ram_text)
        spoken = tr("VRAM {vram}, RAM {ram}", vram=vram_text, ram=ram_text)
        card.vram.set_name(tr("VRAM {vram}", vram=vram_text))
        if emulated:
            spoken = tr("Emulated VRAM {vram}, RAM {ram}", vram=vram_text, ram=ram_text)
            card.vram.set_name(tr("Emulated VRAM {vram}", vram=vram_text))
        card.ram.set_name(tr("RAM {ram}", ram=ram_text))
        self.slim.set_bars(vram, ram, spoken)

    def _vram(self) -> tuple[list[tuple[str, float]], str]:
        """Return bar parts and text; what the driver sees beyond the pools is other apps'."""
        reading = self._reading
        if self._parts is not None:
            parts, total, _ = self._parts
            shares = [(role, size / total) for role, size in parts if total]
            used = sum(size for role, size in parts if role != "free")
            return shares, memory_pair(used, total)
        if reading and reading.gpu_name and reading.vram_total:
            used = reading.vram_used or 0
            return [("other", used / reading.vram_total)], memory_pair(used, reading.vram_total)
        return [], "–"

    def _ram(self) -> tuple[list[tuple[str, float]], str]:
        reading = self._reading
        if reading is None or not reading.ram_total:
            return [], "–"
        experts = min(self._parts[2] if self._parts else 0, reading.ram_used)
        total = reading.ram_total
        shares = [("experts", experts / total), ("other", (reading.ram_used - experts) / total)]
        return shares, memory_pair(reading.ram_used, total)
