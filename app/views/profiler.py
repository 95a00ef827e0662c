"""Profiler: four figures, two curves, the reference machines, a diagnosis, the history.

Places widgets and binds them to the view model; decides nothing.
"""

import math
from pathlib import Path

from PySide6.QtCore import Qt
from PySide6.QtGui import QGuiApplication, QResizeEvent
from PySide6.QtWidgets import QFileDialog, QGridLayout, QWidget

from app.predict import amounts
from app.predict.machines import REFERENCE_MACHINES
from app.predict.profiles import Profile
from app.services.job_state import JobState
from app.theme import follow, px
from app.viewmodels.profiler import ProfilerViewModel
from app.views.profiler_history import HistoryCard
from app.views.profiler_words import finding_words, progress_words, when
from app.widgets.bars import Bar
from app.widgets.buttons import Button
from app.widgets.cards import Card, Line, card_title, page_head
from app.widgets.charts.bars import PairBars, PairRow
from app.widgets.charts.curves import CurveChart
from app.widgets.charts.series import Curve
from app.widgets.chips import Chip
from app.widgets.labels import Icon, Label
from app.widgets.layout import Scroll, hbox, holder, vbox
from app.widgets.meters import Metric
from app.wording import Phrase, figures, tr, tr_count

NARROW_BELOW = 760  # px of page width
NOT_MEASURED = tr("Not measured yet: start a quick run.")
_TOP = Qt.AlignmentFlag.AlignTop


class FigureCard(Card):
    """One figure of the measurement with its name and what it was measured on."""

    def __init__(self, term: str, unit: str) -> None:
        self._term = Label(term, "meta", "text2", 500)
        self._metric = Metric(unit)
        self._text = Label("", "meta", "text3", wrap=True)
        super().__init__(
            vbox(self._term, self._metric, self._text, None, gap=3, pad=(16, 10, 12, 10))
        )

    def show_figure(self, value: float | None, text: str, term: str | None = None) -> None:
        """Show a figure; None = not measured."""
        self._metric.show_value("–" if value is None else amounts.number(value))
        self._text.set_text(text if value is not None else "")
        if term is not None:
            self._term.set_text(term)


class RunBand(Card):
    """What stands above the figures while something is to be said: progress, failure, advice."""

    def __init__(self) -> None:
        self._icon = Icon("clock", 16, "link")
        self._title = Label("", "body", "text", 600)
        self._text = Label("", "meta", "text2", wrap=True)
        self._bar = Bar((), 4)
        self.cancel = Button(tr("Cancel"), "ghost", "x", small=True)
        self.close_button = Button("", "ghost", "x", small=True, name=tr("Dismiss"))
        head = hbox(
            (self._icon, 0, _TOP),
            (vbox(self._title, self._text, gap=2), 1),
            (self.cancel, 0, _TOP),
            (self.close_button, 0, _TOP),
            gap=10,
        )
        super().__init__(vbox(head, self._bar, gap=8, pad=(16, 10, 12, 10)))

    def show_run(self, job: JobState | None) -> None:
        """Show how far a measurement is."""
        self.set_look(edge="")
        self._icon.set_icon("clock", "link")
        waiting = job is None or job.phase == "waiting"
        self._title.set_text(tr("Waiting for another job") if waiting else tr("Measuring"))
        self._text.set_text(progress_words(job))
        share = job.share if job is not None and job.share is not None else 0.0
        self._bar.set_parts([("accent", share)])
        self._bar.set_name(tr("Measured {share}", share=amounts.share(share)))
        self._bar.show()
        self.cancel.setEnabled(job is not None and not job.is_cancelling)
        self.cancel.show()
        self.close_button.hide()
        self.show()

    def show_failure(self, message: str, hint: str) -> None:
        """Say why there is no new measurement; earlier ones stay."""
        self.set_look(edge="danger")
        self._icon.set_icon("error", "danger")
        self._title.set_text(tr("The measurement failed"))
        self._text.set_text(f"{message} {hint}".strip())
        self._bar.hide()
        self.cancel.hide()
        self.close_button.show()
        self.show()

    def show_advice(self, icon: str, role: str, title: str, text: str) -> None:
        """Say something calmer."""
        self.set_look(edge="")
        self._icon.set_icon(icon, role)
        self._title.set_text(title)
        self._text.set_text(text)
        self._bar.hide()
        self.cancel.hide()
        self.close_button.hide()
        self.show()


class ProfilerView(QWidget):
    """The page."""

    def __init__(self, vm: ProfilerViewModel) -> None:
        super().__init__()
        self._vm = vm
        self._narrow: bool | None = None
        self.quick = Button(tr("Quick run"), "primary", "play", tip=tr("Takes some ten seconds"))
        self.full = Button(tr("Full run"), "secondary", tip=tr("Takes one to two minutes"))
        self.last = Label("", "meta", "text3")
        self.chip = Chip(tr("Measured"))
        self.band = RunBand()
        self._make_cards()
        self._grid = QGridLayout()
        self._grid.setContentsMargins(0, 0, 0, 0)
        head = page_head(tr("Profiler"), self.chip, self.last, self.full, self.quick)
        body = vbox(head, self.band, (self._grid, 1), gap=10, pad=(20, 12, 20, 14))
        self.setLayout(vbox(Scroll(holder(body)), gap=0))
        self.quick.clicked.connect(self._run_quick)
        self.full.clicked.connect(self._run_full)
        self.band.cancel.clicked.connect(vm.cancel)
        self.band.close_button.clicked.connect(vm.dismiss)
        self.history.chosen.connect(vm.select)
        self.history.copy_wanted.connect(self._copy)
        self.history.save_wanted.connect(self._save)
        vm.changed.connect(self._show_state)
        vm.curves_changed.connect(self._show_curves)
        follow(self._relayout)
        follow(self._show_state)
        follow(self._show_curves)

    def _make_cards(self) -> None:
        self.fill = FigureCard(tr("Bₚ  copies to the device"), "GB/s")
        self.cpu = FigureCard(tr("Bₕ  CPU expert kernel"), "GB/s")
        self.both = FigureCard(tr("Both at once"), "GB/s")
        self.share = FigureCard(tr("Fills per miss, q*/m"), "")
        self.copies = CurveChart(tr("Copies"), NOT_MEASURED)
        self.kernel = CurveChart(tr("CPU expert kernel"), NOT_MEASURED)
        self.machines = PairBars(tr("Six reference machines"))
        self.findings = holder(vbox())
        self.history = HistoryCard()
        over = tr("GB/s over transfer size")
        work = tr("GB/s over bytes of experts at once")
        pad = (16, 10, 8, 6)
        self._cards = (
            Card(vbox(card_title(tr("Copies"), sub=over), (self.copies, 1), gap=4, pad=pad)),
            Card(
                vbox(
                    card_title(tr("CPU expert kernel"), sub=work), (self.kernel, 1), gap=4, pad=pad
                )
            ),
            Card(
                vbox(
                    card_title(tr("Six reference machines"), sub="GB/s"),
                    self.machines,
                    None,
                    gap=6,
                    pad=(16, 10, 14, 8),
                )
            ),
            Card(
                vbox(card_title(tr("Diagnosis")), self.findings, None, gap=9, pad=(16, 10, 12, 12))
            ),
        )

    # --- layout -----------------------------------------------------------------------------

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Fewer columns where they do not fit."""
        super().resizeEvent(event)
        self._relayout()

    def _relayout(self) -> None:
        narrow = self.width() < px(NARROW_BELOW)
        self._grid.setSpacing(px(10))
        figures = (self.fill, self.cpu, self.both, self.share)
        for figure in figures:
            figure.setMinimumHeight(px(84))
        for card in self._cards[:2]:
            card.setMinimumHeight(px(190))
        if narrow == self._narrow:
            return
        self._narrow = narrow
        for widget in (*figures, *self._cards, self.history):
            self._grid.removeWidget(widget)
        across = 2 if narrow else 4
        for i, figure in enumerate(figures):
            wide = 4 // across
            self._grid.addWidget(figure, i // across, i % across * wide, 1, wide)
        for i, card in enumerate(self._cards):
            row = (2 + i) if narrow else (2 + i // 2)
            high = 2 if card is self._cards[-1] and not narrow else 1
            self._grid.addWidget(card, row, 0 if narrow else i % 2 * 2, high, 4 if narrow else 2)
        self._grid.addWidget(self.history, 6 if narrow else 4, 0, 1, 4 if narrow else 2)
        for column in range(4):
            self._grid.setColumnStretch(column, 1)
        for row in range(7):
            stretch = 1 if row == 2 or (narrow and row == 3) else 0
            self._grid.setRowStretch(row, stretch)

    # --- binding ----------------------------------------------------------------------------

    def _run_quick(self) -> None:
        self._vm.run("quick")

    def _run_full(self) -> None:
        self._vm.run("full")

    def _copy(self) -> None:
        QGuiApplication.clipboard().setText(self._vm.text())
        self.history.said.set_text(tr("Copied."))

    def _save(self) -> None:
        kinds = "JSON (*.json);;CSV (*.csv)"
        name = str(Path.home() / "freetoken-bandwidths.json")
        path, kind = QFileDialog.getSaveFileName(self, tr("Export as a file"), name, kinds)
        if path:
            is_csv = path.endswith(".csv") or "csv" in kind
            said = self._vm.save(Path(path), "csv" if is_csv else "json")
            self.history.said.set_text(said or tr("Written: {path}", path=path))

    def _show_state(self) -> None:
        vm = self._vm
        running = vm.phase == "running"
        for chart in (self.copies, self.kernel):
            chart.set_empty(tr("Being measured.") if running else NOT_MEASURED)
        begins = running and (self.quick.hasFocus() or self.full.hasFocus())
        ends = not running and self.band.cancel.hasFocus()
        self.quick.setEnabled(not running)
        self.full.setEnabled(not running)
        self.chip.setVisible(vm.profile is not None and not running)
        shown = None if running else vm.profile
        self.last.setVisible(shown is not None)
        self.last.set_text(when(shown) if shown is not None else "")
        lines = vm.lines()
        self.history.show_lines(lines, vm.selected)
        self.history.setVisible(bool(lines))
        self.history.said.set_text("")
        self._show_band()
        if begins or ends:  # else Qt hands the focus to whatever comes next
            (self.band.cancel if begins else self.quick).setFocus()
        self._show_figures(None if running else vm.profile)
        self._show_machines(vm.profile)
        self._show_findings(None if running else vm.profile)

    def _show_band(self) -> None:
        vm = self._vm
        if vm.phase == "running":
            self.band.show_run(vm.job)
        elif vm.error is not None:
            self.band.show_failure(vm.error.message, vm.error.hint)
        elif vm.busy:
            self.band.show_advice("warn", "warn", tr("The engine is busy"), vm.busy)
        elif vm.stale:
            self.band.show_advice("warn", "warn", tr("Measure again"), vm.stale)
        elif vm.profile is None:
            text = tr("A quick run takes some ten seconds and changes nothing on this machine.")
            self.band.show_advice("info", "link", tr("This machine has not been measured"), text)
        else:
            self.band.hide()

    def _show_figures(self, profile: Profile | None) -> None:
        copies = tr("Bₚ  copy in memory") if self._vm.is_emulated else tr("Bₚ  PCIe to the card")
        if profile is None:
            self.fill.show_figure(None, "", copies)
            for card in (self.cpu, self.both, self.share):
                card.show_figure(None, "")
            return
        record = tr("{size} records", size=amounts.memory(profile.record_bytes))
        kernel = tr_count(
            "{format}, {count} thread",
            "{format}, {count} threads",
            profile.threads,
            format=figures.weight_format(profile.format),
        )
        self.fill.show_figure(profile.fill_gbps, record, copies)
        self.cpu.show_figure(profile.cpu_gbps, kernel)
        parts = tr(
            "{fill} copied + {cpu} CPU",
            fill=amounts.number(profile.joint_fill_gbps),
            cpu=amounts.number(profile.joint_cpu_gbps),
        )
        joint = profile.joint_gbps
        self.both.show_figure(joint if joint > 0 else None, parts)
        how = tr("By the joint rates") if joint > 0 else tr("Bₚ / Bₕ, as in the paper")
        self.share.show_figure(profile.fills_per_miss, how)

    def _show_machines(self, profile: Profile | None) -> None:
        fill = profile.fill_gbps if profile is not None else math.nan
        cpu = profile.cpu_gbps if profile is not None else math.nan
        rows = [PairRow(tr("This PC"), fill, cpu, mine=True)]
        rows += [PairRow(m.name, m.fill_gbps, m.cpu_gbps) for m in REFERENCE_MACHINES]
        self.machines.set_rows(rows)

    def _show_findings(self, profile: Profile | None) -> None:
        box = self.findings.layout()
        if box is None:
            return
        while (item := box.takeAt(0)) is not None:
            widget = item.widget()
            if widget is not None:
                widget.hide()  # at once: its end comes with the event loop
                widget.deleteLater()
        if profile is None:
            box.addWidget(Label(tr("Comes with the first measurement."), "meta", "text2"))
            return
        for i, finding in enumerate(self._vm.findings()):
            icon, role, title, text = finding_words(finding)
            if i:
                box.addWidget(Line())
            said = Label(text, "meta", "text2", wrap=True)
            words = vbox(Label(title, "body", "text", 500), said, None, gap=2)
            row = hbox((Icon(icon, 16, role), 0, _TOP), (words, 1), gap=10)
            box.addWidget(holder(row))

    def _show_curves(self) -> None:
        vm = self._vm
        size = vm.working_point
        point = (float(size), tr("this model")) if size else None
        copied: Phrase = tr("in memory") if vm.is_emulated else tr("to GPU")
        self.copies.set_curves(
            [
                Curve(copied, "fill", vm.curve("fill")),
                Curve(tr("with CPU"), "fill", vm.curve("joint_fill"), (6, 3)),
            ],
            point,
        )
        self.kernel.set_curves(
            [
                Curve(tr("alone"), "cpu", vm.curve("cpu")),
                Curve(tr("with copies"), "cpu", vm.curve("joint_cpu"), (6, 3)),
            ],
            point,
        )
