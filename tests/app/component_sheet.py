"""Every basic part in every state on one sheet, for pictures and grab tests."""

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QWidget

from app.widgets.bars import Bar
from app.widgets.buttons import Button, Segmented, Toggle
from app.widgets.cards import Card, EmptyState, card_title
from app.widgets.chips import STATES, Chip, StatePill
from app.widgets.inputs import Combo, Field, LineField, Slider
from app.widgets.labels import Dot, Elide, Icon, Label, legend
from app.widgets.layout import Item, fixed, hbox, holder, vbox
from app.widgets.rail import Mark
from app.widgets.toasts import Toast
from app.wording import tr


def component_sheet() -> QWidget:
    """Return the sheet."""
    left = vbox(_pills(), _controls(), _inputs(), _chips(), None, gap=10)
    right = vbox(_bars(), _notes(), _type(), _empty(), None, gap=10)
    title = Label(tr("Components"), "title", "text", 600)
    head = hbox(Mark(20), title, None, Chip(tr("Sample data"), "outline"), gap=10)
    sheet = holder(
        vbox(head, hbox((left, 1), (right, 1), gap=12), gap=10, pad=(20, 12, 20, 12)), "canvas"
    )
    return fixed(sheet, 1100, 700)


def _section(title: str, *items: Item) -> Card:
    return Card(vbox(Label(title, "meta", "text2", 600), *items, gap=8, pad=(16, 10, 16, 12)))


def _pills() -> Card:
    pills = [StatePill(state, share=0.43 if state == "loading" else None) for state in STATES]
    return _section(tr("State pill"), hbox(*pills[:4], None), hbox(*pills[4:], None))


def _controls() -> Card:
    ringed = Button(tr("Focus"))
    ringed.ring = True
    toggle = Toggle(True, tr("Focus"))
    toggle.ring = True
    off = Toggle(True, tr("Disabled"))
    off.setEnabled(False)
    return _section(
        tr("Buttons"),
        hbox(
            Button(tr("Primary"), "primary"),
            Button(tr("Secondary")),
            Button(tr("Ghost"), "ghost"),
            Button(tr("Delete"), "danger", "trash"),
            None,
        ),
        hbox(
            ringed,
            Button(tr("Disabled"), enabled=False),
            Button(tr("Disabled"), "primary", enabled=False),
            Button(tr("Small"), small=True, icon="copy"),
            Button(tr("Menu"), "ghost", tail="down"),
            Button(kind="ghost", icon="search", name=tr("Search")),
            None,
        ),
        hbox(
            Toggle(True, tr("On")),
            Toggle(False, tr("Off")),
            toggle,
            off,
            Segmented((tr("Chat"), tr("Agent"), tr("Gaming"), tr("Custom")), 3, name=tr("Preset")),
            None,
        ),
    )


def _inputs() -> Card:
    wrong = Field(40, "GiB", 92, name=tr("Keep free"))
    wrong.set_error(True)
    ringed = Field(1176, tr("slots"), 120, name=tr("Experts"))
    ringed.ring = True
    off = Field(3, "GiB", 92, name=tr("Floor"))
    off.setEnabled(False)
    return _section(
        tr("Inputs"),
        hbox(Field(226, tr("K tokens"), 118, name=tr("KV cache")), ringed, wrong, off, None),
        hbox(
            Combo((tr("Code review"), tr("Custom")), name=tr("Preset"), width=150),
            LineField(tr("Search"), "search", 170),
            None,
        ),
        hbox((Slider(0.4, tr("Temperature")), 1), Label("0.40", "meta", "text2")),
    )


def _chips() -> Card:
    return _section(
        tr("Chips"),
        hbox(
            Chip("MXFP4"),
            Chip(tr("Fits"), "ok"),
            Chip(tr("Tight"), "warn"),
            Chip(tr("Too big"), "danger"),
            Chip(tr("Measured")),
            Chip(tr("Predicted")),
            None,
        ),
        hbox(
            Chip(tr("Sample data"), "outline"),
            Chip("Ctrl+K", mono=True),
            Icon("gpu", 16),
            Icon("cpu", 16),
            Icon("ram", 16),
            Dot("kv"),
            Dot("free"),
            Dot("text2", ring=True),
            None,
        ),
    )


def _bars() -> Card:
    series = (
        ("weights", tr("Weights")),
        ("kv", tr("KV cache")),
        ("experts", tr("Experts")),
        ("runtime", tr("Graphs")),
        ("other", tr("Other apps")),
        ("free", tr("Free")),
    )
    parts = [
        ("weights", 0.3),
        ("kv", 0.106),
        ("experts", 0.4),
        ("runtime", 0.044),
        ("free", 0.094),
        ("other", 0.056),
    ]
    ran = [("hit", 0.63), ("fill", 0.29), ("cpu", 0.08)]
    return _section(
        tr("Series"),
        legend(*series),
        Bar(parts, 8, name=tr("VRAM")),
        Bar(ran, 8, mark=0.7, name=tr("Where experts ran")),
        legend(
            ("hit", tr("Hit, in VRAM")),
            ("fill", tr("Fill, over PCIe")),
            ("cpu", tr("CPU, in place")),
        ),
    )


def _notes() -> Card:
    failed = Card(
        vbox(
            card_title(tr("The engine stopped"), Button(tr("Open log"), "ghost", small=True)),
            Elide(
                tr(
                    "Not below {least}: this chat already uses {used} tokens.",
                    least="1.2 GiB",
                    used="181K",
                ),
                "meta",
                "text2",
            ),
            gap=4,
            pad=(14, 8, 10, 10),
        ),
        edge="danger",
    )
    return _section(
        tr("Notes"),
        Toast(
            tr("Gave back {size} to a full-screen app", size="8.4 GiB"),
            "ok",
            tr("Details"),
            lambda: None,
        ),
        Toast(tr("Download paused: {size} left", size="18 GB"), "warn"),
        failed,
    )


def _type() -> Card:
    bottom = Qt.AlignmentFlag.AlignBottom
    steps = (
        ("hero", 600, "text"),
        ("title", 600, "text"),
        ("section", 600, "text"),
        ("read", 400, "text"),
        ("body", 400, "text"),
        ("meta", 400, "text2"),
        ("caption", 400, "text3"),
    )
    return _section(
        tr("Type"),
        hbox(
            *((Label("Ag 24.8", size, role, weight), bottom) for size, weight, role in steps),
            None,
            gap=10,
        ),
    )


def _empty() -> Card:
    button = Button(tr("New chat"), "primary", "plus")
    return Card(vbox(EmptyState(tr("No chats yet."), button, icon="chat")))
