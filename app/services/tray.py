"""The icon in the system's tray: state, open, quit. Without a tray nothing happens.

Lives in services by its nature (it outlives the window), though the class is Qt's widget one.
"""

from PySide6.QtCore import QObject, Signal
from PySide6.QtGui import QAction, QIcon
from PySide6.QtWidgets import QMenu, QSystemTrayIcon

from app.theme import theme
from app.wording import again, tr


class Tray(QObject):
    """A tray icon with a menu.

    Signals:
        open_wanted(): the icon or "Open" was clicked.
        yield_wanted(): "Yield now" or "Take back" was clicked.
        load_wanted(), unload_wanted(): the model's entry was clicked, in the sense it had.
        quit_wanted(): "Quit" was clicked.
    """

    open_wanted = Signal()
    yield_wanted = Signal()
    load_wanted = Signal()
    unload_wanted = Signal()
    quit_wanted = Signal()

    def __init__(self, icon: QIcon, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._icon: QSystemTrayIcon | None = None
        self._state: str = ""
        self._is_yielded = self._has_model = False
        if not QSystemTrayIcon.isSystemTrayAvailable():
            return
        self._menu = QMenu()
        theme().dress(self._menu)  # it hangs below no window
        self._head = QAction(self._menu)
        self._head.setEnabled(False)
        self._open = QAction(self._menu)
        self._open.triggered.connect(self.open_wanted)
        self._yield = QAction(self._menu)
        self._yield.setEnabled(False)
        self._yield.triggered.connect(self.yield_wanted)
        self._model = QAction(self._menu)
        self._model.setEnabled(False)
        self._model.triggered.connect(self._on_model)
        self._quit = QAction(self._menu)
        self._quit.triggered.connect(self.quit_wanted)
        self._menu.addActions([self._head, self._open, self._yield, self._model, self._quit])
        self._icon = QSystemTrayIcon(icon, self)
        self._icon.setContextMenu(self._menu)
        self._icon.activated.connect(self._on_activated)
        self.retranslate()
        self._icon.show()

    @property
    def is_available(self) -> bool:
        """Whether there is a tray; without one, closing the window quits."""
        return self._icon is not None

    def set_state(self, sentence: str) -> None:
        """Show what the engine does, in the menu and as tool tip."""
        self._state = sentence
        self.retranslate()

    def set_yield(self, is_yielded: bool, is_known: bool) -> None:
        """Offer to yield memory, or to take it back; without a model neither."""
        self._is_yielded = is_yielded
        if self._icon is not None:
            self._yield.setEnabled(is_known)
        self.retranslate()

    def set_model(self, has_model: bool, can_change: bool) -> None:
        """Offer to load the last model, or to free the one that is there."""
        self._has_model = has_model
        if self._icon is not None:
            self._model.setEnabled(can_change)
        self.retranslate()

    def say(self, sentence: str) -> None:
        """Show a notification."""
        if self._icon is not None:
            self._icon.showMessage(tr("FreeToken Desktop"), again(sentence))

    def retranslate(self) -> None:
        """Take words from the language in use."""
        if self._icon is None:
            return
        self._head.setText(again(self._state))
        self._open.setText(tr("Open"))
        self._yield.setText(tr("Take back") if self._is_yielded else tr("Yield now"))
        free, load = tr("Unload the model"), tr("Load the last model")
        self._model.setText(free if self._has_model else load)
        self._quit.setText(tr("Quit"))
        self._icon.setToolTip(again(self._state) or tr("FreeToken Desktop"))

    def close(self) -> None:
        """Take the icon away."""
        if self._icon is not None:
            self._icon.hide()
            self._icon = None

    def _on_model(self) -> None:
        if self._has_model:
            self.unload_wanted.emit()
        else:
            self.load_wanted.emit()

    def _on_activated(self, reason: QSystemTrayIcon.ActivationReason) -> None:
        if reason == QSystemTrayIcon.ActivationReason.Trigger:
            self.open_wanted.emit()
