"""The panel of this chat: system prompt, sampling, and what fills the context."""

from dataclasses import dataclass

from PySide6.QtCore import Qt, QTimer, Signal
from PySide6.QtGui import QHideEvent
from PySide6.QtWidgets import QWidget

from app.services.chat_records import REASONING, Reasoning
from app.services.chat_words import REASONING_WORDS
from app.widgets import (
    Bar,
    Button,
    Card,
    Combo,
    Field,
    Label,
    LineField,
    Scroll,
    Slider,
    hbox,
    holder,
    vbox,
)
from app.widgets.chat.edits import GrowingEdit
from app.widgets.chat.presets import PresetRow
from app.widgets.layout import Box
from app.wording import figures, tr
from engine.protocol.messages import Sampling

TYPED_MS = 500
NO_SEED = -1
FILL = (
    ("system", tr("System prompt")),
    ("files", tr("Attached files")),
    ("talk", tr("Conversation")),
    ("draft", tr("Draft")),
    ("room", tr("Room for the reply")),
)


@dataclass(frozen=True, slots=True)
class ContextFill:
    """Tokens of the conversation, of the draft, and what one may take (0 = unknown).

    Attributes:
        system, files: parts of `used`: system prompt, attached files.
        longest_reply: what the next reply may want.
    """

    used: int = 0
    draft: int = 0
    capacity: int = 0
    system: int = 0
    files: int = 0
    longest_reply: int = 0

    @property
    def room(self) -> int:
        """What is left for the next reply."""
        return max(0, self.capacity - self.used - self.draft)


class Inspector(QWidget):
    """Values of this chat. They hold from the next reply on.

    Signals:
        prompt_changed(text), changed(dict of sampling values), reset(), closed(),
        reasoned(choice); those of presets are at `presets`.
    """

    prompt_changed = Signal(str)
    changed = Signal(dict)
    reset = Signal()
    closed = Signal()
    reasoned = Signal(str)

    def __init__(self) -> None:
        super().__init__()
        self.setObjectName("canvas")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self.close_button = Button("", "ghost", "x", small=True, name=tr("Close the inspector"))
        self.presets = PresetRow()
        words = [REASONING_WORDS[choice] for choice in REASONING]
        self.reasoning = Combo(words, width=None, name=tr("Reasoning"))
        self.prompt = GrowingEdit(
            tr("System prompt"),
            tr("How the model should answer in this chat"),
            most=10,
            least=4,
            size="meta",
            enter_submits=False,
        )
        self._typed = QTimer(self)
        self._typed.setSingleShot(True)
        self._typed.setInterval(TYPED_MS)
        self.sliders: dict[str, Slider] = {}
        self.fields: dict[str, Field] = {}
        self.stop = LineField(tr("None"), name=tr("Stop strings, separated by commas"))
        self.reset_button = Button(tr("Use the defaults"), "ghost", "undo", small=True)
        self.meter = Bar(height=6, name=tr("Context in use"))
        self._context = Label("", "caption", "text3")
        self._fill = {part: Label("", "meta", "text2", 500) for part, _ in FILL}
        self._fill_rows: dict[str, QWidget] = {}
        self._room = Label("", "caption", "warn", wrap=True)
        self._origin = Label("", "caption", "text3")
        self.setLayout(vbox(Scroll(self._content())))
        self._typed.timeout.connect(self._tell_prompt)
        self.prompt.textChanged.connect(self._typed.start)
        self.stop.editingFinished.connect(self._tell_stop)
        self.reset_button.clicked.connect(self.reset)
        self.close_button.clicked.connect(self.closed)
        self.reasoning.activated.connect(self._tell_reasoning)

    def _content(self) -> QWidget:
        prompt = Card(
            vbox(self.prompt, pad=(9, 6, 6, 6)), fill="raised", border="control", radius=6
        )
        rows = [
            self._slider("temperature", tr("Temperature"), 0.0, 2.0, 0.05),
            self._slider("top_p", tr("Top-p"), 0.0, 1.0, 0.01),
            self._field("min_p", tr("Min-p"), 0.0, 1.0, 0.01, 2),
            self._field("top_k", tr("Top-k"), 0, 1_000_000, 1, 0, tr("Off")),
            self._field("repetition_penalty", tr("Repetition penalty"), 0.1, 5.0, 0.05, 2),
            self._field("presence_penalty", tr("Presence penalty"), -2.0, 2.0, 0.1, 2),
            self._field("frequency_penalty", tr("Frequency penalty"), -2.0, 2.0, 0.1, 2),
            self._field("max_tokens", tr("Tokens per reply"), 1, 1_000_000, 64, 0),
            self._field("seed", tr("Seed"), NO_SEED, 2**31 - 1, 1, 0, tr("Random")),
        ]
        words = Label(tr("Stop strings, separated by commas"), "meta", "text2", wrap=True)
        stop = vbox(words, self.stop, gap=3)
        return holder(
            vbox(
                hbox(Label(tr("This chat"), "body", "text", 600), None, self.close_button),
                _section(tr("Preset")),
                self.presets,
                2,
                _section(tr("System prompt")),
                prompt,
                2,
                _section(tr("Reasoning")),
                self.reasoning,
                Label(tr("For models whose template knows it"), "caption", "text3", wrap=True),
                2,
                hbox(_section(tr("Sampling")), None, self._origin),
                *rows,
                stop,
                hbox(self.reset_button, None),
                2,
                hbox(_section(tr("Context")), None, self._context),
                self.meter,
                *(self._fill_row(part, words) for part, words in FILL),
                self._room,
                None,
                gap=6,
                pad=(16, 12, 18, 12),
            )
        )

    def _fill_row(self, part: str, words: str) -> QWidget:
        row = holder(hbox(Label(words, "meta", "text2"), None, self._fill[part]))
        self._fill_rows[part] = row
        return row

    def show_prompt(self, text: str) -> None:
        """Show the system prompt of another chat; what is being typed stays."""
        if text != self.prompt.toPlainText() and not self._typed.isActive():
            self.prompt.blockSignals(True)
            self.prompt.setPlainText(text)
            self.prompt.blockSignals(False)

    def show_reasoning(self, reasoning: Reasoning) -> None:
        """Show how much the model shall think."""
        self.reasoning.setCurrentIndex(REASONING.index(reasoning))

    def show_sampling(self, sampling: Sampling, is_own: bool) -> None:
        """Show values; `is_own` = this chat has its own."""
        for name, slider in self.sliders.items():
            slider.set_number(getattr(sampling, name))
        for name, field in self.fields.items():
            value = getattr(sampling, name)
            field.show_value(NO_SEED if value is None else value)
        if not self.stop.hasFocus():
            self.stop.setText(", ".join(sampling.stop))
        self._origin.set_text(tr("Own values") if is_own else tr("Defaults"))
        self.reset_button.setEnabled(is_own)

    def show_context(self, fill: ContextFill) -> None:
        """Show how much of the context is in use."""
        share = fill.used / fill.capacity if fill.capacity else 0.0
        draft = fill.draft / fill.capacity if fill.capacity else 0.0
        self.meter.set_parts([("kv", min(1.0, share)), ("runtime", min(1.0, draft))])
        whole = tr(
            "{used} of {all} tokens",
            used=figures.tokens(fill.used + fill.draft),
            all=figures.tokens(fill.capacity),
        )
        self._context.set_text(whole if fill.capacity else tr("No model"))
        talk = max(0, fill.used - fill.system - fill.files)
        counts = (fill.system, fill.files, talk, fill.draft, fill.room)
        for (part, _), count in zip(FILL, counts, strict=True):
            self._fill[part].set_text(figures.tokens(count))
        self._fill_rows["system"].setVisible(fill.system > 0)
        self._fill_rows["files"].setVisible(fill.files > 0)
        self._fill_rows["room"].setVisible(fill.capacity > 0)
        self._show_room(fill)

    def _show_room(self, fill: ContextFill) -> None:
        """Say what follows where the next reply may not fit; nothing is ever dropped."""
        words = ""
        if fill.capacity and not fill.room:
            words = tr("Too long for one more reply. Raise the context on the Performance page.")
        elif fill.capacity and fill.room < fill.longest_reply:
            words = tr("The next reply may end early. Nothing earlier is dropped.")
        self._room.set_text(words)
        self._room.setVisible(bool(words))

    def flush(self) -> None:
        """Hand on what is typed now; called before another chat is shown."""
        if self._typed.isActive():
            self._typed.stop()
            self._tell_prompt()

    def hideEvent(self, event: QHideEvent) -> None:
        """Hand on what is typed: the app may end a moment after its window is closed."""
        self.flush()
        super().hideEvent(event)

    def _slider(self, key: str, name: str, low: float, high: float, step: float) -> Box:
        slider = Slider(low, name, low, high, step)
        field = Field(low, width=68, low=low, high=high, step=step, decimals=2, name=name)
        self.sliders[key], self.fields[key] = slider, field
        slider.moved.connect(lambda value: field.show_value(value))
        slider.sliderReleased.connect(lambda: self._tell(key, slider.number))
        slider.moved.connect(
            lambda value: None if slider.isSliderDown() else self._tell(key, value)
        )
        field.valueChanged.connect(lambda value: self._tell(key, value))
        return vbox(hbox(Label(name, "meta", "text2"), None, field), slider, gap=2)

    def _field(  # noqa: PLR0913 - one row per number
        self,
        key: str,
        name: str,
        low: float,
        high: float,
        step: float,
        decimals: int,
        least: str = "",
    ) -> Box:
        field = Field(low, "", 92, low, high, step, decimals, name, least)
        self.fields[key] = field
        field.valueChanged.connect(lambda value: self._tell(key, value))
        return hbox((Label(name, "meta", "text2", wrap=True), 1), field, gap=8)

    def _tell(self, key: str, value: float) -> None:
        whole = key in ("top_k", "max_tokens", "seed")
        number: float | int | None = int(value) if whole else round(value, 4)
        self.changed.emit({key: None if key == "seed" and number == NO_SEED else number})

    def _tell_reasoning(self, place: int) -> None:
        self.reasoned.emit(REASONING[place])

    def _tell_prompt(self) -> None:
        self.prompt_changed.emit(self.prompt.toPlainText())

    def _tell_stop(self) -> None:
        words = [word.strip() for word in self.stop.text().split(",")]
        self.changed.emit({"stop": tuple(word for word in words if word)})


def _section(text: str) -> Label:
    return Label(text, "meta", "text", 600)
