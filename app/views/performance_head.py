"""The head of the Performance page: title, how misses are served, time span of the charts."""

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QWidget

from app.predict import amounts
from app.predict.profiles import Profile
from app.theme import follow, px
from app.viewmodels.performance_state import POLICIES, Figures
from app.widgets.buttons import Segmented
from app.widgets.labels import Label
from app.widgets.layout import hbox, vbox
from app.wording import Phrase, again, tr
from engine.protocol.messages import MissPolicy, ModelInfo

_POLICY_WORDS: dict[MissPolicy, tuple[Phrase, Phrase]] = {
    MissPolicy.TWO_ENDED: (
        tr("Automatic"),
        tr("CPU and link take missing experts from both ends of one list, each at its own pace."),
    ),
    MissPolicy.SPLIT: (
        tr("Split"),
        tr(
            "Divided by measured rates: some missing experts are copied, the CPU computes the rest."
        ),
    ),
    MissPolicy.FILL_ONLY: (
        tr("Copy all"),
        tr("Each missing expert is copied into the cache first. The CPU computes none."),
    ),
    MissPolicy.CPU_ONLY: (
        tr("CPU only"),
        tr("The CPU computes missing experts where they lie, in RAM. The cache stays as it is."),
    ),
}


class PolicyChoice(QWidget):
    """How misses are served, in one choice; a sentence and the figures are in its tool tip.

    Signals:
        chosen(MissPolicy): another way.
    """

    chosen = Signal(object)

    def __init__(self) -> None:
        super().__init__()
        words = tuple(_POLICY_WORDS[policy][0] for policy in POLICIES)
        self.choice = Segmented(words, name=tr("How misses are served"))
        self._sentence: Phrase = _POLICY_WORDS[MissPolicy.TWO_ENDED][1]
        self._rates: str = ""
        self._copied: str = ""
        self.setLayout(hbox(Label(tr("Missing experts"), "meta", "text2"), self.choice, gap=8))
        self.choice.picked.connect(self._tell)
        follow(self.retell)

    def show_policy(self, policy: MissPolicy, model: ModelInfo | None) -> None:
        """Show the way in force."""
        self.choice.setEnabled(model is not None)
        self.choice.set_current(POLICIES.index(policy))
        self._sentence = _POLICY_WORDS[policy][1]
        self.retell()

    def show_rates(self, profile: Profile | None, figures: Figures | None) -> None:
        """Say the machine's rates, and the share of misses that was copied."""
        if profile is None:
            self._rates = tr("Measured limits: none yet, run the profiler.")
        else:
            fill, cpu = amounts.number(profile.fill_gbps), amounts.number(profile.cpu_gbps)
            self._rates = tr("Measured limits: Bₚ {fill} · Bₕ {cpu} GB/s", fill=fill, cpu=cpu)
        share = figures.copied_share if figures is not None else None
        self._copied = ""
        if share is not None:
            self._copied = tr("Copied per miss: {share}", share=amounts.share(share))
        self.retell()

    def retell(self) -> None:
        """Say sentence and figures in the present language."""
        parts = (again(self._sentence), again(self._rates), again(self._copied))
        text = "\n".join(part for part in parts if part)
        if text != self.choice.toolTip():
            self.choice.setToolTip(text)
            self.choice.setAccessibleDescription(text)

    def _tell(self, index: int) -> None:
        self.chosen.emit(POLICIES[index])


class PerformanceHead(QWidget):
    """One row, or two where the choice does not fit beside the title."""

    def __init__(self) -> None:
        super().__init__()
        self.policy = PolicyChoice()
        self.spans = Segmented((tr("1 min"), tr("15 min"), tr("2 h")), 0, name=tr("Time span"))
        self._title = Label(tr("Performance"), "title", "text", 600)
        self._beside, self._below = hbox(gap=0), hbox(gap=0)
        self._is_beside: bool | None = None
        row = hbox(self._title, None, self._beside, 16, self.spans, gap=8)
        self.setLayout(vbox(row, hbox(self._below, None), gap=0))
        self.place(0)

    def place(self, width: int) -> None:
        """Arrange for so many device px."""
        parts = (self._title, self.policy, self.spans)
        beside = sum(part.sizeHint().width() for part in parts) + px(56) <= width
        if beside == self._is_beside:
            return
        self._is_beside = beside
        old, new = (self._below, self._beside) if beside else (self._beside, self._below)
        old.removeWidget(self.policy)
        new.addWidget(self.policy)
        self._below.set_pad((0, 0, 0, 0) if beside else (0, 6, 0, 0))
