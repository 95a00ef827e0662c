"""About: licences of all parts, and whether there is a newer release. QtCore only."""

from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, QTimer, Signal

from app.services.runtime_build import read_build, runtime_in_use
from app.services.settings import SettingsStore
from app.services.updates import Release, UpdateCheck, is_newer
from app.wording import tr
from engine.protocol.places import DataRoot

if TYPE_CHECKING:
    from app.services.licences import Licence


class AboutViewModel(QObject):
    """See the module.

    Args:
        settings: whether to look for releases by itself; off by default.
        check: asks.
        version: of this program.
        root: the data root, for the licences of an installed runtime.

    Attributes:
        newer: a release to tell about, None = none is known.

    Signals:
        changed(): `newer` or `sentence` differ.
        told(str, str): a newer release was found by itself: a sentence, and its page.
    """

    changed = Signal()
    told = Signal(str, str)

    def __init__(
        self, settings: SettingsStore, check: UpdateCheck, version: str, root: DataRoot
    ) -> None:
        super().__init__()
        self._settings, self._check, self._version = settings, check, version
        self._root = root
        self._is_asked = False
        self._problem = ""
        self._newest: Release | None = None
        check.known.connect(self._on_known)
        check.failed.connect(self._on_failed)
        settings.changed.connect(self.changed)

    # --- releases ---------------------------------------------------------------------------

    @property
    def can_check(self) -> bool:
        """Whether this build knows where to look."""
        return self._check.is_possible

    @property
    def is_on(self) -> bool:
        """Whether it looks at each start."""
        return self._settings.value.update_check

    @property
    def is_asking(self) -> bool:
        """Whether an answer is awaited."""
        return self._check.is_asking

    @property
    def newer(self) -> Release | None:
        """The release that is newer than this program."""
        newest = self._newest
        return newest if newest and is_newer(newest.version, self._version) else None

    @property
    def tone(self) -> str:
        """How the sentence is meant: a tone of `Sentence`."""
        if self._problem:
            return "refused"
        if self.is_asking:
            return "pending"
        return "applied" if self._newest and not self.newer else "info"

    @property
    def sentence(self) -> str:
        """What is known, in words."""
        if not self.can_check:
            return tr("This build knows no address to look at.")
        if self._problem:
            return self._problem
        if self.is_asking:
            return tr("Asking.")
        if self.newer is not None:
            return tr("Version {version} is there.", version=self.newer.version)
        if self._newest is not None:
            return tr("This is the newest version.")
        return tr("Nothing is sent but the question.")

    def set_on(self, on: bool) -> None:
        """Look at each start, or never; looks at once when switched on."""
        if on != self.is_on:
            self._settings.set(update_check=on)
            if on:
                self.ask()

    def begin(self) -> None:
        """The window is there: look, if the person wants that."""
        if self.is_on:
            QTimer.singleShot(0, self, self._look)

    def ask(self) -> None:
        """Look now."""
        self._is_asked = True
        self._look()

    def close(self) -> None:
        """The app ends."""
        self._check.close()

    def _look(self) -> None:
        self._problem = ""
        self._check.ask()
        self.changed.emit()

    def _on_known(self, release: Release) -> None:
        self._newest = release
        self.changed.emit()
        newer = self.newer
        is_news = newer is not None and newer.version != self._settings.value.update_told
        if newer is not None and is_news and not self._is_asked:
            self._settings.set(update_told=newer.version)
            self.told.emit(self.sentence, newer.page)
        self._is_asked = False

    def _on_failed(self, sentence: str) -> None:
        """A look that nobody asked for fails without a word."""
        self._problem = sentence if self._is_asked else ""
        self._is_asked = False
        self.changed.emit()

    # --- licences ---------------------------------------------------------------------------

    def licences(self) -> tuple["Licence", ...]:
        """Return the licences of all parts."""
        from app.services.licences import read_licences  # slow to import, and seldom asked for

        return read_licences(runtime_in_use(self._root.runtime, read_build().bundle))
