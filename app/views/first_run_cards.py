"""The cards of the first run: a numbered step, a part of the machine, an offered model."""

from PySide6.QtCore import QPointF, QRectF, Qt, Signal
from PySide6.QtGui import QPaintEvent
from PySide6.QtWidgets import QSizePolicy, QWidget

from app.predict.hardware import Tone
from app.theme import CENTER, area, color, draw_text, follow, painter, pen
from app.viewmodels.first_run import Offer, StepState
from app.viewmodels.first_run_words import PartWords, offer_reason, offer_speed
from app.views.models_parts import GET_STATES
from app.widgets import icons
from app.widgets.buttons import Button
from app.widgets.cards import Card
from app.widgets.chips import Chip
from app.widgets.labels import Elide, Icon, Label
from app.widgets.layout import fixed, hbox, holder, vbox
from app.wording import Phrase, tr

_TOP = Qt.AlignmentFlag.AlignTop
_SIGNS: dict[Tone, tuple[str, str]] = {
    "ok": ("check", "accentText"),
    "warn": ("warn", "warn"),
    "plain": ("info", "text2"),
}
_STATES: dict[StepState, Phrase] = {
    "wait": tr("later"),
    "now": tr("your turn"),
    "busy": tr("under way"),
    "done": tr("done"),
    "failed": tr("failed"),
    "skipped": tr("skipped"),
}


class StepMark(QWidget):
    """The number of a step in a ring; a tick when done, a cross when failed, a dash if skipped."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self._number = number
        self._state: StepState = "wait"
        fixed(self, 26, 26)
        follow(self._retell)

    def show_state(self, state: StepState) -> None:
        """Show how the step stands."""
        self._state = state
        self._retell()

    def _retell(self) -> None:
        state = _STATES[self._state]
        words = tr("Step {number}: {state}", number=self._number, state=state)
        self.setAccessibleName(words)
        self.setToolTip(words)
        self.update()

    def paintEvent(self, _event: QPaintEvent) -> None:
        """Draw it."""
        p, center = painter(self), QPointF(13, 13)
        signs = {"failed": ("x", "danger"), "skipped": ("minus", "text3")}
        if self._state == "done":
            p.setPen(Qt.PenStyle.NoPen)
            p.setBrush(color("accent"))
            p.drawEllipse(center, 12, 12)
            icons.draw(p, "check", QRectF(6, 6, 14, 14), "accentInk", 2.2)
            return
        is_turn = self._state in ("now", "busy")
        icon, role = signs.get(self._state, ("", "accent" if is_turn else "control"))
        p.setPen(pen(role, 1.6))
        p.setBrush(Qt.BrushStyle.NoBrush)
        p.drawEllipse(center, 11.5, 11.5)
        if icon:
            icons.draw(p, icon, QRectF(6, 6, 14, 14), role, 2.0)
        else:
            ink = "text" if is_turn else "text2"
            draw_text(p, area(self), str(self._number), "meta", ink, 600, CENTER)


class StepCard(Card):
    """One step: mark, title, a line of text, Skip; below it what belongs to its turn.

    Signals:
        skipped(): go on without it.
    """

    skipped = Signal()

    def __init__(self, number: int, title: Phrase, *actions: Button) -> None:
        self.mark = StepMark(number)
        self._title = Label(title, "section", "text2", 600, wrap=True)
        self.text = Label("", "meta", "text2", wrap=True)
        self.skip = Button(tr("Skip"), "ghost", name=tr("Skip: {step}", step=title))
        words = vbox(self._title, self.text, gap=2)
        head = hbox((self.mark, 0, _TOP), (words, 1), *actions, self.skip, gap=14)
        self._body: QWidget | None = None
        self._column = vbox(head, gap=14, pad=(18, 14, 16, 14))
        super().__init__(self._column)
        self.skip.clicked.connect(self.skipped)

    def set_body(self, body: QWidget) -> None:
        """Put something below the head."""
        self._body = body
        self._column.put(body)

    def show_step(self, state: StepState, text: str, with_body: bool) -> None:
        """Show how the step stands, what is to be said, and perhaps its lower part."""
        self.mark.show_state(state)
        self._title.set_role("text2" if state in ("wait", "skipped") else "text")
        self.text.set_text(text)
        self.text.set_role("danger" if state == "failed" else "text2")
        self.set_look(edge="danger" if state == "failed" else "")
        self.skip.setVisible(state in ("wait", "now", "busy", "failed"))
        if self._body is not None:
            self._body.setVisible(with_body)


class PartTile(Card):
    """A part of the machine: its number, and a verdict in words with a sign."""

    def __init__(self) -> None:
        self._icon, self._name = Icon("info", 16, "text2"), Label("", "meta", "text2")
        self._value = Label("–", "body", "text", 600, wrap=True)
        self._sign = Icon("info", 14, "text2")
        self._verdict = Label("", "meta", "text2", wrap=True)
        super().__init__(
            vbox(
                hbox(self._icon, self._name, None, gap=7),
                self._value,
                hbox((self._sign, 0, _TOP), (self._verdict, 1), gap=6),
                None,
                gap=5,
                pad=(12, 10, 10, 10),
            ),
            fill="raised",
            border="",
            radius=8,
        )
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Preferred)

    def show_part(self, words: PartWords, tone: Tone) -> None:
        """Show a part with its judgement."""
        sign, role = _SIGNS[tone]
        self._icon.set_icon(words.icon)
        self._name.set_text(words.name)
        self._value.set_text(words.value)
        self._sign.set_icon(sign, role)
        self._verdict.set_text(words.verdict)
        self._verdict.set_role(role)


class OfferRow(QWidget):
    """A model that fits: name, why, predicted speed, Get.

    Signals:
        get_asked(str): with the repository.
    """

    get_asked = Signal(str)

    def __init__(self, repo: str) -> None:
        super().__init__()
        self._repo = repo
        self._name, self._why = Elide("", "body", "text", 600), Elide("", "meta", "text2")
        self._origin, self._speed = Chip(tr("Predicted")), Label("", "meta", "text", 600)
        self._said = Label("", "meta", "text2")
        self.get = Button(tr("Get"), "secondary", "download", small=True)
        words = vbox(self._name, self._why, gap=2)
        end = fixed(holder(hbox(None, self._said, self.get, gap=0)), min_width=96)
        speed = hbox(self._origin, self._speed, gap=8)
        self.setLayout(hbox((words, 1), speed, end, gap=14, pad=(0, 6, 0, 6)))
        self.get.clicked.connect(self._ask)

    def show_offer(self, offer: Offer) -> None:
        """Show a model as it stands now."""
        self._name.set_text(offer.entry.title)
        self._why.set_text(offer_reason(offer))
        self._speed.set_text(offer_speed(offer))
        is_predicted = offer.suggestion.guess is not None
        self._origin.setVisible(is_predicted)
        self._speed.set_role("text" if is_predicted else "text3")
        self.get.setVisible(offer.state == "get")
        self.get.set_name(tr("{action}: {name}", action=tr("Get"), name=offer.entry.repo))
        self._said.setVisible(offer.state != "get")
        self._said.set_text(GET_STATES.get(offer.state, ""))
        self.setAccessibleName(offer.entry.repo)

    def _ask(self) -> None:
        self.get_asked.emit(self._repo)
