"""The rows and dialogs of the Models page. They show plain data and say what was pressed."""

from pathlib import Path

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QDragEnterEvent
from PySide6.QtWidgets import QWidget

from app.predict import amounts
from app.predict.fit import Fit, FitAdvice
from app.theme import follow
from app.viewmodels.models import ModelRow, RowState
from app.widgets.buttons import Button
from app.widgets.chips import Chip
from app.widgets.dialogs import Question
from app.widgets.labels import Elide, Label
from app.widgets.layout import fixed, hbox, holder, vbox
from app.wording import Phrase, figures, tr, tr_count

STATE_W, FIT_W, SIZE_W, ACTION_W = 112, 204, 64, 156
NARROW_FIT_W = 78  # the chip alone; the number moves into its tool tip
FITS: dict[Fit, tuple[Phrase, str]] = {
    Fit.FITS: (tr("Fits"), "ok"),
    Fit.TIGHT: (tr("Tight"), "warn"),
    Fit.TOO_BIG: (tr("Too big"), "danger"),
}
GET_STATES: dict[str, Phrase] = {
    "busy": tr("In progress"),
    "paused": tr("Paused"),
    "failed": tr("Failed"),
    "installed": tr("Installed"),
}


def fit_reason(advice: FitAdvice) -> Phrase:
    """The number that decides."""
    need, have = amounts.memory(advice.need_bytes), amounts.memory(advice.have_bytes)
    if advice.fit is Fit.TOO_BIG:
        have = have.removesuffix(" GiB") if need.endswith(" GiB") else have
        return tr("RAM {have} < {need}", have=have, need=need)
    if advice.fit is Fit.TIGHT:
        return tr("{have} of RAM free", have=have)
    return tr("needs {need} of RAM", need=need)


def facts_of(row: ModelRow) -> str:
    """What the model is, in one line."""
    entry = row.entry
    parts: list[str] = []
    if entry.num_experts:
        used = tr("{used} of {all} experts", used=entry.top_k, all=entry.num_experts)
        parts.append(used if entry.top_k else tr("{all} experts", all=entry.num_experts))
    if entry.num_layers:
        parts.append(tr_count("{count} layer", "{count} layers", entry.num_layers))
    if entry.context_tokens:
        parts.append(tr("{count} context", count=amounts.tokens(entry.context_tokens)))
    if row.state == "source":
        parts.append(tr("not prepared yet"))
    return "  ·  ".join(str(part) for part in parts)


class ModelRowView(QWidget):
    """One installed model.

    Signals:
        load_asked(Path), unload_asked(), delete_asked(Path), verify_asked(Path).
    """

    load_asked = Signal(object)
    unload_asked = Signal()
    delete_asked = Signal(object)
    verify_asked = Signal(object)

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        self._row: ModelRow | None = None
        self._state: RowState | None = None
        self._is_narrow = self._is_slim = False
        self._name = Label("", "body", "text", 600)
        self._ftw, self._format = Chip("FTW"), Chip("")
        self._builtin = Chip(tr("Comes with the app"))
        self._facts = Elide("", "meta", "text3")
        self._pill = Chip("")
        self._fit, self._why = Chip(tr("Fits"), "ok"), Elide("", "caption", "text3")
        self._size = Label("", "meta", "text2")
        self._size.setAlignment(Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter)
        self.action = Button(tr("Load"), "secondary", "play")
        self.verify = Button("", "ghost", "shield", name=tr("Verify"))
        self.delete = Button("", "ghost", "trash", name=tr("Delete"))
        self._fit_cell = fixed(holder(hbox(self._fit, (self._why, 1), "flex", gap=7)), FIT_W)
        self._state_cell = fixed(holder(hbox(self._pill, None)), STATE_W)
        names = hbox(self._name, self._ftw, self._format, self._builtin, None, gap=6)
        left = vbox(None, names, self._facts, None, gap=3)
        self.setLayout(
            hbox(
                (left, 1),
                self._state_cell,
                self._fit_cell,
                fixed(self._size, SIZE_W),
                fixed(holder(hbox(None, self.action, self.verify, self.delete, gap=2)), ACTION_W),
                gap=12,
                pad=(16, 0, 10, 0),
            )
        )
        fixed(self, height=64)
        self.action.clicked.connect(self._act)
        self.delete.clicked.connect(self._ask_delete)
        self.verify.clicked.connect(self._ask_verify)
        follow(self._retell)

    def show_row(self, row: ModelRow) -> None:
        """Show a model as it stands now."""
        self._row = row
        self._retell()

    def set_narrow(self, narrow: bool, slim: bool) -> None:
        """Leave out what a tool tip can say; `slim` also what button and strip say."""
        self._is_narrow = narrow
        self._state_cell.setVisible(not slim)
        self._size.setVisible(not slim)
        self._is_slim = slim
        fixed(self._fit_cell, NARROW_FIT_W if narrow else FIT_W)
        self._retell()

    def _retell(self) -> None:
        row = self._row
        if row is None:
            return
        entry = row.entry
        self._name.set_text(entry.name)
        self._ftw.setVisible(entry.kind == "ftw" and not self._is_slim)
        self._format.set_text(figures.weight_format(entry.quant))
        self._format.setVisible(bool(entry.quant))
        self._builtin.setVisible(entry.is_builtin and not self._is_narrow)
        self._facts.set_text(facts_of(row))
        self._size.set_text(amounts.disk(entry.total_bytes))
        self._show_state(row)
        known = row.fit.fit in FITS
        self._fit.setVisible(known)
        self._why.setVisible(known and not self._is_narrow)
        self._fit.setToolTip(fit_reason(row.fit) if known else "")
        if known:
            self._fit.set_text(*FITS[row.fit.fit])
            self._why.set_text(fit_reason(row.fit))
        self.setAccessibleName(entry.name)
        self.delete.set_name(tr("Delete {name}", name=entry.name))
        self.verify.set_name(tr("{action}: {name}", action=tr("Verify"), name=entry.name))
        self.verify.set_tip(tr("Read every byte and compare it with its checksum"))
        self.verify.setVisible(entry.kind == "ftw")

    def _show_state(self, row: ModelRow) -> None:
        self._state = row.state
        loaded, busy = row.state == "loaded", row.state == "loading"
        self._pill.setVisible(loaded or busy)
        words = tr("Loaded") if loaded else tr("Loading")
        self._pill.set_text(words, "ok" if loaded else "plain")
        if loaded:
            self.action.set_text(tr("Unload"))
            self.action.set_icon("")
        else:
            self.action.set_text(tr("Load"))
            self.action.set_icon("play")
        source = row.state == "source"
        self.action.set_tip(tr("It is converted first, once.") if source else "")
        self.action.setEnabled(not busy)
        self.action.set_name(tr("{action}: {name}", action=self.action.text(), name=row.entry.name))
        self.delete.setVisible(row.entry.kind == "ftw")
        self.delete.setEnabled(row.state == "ready")
        self.delete.set_tip("" if row.state == "ready" else tr("Unload it first."))

    def _act(self) -> None:
        if self._state == "loaded":
            self.unload_asked.emit()
        else:
            self.load_asked.emit(self.path)

    def _ask_delete(self) -> None:
        self.delete_asked.emit(self.path)

    def _ask_verify(self) -> None:
        self.verify_asked.emit(self.path)


class DeleteDialog(Question):
    """Asks before a model is deleted."""

    def __init__(self, name: str, freed_bytes: int, parent: QWidget) -> None:
        loss = tr(
            "Frees {size}. Chats stay. The original folder, if there is one, is not touched.",
            size=amounts.disk(freed_bytes),
        )
        super().__init__(parent, tr("Delete {name}?", name=name), loss, tr("Keep"), tr("Delete"))
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)


def dropped_paths(event: QDragEnterEvent) -> tuple[Path, ...]:
    """Return the local files and folders that are being dragged."""
    urls = event.mimeData().urls()
    return tuple(Path(url.toLocalFile()) for url in urls if url.isLocalFile())
