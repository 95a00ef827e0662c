"""The rows of the Discover tab. They show plain data and say what was pressed."""

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QWidget

from app.predict import amounts
from app.predict.fit import Fit, FitAdvice
from app.predict.unseen import DownloadAdvice, SpeedGuess
from app.theme import follow
from app.viewmodels.discover import DiscoverRow, size_of
from app.views.models_parts import FITS, GET_STATES, fit_reason
from app.widgets.buttons import Button
from app.widgets.chips import Chip
from app.widgets.labels import Elide, Icon, Label
from app.widgets.layout import fixed, hbox, holder, vbox
from app.wording import Phrase, figures, tr

FORMAT_W, CONTEXT_W, SIZE_W, FIT_W, SPEED_W, ACTION_W = 64, 56, 64, 190, 104, 112
NARROW_FIT_W = 84
_RIGHT = Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter


def advice_reason(advice: DownloadAdvice) -> Phrase:
    """The number that decides."""
    need, have = advice.need_bytes, advice.have_bytes
    if advice.limit == "disk":
        return tr("Disk {have} < {need}", have=amounts.disk(have), need=amounts.disk(need))
    if advice.limit == "vram":
        return tr("VRAM {have} < {need}", have=amounts.memory(have), need=amounts.memory(need))
    return fit_reason(FitAdvice(advice.fit, need, have))


def speed_text(guess: SpeedGuess | None) -> str:
    """A range of tokens per second, "–" for none."""
    if guess is None:
        return "–"
    low, high = (f"{v:.0f}" if v >= 10 else f"{v:.1f}" for v in (guess.low, guess.high))
    return tr("{low}–{high} tok/s", low=low, high=high)


def facts_of(row: DiscoverRow) -> str:
    """What the model is, in one line."""
    entry = row.entry
    if entry.gated and not entry.is_known:
        return tr("Accept its licence first  ·  {repo}", repo=entry.repo)
    if not entry.is_known:
        return tr("{repo} from the hub; looked at before anything is fetched", repo=entry.repo)
    total, active = (f"{n / 1e9:.0f}B" for n in (entry.total_params, entry.active_params))
    experts = tr("{used} of {all} experts", used=entry.top_k, all=entry.experts)
    uses = {"code": tr("for code"), "reasoning": tr("thinks first")}
    size = tr("{total}, {active} active", total=total, active=active)
    owner = entry.repo.partition("/")[0]
    if entry.commit:  # on the hub names repeat; the maker tells them apart
        return f"{tr('by {owner}', owner=owner)}  ·  {size}  ·  {experts}"
    return f"{size}  ·  {uses.get(entry.use, experts)}"


class ColumnHeads(QWidget):
    """The names of the columns, above a list of rows."""

    def __init__(self) -> None:
        super().__init__()
        self._fit = _head(tr("Fit on this PC"), FIT_W)
        self._context = _head(tr("Context"), CONTEXT_W, _RIGHT)
        self._slim = (
            _head(tr("Format"), FORMAT_W),
            _head(tr("Size"), SIZE_W, _RIGHT),
            _head(tr("Predicted"), SPEED_W, _RIGHT),
        )
        form, size, speed = self._slim
        self.setLayout(
            hbox(
                (Label(tr("Model"), "caption", "text3", 500), 1),
                form,
                self._context,
                size,
                self._fit,
                speed,
                _head("", ACTION_W),
                gap=12,
                pad=(16, 0, 12, 0),
            )
        )

    def set_narrow(self, narrow: bool, slim: bool) -> None:
        """Leave out what the rows leave out."""
        self._context.setVisible(not narrow)
        for head in self._slim:
            head.setVisible(not slim)
        fixed(self._fit, NARROW_FIT_W if narrow else FIT_W)
        self._fit.set_text(tr("Fit") if narrow else tr("Fit on this PC"))


def _head(text: str, width: int, align: Qt.AlignmentFlag = Qt.AlignmentFlag.AlignLeft) -> Label:
    label = Label(text, "caption", "text3", 500)
    label.setAlignment(align)
    return fixed(label, width)


class DiscoverRowView(QWidget):
    """One model of the catalogue.

    Signals:
        get_asked(str): with the repository.
    """

    get_asked = Signal(str)

    def __init__(self, repo: str) -> None:
        super().__init__()
        self.repo = repo
        self._row: DiscoverRow | None = None
        self._is_narrow = False
        self._name = Elide("", "body", "text", 600)
        self._facts = Elide("", "meta", "text3")
        self._format = Chip("")
        self._context, self._size = Label("", "meta", "text2"), Label("", "meta", "text2")
        self._speed = Label("", "meta", "text", 600)
        for label in (self._context, self._size, self._speed):
            label.setAlignment(_RIGHT)
        self._fit, self._why = Chip(tr("Fits"), "ok"), Elide("", "caption", "text3")
        self.action = Button(tr("Get"), "secondary", "download", small=True)
        self._sign, self._said = Icon("check", 14, "accentText"), Label("", "meta", "text3")
        self._format_cell = fixed(holder(hbox(self._format, None)), FORMAT_W)
        self._fit_cell = fixed(holder(hbox(self._fit, (self._why, 1), "flex", gap=7)), FIT_W)
        end = holder(hbox(None, self._sign, self._said, self.action, gap=5))
        self.setLayout(
            hbox(
                (vbox(None, self._name, self._facts, None, gap=3), 1),
                self._format_cell,
                fixed(self._context, CONTEXT_W),
                fixed(self._size, SIZE_W),
                self._fit_cell,
                fixed(self._speed, SPEED_W),
                fixed(end, ACTION_W),
                gap=12,
                pad=(16, 0, 12, 0),
            )
        )
        fixed(self, height=58)
        self.action.clicked.connect(self._ask)
        follow(self._retell)

    def show_row(self, row: DiscoverRow) -> None:
        """Show a model as it stands now."""
        self._row = row
        self._retell()

    def set_narrow(self, narrow: bool, slim: bool) -> None:
        """Leave out what a tool tip can say; `slim` also the speed and the format."""
        self._is_narrow = narrow
        self._context.setVisible(not narrow)
        self._size.setVisible(not slim)
        self._speed.setVisible(not slim)
        self._format_cell.setVisible(not slim)
        fixed(self._fit_cell, NARROW_FIT_W if narrow else FIT_W)
        self._retell()

    def _retell(self) -> None:
        row = self._row
        if row is None:
            return
        entry = row.entry
        self._name.set_text(entry.title)
        self._facts.set_text(facts_of(row))
        self._facts.set_tip(f"{entry.repo}  ·  {entry.licence}" if entry.licence else entry.repo)
        self._format.set_text(figures.weight_format(entry.quant))
        self._format.setVisible(bool(entry.quant))
        self._context.set_text(amounts.tokens(entry.context) if entry.context else "–")
        size = size_of(entry)
        self._size.set_text(amounts.disk(size) if size else "–")
        self._size.setToolTip(tr("Approximately, from the model's config"))
        unmeasured = row.guess is None and row.advice.fit in (Fit.FITS, Fit.TIGHT)
        self._speed.set_text(tr("Not measured") if unmeasured else speed_text(row.guess))
        self._speed.set_role("text" if row.guess else "text3")
        no_speed = tr("Measure this PC on the Profiler page for a prediction.")
        self._speed.setToolTip(no_speed if unmeasured else "")
        known = row.advice.fit in FITS
        reason = advice_reason(row.advice) if known else ""
        self._fit.setVisible(known)
        self._why.setVisible(known and not self._is_narrow)
        self._fit.setToolTip(reason)
        if known:
            self._fit.set_text(*FITS[row.advice.fit])
            self._why.set_text(reason)
        self._show_action(row)
        self.setAccessibleName(entry.repo)

    def _show_action(self, row: DiscoverRow) -> None:
        is_open = row.state in ("get", "older")
        self.action.setVisible(is_open)
        newer = tr("The hub has a newer version than the one installed. It is kept beside it.")
        self.action.set_tip(newer if row.state == "older" else "")
        self.action.set_text(tr("Get newer") if row.state == "older" else tr("Get"))
        self.action.set_kind("ghost" if row.advice.fit is Fit.TOO_BIG else "secondary")
        self.action.set_name(tr("{action}: {name}", action=tr("Get"), name=row.entry.repo))
        self._sign.setVisible(row.state == "installed")
        self._said.setVisible(not is_open)
        self._said.set_text(GET_STATES.get(row.state, ""))

    def _ask(self) -> None:
        self.get_asked.emit(self.repo)
