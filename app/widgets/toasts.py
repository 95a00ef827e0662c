"""Short notes at the bottom right of the content; never for failures that need a decision."""

from collections.abc import Callable

from PySide6.QtCore import QEvent, QObject, QTimer
from PySide6.QtGui import QAccessible, QAccessibleAnnouncementEvent
from PySide6.QtWidgets import QWidget

from app.theme import follow, px
from app.widgets.buttons import Button
from app.widgets.cards import Card
from app.widgets.labels import Icon, Label
from app.widgets.layout import hbox
from app.wording import again, tr

_TONES = {"ok": ("check", "accentText"), "info": ("info", "link"), "warn": ("warn", "warn")}
MAX_TOASTS, TOAST_MS = 2, 6000


class Toast(Card):
    """One note: icon, words, an action or none, a close button."""

    def __init__(
        self, text: str, tone: str = "ok", action: str = "", act: Callable[[], None] | None = None
    ) -> None:
        icon, role = _TONES[tone]
        self.label = Label(text, "meta", "text")
        close = Button(kind="ghost", icon="x", small=True, name=tr("Close"))
        row = hbox(Icon(icon, 16, role), self.label, 12, gap=8, pad=(12, 5, 6, 5))
        if action and act is not None:
            button = Button(action, "ghost", small=True)
            button.clicked.connect(act)
            button.clicked.connect(self.close)
            row.put(button)
        row.put(close)
        super().__init__(row, fill="overlay", border="control", radius=8)
        close.clicked.connect(self.close)


class Toasts(QObject):
    """Keeps at most two notes over `host`, for six seconds each (not while pointed at)."""

    def __init__(self, host: QWidget) -> None:
        super().__init__(host)
        self.shown: list[Toast] = []
        host.installEventFilter(self)
        follow(self._follow)

    def show(
        self, text: str, tone: str = "ok", action: str = "", act: Callable[[], None] | None = None
    ) -> Toast:
        """Show a note; the oldest one makes room, and one that said the same."""
        for same in [shown for shown in self.shown if shown.label.text() == again(text)]:
            self._drop(same)
        while len(self.shown) >= MAX_TOASTS:
            self._drop(self.shown[0])
        toast = Toast(text, tone, action, act)
        toast.setParent(self._host)
        toast.installEventFilter(self)
        timer = QTimer(toast)
        timer.setInterval(TOAST_MS)
        timer.timeout.connect(toast.close)
        timer.start()
        self.shown.append(toast)
        toast.show()
        self.place()
        QAccessible.updateAccessibility(QAccessibleAnnouncementEvent(toast, again(text)))
        return toast

    @property
    def _host(self) -> QWidget:
        """What the notes lie on: asked for, not kept, as events come until its very end."""
        host = self.parent()
        if not isinstance(host, QWidget):
            raise RuntimeError("Notes need a widget to lie on.")
        return host

    def _follow(self) -> None:
        """Take the sizes of the present words and zoom: after the notes' own parts did."""
        if self.shown:
            QTimer.singleShot(0, self, self.place)

    def place(self) -> None:
        """Stack the notes upwards from the bottom right corner."""
        host = self._host
        bottom = host.height() - px(16)
        for toast in reversed(self.shown):
            toast.adjustSize()
            size = toast.sizeHint().boundedTo(host.size())
            toast.setGeometry(
                host.width() - size.width() - px(16),
                bottom - size.height(),
                size.width(),
                size.height(),
            )
            toast.raise_()
            bottom -= size.height() + px(8)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Follow the host's size, wait while pointed at, forget what was closed."""
        kind = event.type()
        if isinstance(watched, Toast):
            timer = watched.findChild(QTimer)
            if kind == QEvent.Type.Enter and timer is not None:
                timer.stop()
            elif kind == QEvent.Type.Leave and timer is not None:
                timer.start()
            elif kind == QEvent.Type.Close:
                self._drop(watched)
        elif kind == QEvent.Type.Resize:
            self.place()
        return False

    def _drop(self, toast: Toast) -> None:
        if toast in self.shown:
            self.shown.remove(toast)
            toast.removeEventFilter(self)
            toast.hide()
            toast.deleteLater()
            self.place()
