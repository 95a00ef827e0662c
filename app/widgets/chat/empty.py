"""A conversation not yet begun: the mark, one sentence, the model's state, three prompts."""

from PySide6.QtCore import QRectF, QSize, Qt, Signal
from PySide6.QtGui import QFontMetricsF, QPaintEvent, QResizeEvent
from PySide6.QtWidgets import QPushButton, QSizePolicy, QWidget

from app.theme import (
    RADIUS,
    area,
    base_font,
    color,
    draw_ring,
    draw_text,
    follow,
    painter,
    pen,
    px,
)
from app.widgets import Bar, Button, Card, Chip, Label, hbox, icons, vbox
from app.widgets.focus import FocusRing
from app.widgets.layout import Box, turn
from app.widgets.rail import Mark
from app.wording import Phrase, again, figures, tr

# icon, title, line below, and what is put into the composer
PROMPTS: tuple[tuple[str, Phrase, Phrase, Phrase], ...] = (
    (
        "edit",
        tr("Rewrite a text"),
        tr("Shorter, kinder, or in another language"),
        tr("Rewrite this text so that it is shorter and friendlier:\n\n"),
    ),
    (
        "logs",
        tr("Read a file"),
        tr("Drop a text file into the message"),
        tr("Read the following file and tell me what matters in it:\n\n"),
    ),
    (
        "bolt",
        tr("Explain an idea"),
        tr("Step by step, with an example"),
        tr("Explain step by step, with an example, how a cache decides what to keep."),
    ),
)


TURNS_BELOW = 460  # px of the card
WAITS_FOR_MODEL = tr("Write now: the message waits until a model is loaded.")


class PromptCard(FocusRing, QPushButton):
    """A suggestion that fills the composer."""

    def __init__(self, icon: str, title: str, text: str, prompt: str) -> None:
        super().__init__()
        self._icon, self._title, self._text, self.prompt = icon, title, text, prompt
        self.setAutoDefault(False)
        self.setAttribute(Qt.WidgetAttribute.WA_Hover)
        policy = QSizePolicy.Policy
        self.setSizePolicy(policy.Expanding, policy.Fixed)
        follow(self.retheme)

    def retheme(self) -> None:
        """Take words and size from the present language and zoom."""
        self.setText(again(self._title))
        self.setAccessibleName(again(self._title))
        self.setAccessibleDescription(again(self._text))
        self.setFixedHeight(px(108))
        self.update()

    def sizeHint(self) -> QSize:
        """The row decides the width."""
        return self.minimumSizeHint()

    def minimumSizeHint(self) -> QSize:
        """Narrow columns are fine: the words wrap."""
        return QSize(px(110), px(108))

    def paintEvent(self, _event: QPaintEvent) -> None:
        """Draw the card."""
        p, whole = painter(self), area(self)
        p.setBrush(color("hover" if self.underMouse() else "surface"))
        p.setPen(pen("control" if self.underMouse() else "line"))
        p.drawRoundedRect(whole.adjusted(0.5, 0.5, -0.5, -0.5), RADIUS["card"], RADIUS["card"])
        icons.draw(p, self._icon, QRectF(13, 12, 18, 18), "text2")
        inside = whole.adjusted(14, 0, -12, 0)
        title = QRectF(inside.left(), 36, inside.width(), 18)
        draw_text(p, title, self.text(), "body", "text", 500, elide=True)
        face = base_font("meta")
        p.setFont(face)
        p.setPen(color("text3"))
        words = QRectF(inside.left(), 56, inside.width(), QFontMetricsF(face).lineSpacing() * 3)
        flags = Qt.AlignmentFlag.AlignLeft.value | Qt.TextFlag.TextWordWrap.value
        p.drawText(words, flags, again(self._text))
        if self.ring:
            draw_ring(p, whole, RADIUS["card"])


class ModelCard(Card):
    """Which model will answer, or how to get one.

    Signals:
        load_wanted(), models_wanted().
    """

    load_wanted = Signal()
    models_wanted = Signal()

    def __init__(self) -> None:
        self._name = Label("", "body", "text", 600)
        self._format = Chip("")
        self._line = Label("", "meta", "text2", wrap=True)
        self._bar = Bar((), 4, name=tr("Progress"))
        self.load = Button(tr("Load"), "primary", "play")
        self.choose = Button(tr("Choose a model"))
        words = vbox(hbox(self._name, self._format, None, gap=8), self._line, self._bar, gap=5)
        buttons = hbox("flex", self.choose, self.load, gap=8)
        self._row: Box = hbox((words, 1), buttons, gap=8, pad=(16, 12, 14, 12))
        super().__init__(self._row)
        self.load.clicked.connect(self.load_wanted)
        self.choose.clicked.connect(self.models_wanted)

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Put the buttons below the words where both do not fit."""
        super().resizeEvent(event)
        turn(self._row, self.width() < px(TURNS_BELOW))

    def set_model(self, name: str, quant: str) -> None:
        """Show a loaded model, or none."""
        self._format.set_text(figures.weight_format(quant))
        self._format.setVisible(bool(name and quant))
        self.load.setVisible(not name)
        self.choose.setVisible(not name)
        self._bar.hide()
        self._name.set_text(name or tr("No model is loaded"))
        ready, none = tr("Loaded and ready to answer."), WAITS_FOR_MODEL
        self._line.set_text(ready if name else none)

    def set_coming(self, name: str, doing: str, share: float | None) -> None:
        """Show a model on its way: what is done now, and how much of it."""
        for widget in (self._format, self.load, self.choose):
            widget.hide()
        self._name.set_text(name or tr("A model is loading"))
        self._line.set_text(
            tr("{doing}. Write now: the message is sent when the model is ready.", doing=doing)
        )
        self._bar.set_parts([("accent", share or 0.0)])
        self._bar.show()


class EmptyChat(QWidget):
    """Shown instead of messages.

    Attributes:
        model: which model will answer.
        place: above the prompts, for what is more urgent than they are.

    Signals:
        prompted: (text) put it into the composer.
    """

    prompted = Signal(str)

    def __init__(self) -> None:
        super().__init__()
        center = Qt.AlignmentFlag.AlignHCenter
        title = Label(tr("What would you like to work on?"), "title", "text", 600, wrap=True)
        title.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self.model = ModelCard()
        self.prompts = [PromptCard(*facts) for facts in PROMPTS]
        for card in self.prompts:
            card.clicked.connect(self._on_card)
        self._row: Box = hbox(*((card, 1) for card in self.prompts), gap=10)
        self.place = vbox(gap=0)
        self.setLayout(
            vbox((Mark(40), center), 6, title, 10, self.model, self.place, self._row, gap=10)
        )

    def _on_card(self) -> None:
        card = self.sender()
        if isinstance(card, PromptCard):
            self.prompted.emit(again(card.prompt))

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Drop the third prompt where three have no room."""
        super().resizeEvent(event)
        self.prompts[2].setVisible(self.width() >= px(380))
