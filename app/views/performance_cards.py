"""The cards of the Performance page. Each shows plain data of its view model and holds none."""

from PySide6.QtCore import Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QSizePolicy, QWidget

from app.predict import amounts
from app.predict.split import PAGE_TOKENS, Divider, Split
from app.theme import follow, px
from app.viewmodels.performance_forecast import Forecast, error_text
from app.viewmodels.performance_state import Figures, Note
from app.widgets.buttons import Button, Segmented
from app.widgets.cards import Card
from app.widgets.charts.bars import RangeBar, RangeValue
from app.widgets.chips import Chip
from app.widgets.inputs import Field
from app.widgets.labels import Elide, Label
from app.widgets.layout import Item, hbox, holder, vbox
from app.widgets.meters import Fact, Metric, Sentence, ShareMeter
from app.widgets.splitbar import SplitBar
from app.wording import Phrase, tr
from engine.protocol.messages import DeviceStatus, ModelInfo

_PRESETS = (tr("Chat"), tr("Agent"), tr("Gaming"), tr("Custom"))


def link_word(emulated: bool) -> Phrase:
    """What the way from RAM to the device is called: on a CPU-only machine it is a copy."""
    return tr("Copied") if emulated else tr("PCIe")


def held_word(emulated: bool) -> Phrase:
    """Where a hit was found: on a CPU-only machine there is no VRAM to speak of."""
    return tr("Cache") if emulated else tr("VRAM")


def held_words(emulated: bool) -> Phrase:
    """The same, as a share of routes."""
    return tr("In cache") if emulated else tr("In VRAM")


class SplitCard(Card):
    """The bar, presets, exact fields and the sentence below.

    Signals:
        kv_asked(int), slots_asked(int): exact sizes.
        preset_asked(int): index of a preset.
        undo_asked(): back to the division before.
        models_asked(): there is no model; show the list.
    """

    kv_asked = Signal(int)
    slots_asked = Signal(int)
    preset_asked = Signal(int)
    undo_asked = Signal()
    models_asked = Signal()

    def __init__(self) -> None:
        self.bar = SplitBar()
        self.presets = Segmented(_PRESETS, 3, name=tr("Presets of the split"))
        self.where = Elide("", "meta", "text3")
        self.kv = Field(0, tr("tokens"), 142, step=PAGE_TOKENS, name=tr("KV cache, tokens"))
        self.slots = Field(0, tr("slots"), 122, name=tr("Experts, slots"))
        self.note = Sentence()
        self.undo = Button(tr("Undo"), "ghost", "undo", small=True)
        self.choose = Button(tr("Choose a model"), "secondary", "models", small=True)
        self._title = Label(tr("VRAM split"), "body", "text", 600)
        self._fields = holder(
            hbox(
                Label(tr("KV cache"), "meta", "text2"),
                self.kv,
                6,
                Label(tr("Experts"), "meta", "text2"),
                self.slots,
                gap=8,
            )
        )
        self._below = holder(hbox((self.note, 1), self.undo, self.choose, gap=8))
        self._beside_row = hbox(self._fields, None, gap=16)
        self._below_row = vbox()
        self._is_beside = False
        self._below_row.addWidget(self._below)
        head = hbox(self._title, (self.where, 1), self.presets, gap=8)
        super().__init__(
            vbox(head, self.bar, self._beside_row, self._below_row, gap=6, pad=(16, 10, 16, 12))
        )
        self.kv.valueChanged.connect(self._tell_kv)
        self.slots.valueChanged.connect(self._tell_slots)
        self.presets.picked.connect(self.preset_asked)
        self.undo.clicked.connect(self.undo_asked)
        self.choose.clicked.connect(self.models_asked)
        follow(self._place)

    def show_device(self, device: DeviceStatus | None, model: ModelInfo | None) -> None:
        """Name the device; on a CPU-only machine say that the VRAM is emulated."""
        if device is None:
            self.where.set_text("")
        elif device.device.emulated and model is None:
            self.where.set_text(tr("{device} · emulated VRAM", device=device.device.title))
        elif device.device.emulated:
            words = tr(
                "{size} · {device} · emulated VRAM",
                size=amounts.memory(device.total_bytes),
                device=device.device.title,
            )
            self.where.set_text(words)
            self.where.set_tip(
                tr("No GPU is used: an ordinary buffer of this size stands for its memory.")
            )
        else:
            self.where.set_text(f"{amounts.memory(device.total_bytes)} · {device.device.title}")
        self.choose.setVisible(model is None)
        self._place()

    def show_fields(self, shown: Split | None, preset: int) -> None:
        """Follow a division in fields and presets, within its bounds."""
        for control in (self.kv, self.slots, self.presets):
            control.setEnabled(shown is not None)
        self.presets.set_current(preset)
        if shown is None:
            return
        for field, divider, value in (
            (self.kv, Divider.KV, shown.kv_tokens),
            (self.slots, Divider.EXPERTS, shown.expert_slots),
        ):
            low, high = shown.bounds(divider)
            field.blockSignals(True)
            field.setRange(min(low, value), max(high, value))
            field.blockSignals(False)
            field.show_value(value)
            self._tell_bounds(field, low, high)

    def show_note(self, note: Note) -> None:
        """Show the sentence and whether it can be undone."""
        self.note.show_text(note.tone, note.text)
        self.undo.setVisible(note.can_undo)
        self._place()

    def _tell_bounds(self, field: Field, low: int, high: int) -> None:
        field.setToolTip(tr("{low} to {high}", low=f"{low:,}", high=f"{high:,}"))

    def _tell_kv(self, value: float) -> None:
        self.kv_asked.emit(int(value))

    def _tell_slots(self, value: float) -> None:
        self.slots_asked.emit(int(value))

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Give the sentence its own line where it does not fit beside the fields."""
        super().resizeEvent(event)
        self._place()

    def _place(self) -> None:
        # isVisibleTo: also right while the page itself is hidden.
        buttons = sum(
            b.sizeHint().width() + px(8) for b in (self.undo, self.choose) if b.isVisibleTo(self)
        )
        fields = self._fields.sizeHint().width() + px(16 + 32) + buttons
        beside = px(self.note.natural_width()) + fields <= self.width()
        if beside == self._is_beside:
            return
        self._is_beside = beside
        old, new = self._below_row, self._beside_row
        if not beside:
            old, new = new, old
        old.removeWidget(self._below)
        new.addWidget(self._below, 1 if beside else 0)
        new.setStretchFactor(self._below, 1000 if beside else 0)


class NowCard(Card):
    """What decode does now, or did in the last reply."""

    def __init__(self) -> None:
        self._chip = _kept(Chip(tr("Measured")))
        self._when = Label("", "meta", "text3")
        self._metric = Metric(tr("tok/s"))
        self._shares = ShareMeter(_share_names(False))
        self._copied, self._computed = Fact(link_word(False)), Fact(tr("CPU"))
        self._read = Fact(tr("Read from RAM"))
        super().__init__(
            vbox(
                hbox(Label(tr("Now"), "body", "text", 600), self._when, None, self._chip, gap=8),
                self._metric,
                self._shares,
                2,
                self._copied,
                self._computed,
                self._read,
                None,
                gap=5,
                pad=(16, 10, 16, 10),
            )
        )

    def show_figures(self, figures: Figures | None, model: ModelInfo | None) -> None:
        """Show the newest decode frame."""
        self._chip.setVisible(figures is not None)
        if figures is None:
            self._when.set_text("")
            self._metric.show_value("–", tr("No reply yet") if model else "")
            self._shares.show_shares(None)
            for fact in (self._copied, self._computed, self._read):
                fact.show_value("–")
        else:
            self._when.set_text("" if figures.is_live else tr("last reply"))
            side: str = ""
            if figures.limit_share is not None and figures.limit_share >= 0.01:
                side = tr("{share} of the links' limit", share=amounts.share(figures.limit_share))
            self._metric.show_value(amounts.number(figures.tokens_per_s), side)
            self._shares.show_shares((figures.hit_share, figures.fill_share, figures.cpu_share))
            read = amounts.disk(figures.read_bytes_per_token)
            self._read.show_value(tr("{size}/token", size=read))
            self._show_links(figures)

    def _show_links(self, figures: Figures) -> None:
        """What link and CPU really did with the misses: share of them, and GB/s."""
        copied = figures.copied_share
        if copied is None:
            for fact in (self._copied, self._computed):
                fact.show_value(tr("no misses"))
            return
        pairs = (
            (self._copied, copied, figures.fill_gbps),
            (self._computed, 1 - copied, figures.cpu_gbps),
        )
        for fact, share, gbps in pairs:
            words = tr(
                "{share} of misses · {rate} GB/s",
                share=amounts.share(share),
                rate=amounts.number(gbps),
            )
            fact.show_value(words)

    def rename(self, emulated: bool) -> None:
        """Call the link what it is on this machine."""
        self._shares.rename(_share_names(emulated))
        self._copied.set_name(link_word(emulated))


def _share_names(emulated: bool) -> tuple[tuple[str, str], ...]:
    return (("hit", held_words(emulated)), ("fill", link_word(emulated)), ("cpu", tr("CPU")))


def _kept(chip: Chip) -> Chip:
    """Leave a chip its room while it is hidden: the heads of all cards stand in one line."""
    policy = chip.sizePolicy()
    policy.setRetainSizeWhenHidden(True)
    chip.setSizePolicy(policy)
    return chip


class ForecastCard(Card):
    """What the shown division would bring, or how right the last promise was."""

    def __init__(self) -> None:
        self._title = Label(tr("Prediction"), "body", "text", 600)
        self._chip = _kept(Chip(tr("Predicted")))
        self._metric = Metric(tr("tok/s"))
        self._range = RangeBar(tr("tok/s"))
        self._reason = Label("", "meta", "text2", wrap=True)
        self._hits = Fact(tr("Hit rate"))
        self._context = Fact(tr("Longest context"))
        super().__init__(
            vbox(
                hbox(self._title, None, self._chip, gap=8),
                self._metric,
                self._range,
                self._reason,
                self._hits,
                self._context,
                None,
                gap=5,
                pad=(16, 10, 16, 10),
            )
        )

    def show_forecast(self, forecast: Forecast, kept: float | None) -> None:
        """Show a forecast; `kept` is the speed now, for a promise that is being checked."""
        speed = forecast.speed
        measured = forecast.kind == "measured"
        titles = {"measured": tr("After the change"), "none": tr("Prediction")}
        self._title.set_text(titles.get(forecast.kind, tr("If you apply this")))
        self._chip.set_text(tr("Measured") if measured else tr("Predicted"))
        self._chip.setVisible(forecast.kind != "none")
        self._range.setVisible(speed is not None)
        self._metric.setVisible(forecast.kind != "none")
        self._reason.setVisible(speed is None)
        self._reason.set_text(forecast.reason)
        if measured:
            self._metric.show_value(amounts.number(kept) if kept else "–")
            self._reason.set_text(
                tr(
                    "{speed} tok/s were predicted, {error} off.",
                    speed=amounts.number(forecast.promised),
                    error=error_text(forecast.error),
                )
            )
        elif speed is not None:
            gain = speed.middle - speed.now
            role = "accentText" if gain >= 0 else "warn"
            side = amounts.signed(gain) if abs(gain) > 0.05 else ""
            self._metric.show_value(amounts.number(speed.middle), side, role)
            self._range.set_value(RangeValue(speed.low, speed.middle, speed.high, speed.now))
        self._show_costs(forecast)

    def _show_costs(self, forecast: Forecast) -> None:
        now, then = forecast.hit_now, forecast.hit_then
        if now is None or then is None:
            self._hits.show_value("–")
        else:
            changed = amounts.share(now) != amounts.share(then)
            self._hits.show_value(amounts.share(then), amounts.share(now) if changed else "")
        before, after = forecast.context_now, forecast.context_then
        old = amounts.tokens(before) if before != after else ""
        self._context.show_value(amounts.tokens(after) if after else "–", old)


class ChartCard(Card):
    """A chart under its title, unit, and a legend or scale at the right."""

    def __init__(self, title: str, unit: str, chart: QWidget, *right: Item) -> None:
        self.unit = Label(unit, "caption", "text3")
        self._title = Label(title, "meta", "text", 600)
        head = hbox(self._title, self.unit, None, *right, gap=6)
        super().__init__(vbox(head, (chart, 1), gap=2, pad=(16, 9, 14, 6)))
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Expanding)

    def set_title(self, title: str) -> None:
        """Say another title."""
        self._title.set_text(title)
