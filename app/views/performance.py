"""Performance: the split bar first, then now / predicted / auto-yield, then the charts.

Places widgets and binds them to the view model; decides nothing.
"""

import math

from PySide6.QtCore import QElapsedTimer, Signal
from PySide6.QtGui import QResizeEvent, QShowEvent
from PySide6.QtWidgets import QGridLayout, QWidget

from app.predict import amounts
from app.predict.split import ORDER, Split
from app.theme import DASH, follow, px, theme
from app.viewmodels.performance import PerformanceViewModel
from app.viewmodels.performance_history import SPANS
from app.viewmodels.yielding import YieldingViewModel
from app.views.performance_cards import (
    ChartCard,
    ForecastCard,
    NowCard,
    SplitCard,
    held_word,
    held_words,
    link_word,
)
from app.views.performance_head import PerformanceHead
from app.views.performance_yield import YieldCard
from app.widgets.charts.heat import HeatMap, HeatScale, read_map
from app.widgets.charts.lines import LineChart, StackChart
from app.widgets.charts.series import Limit, Mark, Series
from app.widgets.labels import legend
from app.widgets.layout import Scroll, holder, vbox
from app.widgets.splitbar_words import NAMES
from app.wording import tr
from engine.protocol.messages import CacheMap

NARROW_BELOW = 900  # px of page width: a window of about 1100 with its rail
SLIM_BELOW = 640  # one column
NOT_GENERATED = tr("Nothing was generated in this time.")
_CARD, _CHART = 152, 122
_STEP_MS = {60.0: 480, 900.0: 960, 7200.0: 1920}  # charts step, and no finer than their bins
_CALM_MS = 1000
_X_LABELS = {
    60.0: (tr("−60 s"), "−40", "−20", tr("now")),
    900.0: (tr("−15 min"), "−10", "−5", tr("now")),
    7200.0: (tr("−2 h"), tr("−80 min"), "−40", tr("now")),
}
_LAYERS = ("weights", "kv", "experts", "runtime", "other")
_MARKS = {
    "kv_up": ("up", "kv"),
    "kv_down": ("down", "kv"),
    "experts_up": ("up", "experts"),
    "experts_down": ("down", "experts"),
    "yielded": ("game", "warn"),
    "restored": ("check", "accentText"),
}


class PerformanceView(QWidget):
    """The page.

    Signals:
        models_wanted(): there is no model; the person wants to choose one.
        settings_wanted(str): a section of the settings.
    """

    models_wanted = Signal()
    settings_wanted = Signal(str)

    def __init__(self, vm: PerformanceViewModel, yielding: YieldingViewModel) -> None:
        super().__init__()
        self._vm = vm
        self._painted = QElapsedTimer()
        self._columns = 0
        self._total_bytes = 0  # of the device that was divided last
        self.split = SplitCard()
        self.now, self.forecast = NowCard(), ForecastCard()
        self.yielding = YieldCard(yielding)
        self.head = PerformanceHead()
        self.policy, self.spans = self.head.policy, self.head.spans
        self._make_charts()
        self._grid = QGridLayout()
        self._grid.setContentsMargins(0, 0, 0, 0)
        body = vbox(
            self.head,
            self.split,
            (self._grid, 1),
            gap=10,
            pad=(20, 12, 20, 14),
        )
        self.setLayout(vbox(Scroll(holder(body)), gap=0))
        self._connect()
        follow(self._relayout)

    def _make_charts(self) -> None:
        wait = NOT_GENERATED
        self.speed = LineChart(tr("Decode speed"), tr("tok/s"), wait, (30, 8, 40, 16))
        self.shares = LineChart(
            tr("Where experts ran"), tr("% of routes"), wait, (30, 8, 52, 16), 40
        )
        self.links = LineChart(tr("Links"), "GB/s", wait, (34, 8, 46, 16))
        self.memory = StackChart(
            tr("VRAM over time"), "MiB", tr("No model is loaded."), (34, 22, 8, 16)
        )
        self.heat = HeatMap(tr("Expert hits"), tr("No model is loaded."))
        self.scale = HeatScale()
        parts = [(name, NAMES[name]) for name in ("weights", "kv", "experts", "runtime")]
        self._speed_card = ChartCard(tr("Decode speed"), tr("tok/s"), self.speed)
        self._share_card = ChartCard(tr("Where experts ran"), tr("% of routes"), self.shares)
        self._link_card = ChartCard(tr("Links"), "GB/s", self.links)
        self._memory_key = holder(legend(*parts))
        self._other_key = holder(legend(("other", NAMES["other"])))
        self._memory_card = ChartCard(
            tr("VRAM over time"), "MiB", self.memory, self._memory_key, self._other_key
        )
        self._heat_card = ChartCard(tr("Expert hits"), tr("layer × expert"), self.heat, self.scale)

    def _preview(self, split: Split) -> None:
        self._vm.preview(split, "pointer" if self.split.bar.is_dragging else "keys")

    def _connect(self) -> None:
        vm, card = self._vm, self.split
        vm.division_changed.connect(self._show_division)
        vm.device_changed.connect(self._show_device)
        vm.figures_changed.connect(self._show_figures)
        vm.forecast_changed.connect(self._show_forecast)
        vm.map_changed.connect(self._show_map)
        card.bar.previewed.connect(self._preview)
        card.bar.released.connect(vm.release)
        card.bar.reverted.connect(vm.revert)
        card.bar.hovered.connect(vm.hover)
        card.kv_asked.connect(vm.set_kv_tokens)
        card.slots_asked.connect(vm.set_slots)
        card.preset_asked.connect(vm.choose_preset)
        card.undo_asked.connect(vm.undo)
        card.models_asked.connect(self.models_wanted)
        self.policy.chosen.connect(vm.choose_policy)
        self.yielding.more_wanted.connect(self._want_settings)
        self.spans.picked.connect(self._show_charts)
        theme().changed.connect(self._show_all)

    # --- layout -----------------------------------------------------------------------------

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Two columns where three do not fit."""
        super().resizeEvent(event)
        self._relayout()

    def _relayout(self) -> None:
        columns = 3 if self.width() >= px(NARROW_BELOW) else 2
        columns = columns if self.width() >= px(SLIM_BELOW) else 1
        self._grid.setSpacing(px(10))
        self.head.place(self.width() - px(40))
        cards = (self.now, self.forecast, self.yielding)
        charts = (self._speed_card, self._share_card, self._link_card)
        for card in cards:
            card.setMinimumHeight(px(_CARD))
        for chart in (*charts, self._memory_card, self._heat_card):
            chart.setMinimumHeight(px(_CHART))
        for column in range(3):
            wide = column < columns and columns > 1
            self._grid.setColumnMinimumWidth(column, px(280) if wide else 0)
        if columns == self._columns:
            return
        self._columns = columns
        narrow = columns < 3
        self._memory_key.setVisible(columns > 1)
        for widget in (*cards, *charts, self._memory_card, self._heat_card):
            self._grid.removeWidget(widget)
        for i, part in enumerate((*cards, *charts)):
            self._grid.addWidget(part, i // columns, i % columns)
        rows = 6 // columns
        if narrow:
            self._grid.addWidget(self._memory_card, rows, 0, 1, columns)
            self._grid.addWidget(self._heat_card, rows + 1, 0, 1, columns)
        else:
            self._grid.addWidget(self._memory_card, 2, 0, 1, 2)
            self._grid.addWidget(self._heat_card, 2, 2)
        for column in range(3):
            self._grid.setColumnStretch(column, 1 if column < columns else 0)
        first_chart = len(cards) // columns + (len(cards) % columns > 0)
        for row in range(8):
            has_charts = first_chart <= row < rows + (2 if narrow else 1)
            self._grid.setRowStretch(row, 1 if has_charts or (row == 1 and columns == 2) else 0)

    def showEvent(self, event: QShowEvent) -> None:
        """What came while the page was hidden is drawn now; the profiler may have run."""
        super().showEvent(event)
        self._vm.reload_profiles()
        self._show_all()

    def _want_settings(self) -> None:
        self.settings_wanted.emit("yield")

    # --- binding ----------------------------------------------------------------------------

    def _show_all(self) -> None:
        self._show_device()
        self._show_division()
        self._show_forecast()
        self._painted.invalidate()
        self._show_figures()
        self._show_map(self._vm.map)

    def _show_device(self) -> None:
        vm = self._vm
        emulated = vm.is_emulated
        over_time = tr("Emulated VRAM over time") if emulated else tr("VRAM over time")
        self._memory_card.set_title(over_time)
        self.memory.set_title(over_time)
        nothing, first = tr("No model is loaded."), tr("Comes with the first reply.")
        self.memory.set_empty(tr("Comes within seconds.") if vm.model else nothing)
        self.heat.set_empty(first if vm.model else nothing)
        self.split.show_device(vm.device, vm.model)
        self.split.bar.set_num_experts(vm.model.num_records if vm.model else 0)
        self.now.rename(emulated)
        self.policy.show_policy(vm.policy, vm.model)
        self.policy.show_rates(vm.profile, vm.figures)

    def _show_division(self) -> None:
        vm = self._vm
        self.split.bar.show_split(vm.shown, vm.applied, vm.phase, vm.asked)
        self.split.show_fields(vm.shown, vm.preset)
        self.split.show_note(vm.note)
        self.now.show_figures(vm.figures, vm.model)

    def _show_forecast(self) -> None:
        forecast = self._vm.forecast
        figures = self._vm.figures
        self.forecast.show_forecast(forecast, figures.tokens_per_s if figures else None)
        words = ""
        if forecast.speed is not None:
            middle = amounts.number(forecast.speed.middle)
            words = tr("predicted {speed} tokens per second", speed=middle)
        self.split.bar.set_forecast(words)

    def _show_figures(self) -> None:
        vm = self._vm
        if not self.isVisible():
            return
        self.now.show_figures(vm.figures, vm.model)
        self.policy.show_rates(vm.profile, vm.figures)
        step = _STEP_MS[SPANS[self.spans.current]]
        if theme().reduced_motion:
            step = max(step, _CALM_MS)
        if not self._painted.isValid() or self._painted.elapsed() >= step:
            self._painted.start()
            self._show_charts()

    def _show_charts(self) -> None:
        span = SPANS[self.spans.current]
        for chart in (self.speed, self.shares, self.links, self.memory):
            chart.set_x_labels(_X_LABELS[span])
        self.speed.set_series([self._series("speed", tr("Decode speed"), "accent")], span)
        emulated = self._vm.is_emulated
        copied = link_word(emulated)
        self.shares.set_series(
            [
                self._series(
                    "hit", held_words(emulated), "hit", label=held_word(emulated), scale=100
                ),
                self._series("fill", copied, "fill", label=copied, scale=100),
                self._series("cpu", tr("CPU"), "cpu", label=tr("CPU"), scale=100),
            ],
            span,
        )
        self._show_links(span, copied)
        self._show_memory(span)

    def _show_links(self, span: float, copied: str) -> None:
        profile = self._vm.profile
        limits = []
        if profile is not None:
            fill, cpu = profile.fill_gbps, profile.cpu_gbps
            limits = [
                Limit(fill, "fill", f"Bₚ {amounts.number(fill)}"),
                Limit(cpu, "cpu", f"Bₕ {amounts.number(cpu)}"),
            ]
        self.links.set_limits(limits)
        pair = [
            self._series("fill_gbps", copied, "fill"),
            self._series("cpu_gbps", tr("CPU"), "cpu"),
        ]
        self.links.set_series(pair, span)

    def _show_memory(self, span: float) -> None:
        vm = self._vm
        if vm.applied is not None:  # else the scale of what was there before
            self._total_bytes = vm.applied.total_bytes
        total = float(self._total_bytes)
        unit, name = amounts.memory_unit(total or 1 << 20)
        layers = [
            self._series(f"mem_{part}", NAMES[part], part, scale=1 / unit)
            for part in ORDER
            if part in _LAYERS
        ]
        shown = [s for s in layers if s.role != "other" or any(v > 0 for v in s.values)]
        has_other = any(s.role == "other" for s in shown)
        self._other_key.setVisible(has_other and self._columns > 1)
        self.memory.unit = name
        self._memory_card.unit.set_text(name)
        self.memory.fixed_top = total / unit
        marks = []
        for at, event in vm.history.events(span, vm.now()):
            icon, role = _MARKS[event.kind]
            marks.append(Mark(at, icon, role, event.text))
        self.memory.set_marks(marks)
        self.memory.set_series(shown, span)

    def _series(
        self, name: str, words: str, role: str, label: str | None = None, scale: float = 1.0
    ) -> Series:
        span = SPANS[self.spans.current]
        values = self._vm.history.series(name, span, self._vm.now())
        if scale != 1.0:
            values = [v * scale if math.isfinite(v) else v for v in values]
        return Series(words, role, values, DASH.get(role, ()), label)

    def _show_map(self, event: CacheMap | None) -> None:
        if event is None:
            self.heat.set_rows(None)
            self.scale.set_high("")
            return
        if not self.isVisible():
            return  # the view model keeps it until somebody looks
        try:
            rows = read_map(
                event.num_layers, event.num_experts, event.hits, event.resident, event.max_hits
            )
        except ValueError:  # of another engine version; the last picture stays
            return
        self.heat.set_rows(rows)
        self.scale.set_high(tr("{count} / min", count=event.max_hits))
