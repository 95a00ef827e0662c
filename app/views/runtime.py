"""The engine's libraries as one card: what, how large, from where and to where; progress; the end.

One widget for the first run of a shell and for Settings, About, where it repairs too.
"""

from pathlib import Path

from PySide6.QtWidgets import QFileDialog, QWidget

from app.predict import amounts
from app.services.job_state import JobState
from app.theme import follow
from app.viewmodels.runtime import RuntimeViewModel
from app.views.jobs_parts import job_line
from app.widgets.bars import Bar
from app.widgets.buttons import Button, Segmented
from app.widgets.cards import Card, card_title
from app.widgets.inputs import LineField
from app.widgets.labels import Elide, Label
from app.widgets.layout import fixed, hbox, holder, vbox
from app.widgets.meters import Sentence
from app.widgets.setting_rows import Row
from app.wording import Phrase, tr
from engine.protocol.runtime_lock import BUNDLE_SUFFIX, Build

_BUILDS: dict[Build, Phrase] = {"cpu": tr("CPU only"), "cuda": tr("NVIDIA GPU")}
_STAGES: dict[str, Phrase] = {
    "check": tr("Looking at the files and the free space."),
    "unpack": tr("Unpacking"),
    "try": tr("Trying the engine with it"),
}


NEEDED = tr("The engine needs its libraries once before it can load a model.")
OUTDATED = tr(
    "They are of another version of the program. This one was tried with other libraries."
)
_PLACES = (tr("Folder"), tr("Package index"))


class RuntimeCard(QWidget):
    """See the module.

    Args:
        vm: the libraries.
        says_why: say first what is there or missing; else something above it does.
    """

    def __init__(self, vm: RuntimeViewModel, says_why: bool = True) -> None:
        super().__init__()
        self._vm = vm
        kinds = vm.builds or ("cpu",)  # hidden where there is no choice
        self.builds = Segmented([_BUILDS[key] for key in kinds], name=tr("Kind of engine"))
        self.mirror = LineField(tr("The usual one"), name=tr("Package index"))
        self.install = Button(tr("Install"), "primary", "download")
        self.bundle = Button(tr("From a file…"), "secondary", name=tr("Install from a file"))
        self.stop = Button(tr("Cancel"), "secondary", "x")
        self.resume = Button(tr("Resume"), "primary", "play")
        self.discard = Button(tr("Discard"), "ghost", "trash")
        self._what = Label("", "body", "text2", wrap=True)
        self._size, self._place = Label("", "meta", "text2"), Elide("", "meta", "text2")
        self._line, self._bar = Label("", "meta", "text2", wrap=True), Bar((), 6)
        self._said = Sentence()
        self._build(says_why)
        self._connect()
        follow(self._show)

    def _build(self, says_why: bool) -> None:
        field = fixed(self.mirror, min_width=160, max_width=320)
        names = [fixed(Label(text, "meta", "text3"), min_width=88) for text in _PLACES]
        folder = hbox(names[0], (self._place, 1), gap=10)
        mirror = hbox(names[1], (field, 1), None, gap=10)
        self._choice = holder(
            vbox(hbox(self.builds, self._size, None, gap=12), folder, mirror, gap=9)
        )
        self._progress = holder(vbox(self._bar, self._line, gap=7))
        buttons = hbox(self.install, self.resume, self.stop, self.bundle, self.discard, None, gap=8)
        self.setLayout(
            vbox(
                self._what, self._choice, self._progress, self._said, buttons, gap=11,
            )
        )  # fmt: skip
        self._what.setVisible(says_why)

    def _connect(self) -> None:
        vm = self._vm
        self.builds.picked.connect(self._choose)
        self.mirror.editingFinished.connect(self._set_mirror)
        self.install.clicked.connect(vm.install)
        self.bundle.clicked.connect(self._choose_bundle)
        self.stop.clicked.connect(vm.cancel)
        self.resume.clicked.connect(vm.resume)
        self.discard.clicked.connect(vm.discard)
        vm.changed.connect(self._show)

    def _choose(self, index: int) -> None:
        self._vm.choose(self._vm.builds[index])

    def _set_mirror(self) -> None:
        self._vm.set_mirror(self.mirror.text())

    def _choose_bundle(self) -> None:
        kinds = tr("Engine runtime") + f" (*{BUNDLE_SUFFIX})"
        path, _ = QFileDialog.getOpenFileName(self, tr("Install from a file"), "", kinds)
        if path:
            self._vm.install_bundle(Path(path))

    # --- binding ----------------------------------------------------------------------------

    def _show(self) -> None:
        vm, job = self._vm, self._vm.job
        is_open = job is not None and job.is_open
        self._what.set_text(_what_words(vm))
        self._choice.setVisible(job is None and vm.offer is not None)
        self._show_offer()
        self._progress.setVisible(job is not None)
        if job is not None:
            self._show_job(job)
        tone, sentence = _said(vm)
        self._said.setVisible(bool(sentence))
        self._said.show_text(tone, sentence)
        self.install.set_text(_install_words(vm))
        is_wanted = vm.need in ("missing", "outdated")
        self.install.set_kind("primary" if is_wanted else "secondary")
        self.install.setVisible(job is None and vm.offer is not None)
        self.bundle.setVisible(not is_open)
        self.stop.setVisible(is_open)
        self.stop.setEnabled(is_open and job is not None and not job.is_cancelling)
        self.resume.setVisible(job is not None and not is_open)
        self.discard.setVisible(job is not None and not is_open)

    def _show_offer(self) -> None:
        vm, offer = self._vm, self._vm.offer
        self.builds.setVisible(len(vm.builds) > 1)
        if vm.chosen is not None:
            self.builds.set_current(vm.builds.index(vm.chosen))
        if offer is not None:
            load, disk = amounts.disk(offer.download_bytes), amounts.disk(offer.unpacked_bytes)
            self._size.set_text(tr("{load} to fetch, {disk} on disk", load=load, disk=disk))
        self._place.set_text(str(vm.folder))
        self._place.set_tip(str(vm.folder))
        if not self.mirror.hasFocus() and self.mirror.text() != vm.mirror:
            self.mirror.setText(vm.mirror)

    def _show_job(self, job: JobState) -> None:
        stage = job.progress.stage if job.progress is not None and job.is_open else ""
        words: str = job_line(job)
        if stage in _STAGES:
            words = f"{_STAGES[stage]}  ·  {words}" if stage == "unpack" else _STAGES[stage]
        elif stage == "retry" and job.progress is not None:
            words = tr("The connection was lost, trying again: {why}", why=job.progress.detail)
        elif job.phase in ("cancelled", "interrupted"):
            words = tr("Stopped. What was fetched is kept.")
        self._line.set_text(words)
        share = job.share or 0.0
        role = "accent" if job.is_open and stage != "retry" else "warn"
        self._bar.set_parts([("danger" if job.phase == "failed" else role, share)])
        self._bar.set_name(tr("{share} done", share=amounts.share(share)))


def _install_words(vm: RuntimeViewModel) -> str:
    if vm.is_current:
        return tr("Repair")
    is_newer = vm.need == "outdated" and vm.present is not None and vm.chosen == vm.present.build
    return tr("Update") if is_newer else tr("Install")


def _what_words(vm: RuntimeViewModel) -> str:
    """Why this is here."""
    present = vm.present
    if present is not None:
        size = amounts.disk(present.unpacked_bytes)
        words = tr("Installed: {build}, {size}.", build=_BUILDS[present.build], size=size)
        return f"{words} {OUTDATED}" if vm.need == "outdated" else words
    if vm.need == "missing":
        return NEEDED
    return tr("The libraries that came with the program are in use.")


def _said(vm: RuntimeViewModel) -> tuple[str, str]:
    """Return tone and sentence below the figures."""
    if vm.problem:
        return "refused", vm.problem
    if vm.offer is None:
        return "warn", tr("This version brings no list of libraries for this computer; use a file.")
    return "info", ""


def runtime_card(vm: RuntimeViewModel) -> Card:
    """Return the card of the first run."""
    head = card_title(tr("Engine runtime"), icon="cpu")
    return Card(vbox(head, RuntimeCard(vm), gap=11, pad=(16, 14, 16, 14)))


class RuntimeRow(Row):
    """The same in Settings, About."""

    def __init__(self, vm: RuntimeViewModel) -> None:
        super().__init__(
            tr("Engine runtime"), tr("The libraries that compute. Repair installs them again")
        )
        self.card = RuntimeCard(vm)
        column = self.layout()
        if column is not None:
            column.addWidget(holder(vbox(self.card, pad=(16, 0, 16, 14))))
