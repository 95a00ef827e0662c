"""The window: rail, strip, pages, notes. It shows what the session says and hands on what is asked.

Made by the composition root with the session and the pages; knows no service.
"""

from collections.abc import Callable, Mapping

from PySide6.QtCore import QSize, Qt, Signal
from PySide6.QtGui import QCloseEvent, QKeyEvent, QResizeEvent, QShowEvent
from PySide6.QtWidgets import QApplication, QStackedWidget, QWidget

from app.predict.split import ORDER
from app.theme import SIZE, ZOOM_STEP, follow, px, theme
from app.viewmodels.session import SessionViewModel
from app.views.geometry import WindowPlace, on_screen, read_place
from app.views.help_dialog import HelpDialog
from app.views.problem_band import ProblemBand
from app.views.shortcuts import PAGES, Shortcut, TakesShortcuts, bind
from app.widgets.cards import Line
from app.widgets.layout import hbox, holder, vbox
from app.widgets.rail import Rail, Reading
from app.widgets.strip import ModelChoice, Strip
from app.widgets.toasts import Toasts
from app.wording import figures, tr
from engine.protocol.messages import EngineState, Status

FOLD_BELOW = 1000  # px at 100 %
_PILLS = {
    EngineState.IDLE: "off",
    EngineState.LOADING: "loading",
    EngineState.READY: "ready",
    EngineState.GENERATING: "generating",
    EngineState.MOVING: "moving",
    EngineState.STOPPING: "loading",
}
_YIELDED = {EngineState.READY: "", EngineState.GENERATING: tr("Generating, yielded")}


class MainWindow(QWidget):
    """The one window.

    Args:
        session: what strip, rail and problem band show.
        pages: the pages by name, in the order of the rail; each is asked for when it first comes to
            the front.

    Signals:
        page_changed(str): name of the page that came to the front.
        zoomed(float): the person chose another zoom by key; to be remembered.
        remembered(str, bool): place of the window and whether the rail is folded, when it closes.
        context_wanted(): the context meter was clicked.
        palette_wanted(): Ctrl+K, or the search button of the strip.
        quit_wanted(): Ctrl+Q.
        yield_wanted(): Ctrl+Shift+Y.
    """

    page_changed = Signal(str)
    zoomed = Signal(float)
    remembered = Signal(str, bool)
    context_wanted = Signal()
    palette_wanted = Signal()
    quit_wanted = Signal()
    yield_wanted = Signal()

    def __init__(self, session: SessionViewModel, pages: Mapping[str, QWidget]) -> None:
        super().__init__()
        self._session, self.pages = session, pages
        self._page = next(iter(pages))
        self._folded_by_hand = False
        self._is_yielded = False
        self._remote: tuple[str, str, bool] | None = None
        self.setObjectName("canvas")
        theme().dress(self)
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self.rail = Rail([(name, text) for name, text in PAGES if name in self.pages])
        self.strip = Strip()
        self.stack = QStackedWidget()
        self.problem = ProblemBand()
        body = holder(vbox(self.strip, self.problem, (self.stack, 1), gap=0))
        self.setLayout(hbox(self.rail, Line(vertical=True), (body, 1), gap=0))
        self.toasts = Toasts(self.stack)
        self.actions_by_id = bind(self, self._act)
        self._connect()
        self.resize(px(SIZE["windowWidth"]), px(SIZE["windowHeight"]))
        follow(self.retheme)
        self._show_models_list()
        self._show_meters()
        self.rail.set_page(self._page)
        self.rail.items[self._page].setFocus()  # never on the fold button, which may be hidden

    def _connect(self) -> None:
        self.rail.chosen.connect(self.show_page)
        self.rail.fold_clicked.connect(self._toggle_rail)
        self.strip.model_chosen.connect(self._session.load)
        self.strip.models_wanted.connect(self._show_models)
        self.strip.stop_clicked.connect(self._session.stop_reply)
        self.strip.search_clicked.connect(self.palette_wanted)
        self.strip.state_clicked.connect(self._show_details)
        self.strip.context_clicked.connect(self.context_wanted)
        self.problem.restart.clicked.connect(self._restart)
        self.problem.smaller.clicked.connect(self._restart_smaller)
        self.problem.log.clicked.connect(self._show_logs)
        self.problem.models.clicked.connect(self._show_models)
        self.problem.close_button.clicked.connect(self._session.dismiss_problem)
        self._session.changed.connect(self._show_session)
        self._session.models_changed.connect(self._show_models_list)
        self._session.meters_changed.connect(self._show_meters)
        self._session.notice.connect(self._show_notice)

    # --- what others call ---------------------------------------------------------------------

    @property
    def page(self) -> str:
        """Name of the page in front; before the window is shown, of the one that will be."""
        return self._page

    def show_page(self, name: str) -> None:
        """Bring a page to the front; an unknown name changes nothing."""
        if name not in self.pages:
            return
        self._page = name
        self.stack.setCurrentWidget(self.prepare(name))
        self.rail.set_page(name)
        self._show_problem()
        self.page_changed.emit(name)

    def prepare(self, name: str) -> QWidget:
        """Return a page, built and in its place, without bringing it to the front."""
        page = self.pages[name]
        if self.stack.indexOf(page) < 0:
            self.stack.addWidget(page)
        return page

    def set_meter(self, reading: Reading) -> None:
        """Show memory as driver and system report it, twice a second."""
        self.rail.set_meter(reading)

    def set_status(self, status: Status | None) -> None:
        """Show how the engine divides its first device; None = there is no engine."""
        if status is None or not status.devices:
            self.rail.set_pools((), 0, 0)
            return
        device = status.devices[0]
        emulated = device.device.emulated
        if emulated and status.model is None:  # the machine's RAM: nothing stands for VRAM yet
            self.rail.set_pools((), 0, 0)
            return
        used = {pool.name: pool.used_bytes for pool in device.pools}
        pools = [(name, used[name]) for name in ORDER if name in used]
        experts = status.model.pool_bytes if status.model else 0
        self.rail.set_pools(pools, device.total_bytes, experts, emulated)

    def set_context(self, used_tokens: int, capacity_tokens: int) -> None:
        """Show how full the context of the conversation on screen is; capacity 0 = no model."""
        self.strip.set_context(used_tokens, capacity_tokens)

    def set_yielded(self, is_yielded: bool) -> None:
        """Show in the pill that memory was given to other programs."""
        if is_yielded != self._is_yielded:
            self._is_yielded = is_yielded
            self._show_session()

    def set_remote(self, name: str, host: str, is_replying: bool) -> None:
        """Show that a remote engine answers the chat; "" = the local one does."""
        remote = (name, host, is_replying) if name else None
        if remote != self._remote:
            self._remote = remote
            self._show_session()

    def set_badge(self, page: str, badge: str) -> None:
        """Show a short figure beside a page in the rail."""
        if page in self.pages:
            self.rail.set_badge(page, badge)

    def toast(
        self, text: str, tone: str = "ok", action: str = "", act: Callable[[], None] | None = None
    ) -> None:
        """Show a short note (tones: ok, info, warn)."""
        self.toasts.show(text, tone, action, act)

    def restore(self, place: str, rail_folded: bool) -> None:
        """Go where the window was, as far as that is on a screen (case G-16)."""
        self._folded_by_hand = rail_folded
        self._fit_width()
        found = read_place(place)
        if found is None:
            return
        screens = [screen.availableGeometry() for screen in QApplication.screens()]
        self.setGeometry(on_screen(found.rect, screens, self.minimumSize()))
        if found.maximized:
            self.setWindowState(Qt.WindowState.WindowMaximized)

    # --- look ---------------------------------------------------------------------------------

    def retheme(self) -> None:
        """Take words and bounds from the present language and zoom."""
        self.setWindowTitle(tr("FreeToken Desktop"))
        least = QSize(px(SIZE["windowMinWidth"]), px(SIZE["windowMinHeight"]))
        screen = self.screen()
        if screen is not None:
            least = least.boundedTo(screen.availableSize())
        self.setMinimumSize(least)
        self._fit_width()
        self._show_session()

    def _fit_width(self) -> None:
        narrow = self.width() < px(FOLD_BELOW)
        self.strip.set_narrow(narrow)
        self.rail.set_folded(narrow or self._folded_by_hand)

    def showEvent(self, event: QShowEvent) -> None:
        """Bring the page in front: nothing is built for a window that nobody sees."""
        if self.stack.currentWidget() is None:
            self.show_page(self._page)
        super().showEvent(event)

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Fold the rail when it gets narrow."""
        super().resizeEvent(event)
        self._fit_width()

    def closeEvent(self, event: QCloseEvent) -> None:
        """Hand out the place, so that it can be remembered."""
        place = WindowPlace(self.normalGeometry(), self.isMaximized())
        self.remembered.emit(place.text(), self._folded_by_hand)
        super().closeEvent(event)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Esc that nobody else wanted stops the reply."""
        if event.key() == Qt.Key.Key_Escape and self._session.can_stop:
            self._session.stop_reply()
            return
        super().keyPressEvent(event)

    # --- the session --------------------------------------------------------------------------

    def _show_session(self) -> None:
        session, strip = self._session, self.strip
        strip.set_model(session.model_name, session.quant)
        strip.set_speed(session.tok_s or None)
        strip.set_can_stop(session.can_stop)
        trouble = session.trouble
        if self._remote is not None:
            name, host, is_replying = self._remote
            strip.set_model(name, tr("Remote"))
            words = tr("Remote: {host}", host=host)
            strip.pill.set_state("generating" if is_replying else "ready", words)
        elif trouble is not None and trouble.kind != "load":
            strip.pill.set_state("error", trouble.pill)
        elif self._is_yielded and session.state in _YIELDED:
            strip.pill.set_state("yielded", _YIELDED[session.state])
        else:
            strip.pill.set_state(_PILLS[session.state], session.state_detail, session.share)
        self._show_problem()

    def _show_problem(self) -> None:
        """Below the strip, unless the page in front has a card of its own for it."""
        trouble = self._session.trouble
        has_card = self.page == "chat" and trouble is not None and trouble.kind == "stopped"
        self.problem.show_problem(None if has_card else trouble)

    def _show_models_list(self) -> None:
        session = self._session
        self.strip.set_choices([ModelChoice(m.path, m.name, m.facts) for m in session.models])
        shares = session.job_shares
        for page in ("models", "profiler"):
            self.set_badge(page, figures.share(shares[page]) if page in shares else "")

    def _show_meters(self) -> None:
        if self._session.reading is not None:
            self.set_meter(self._session.reading)
        self.set_status(self._session.status)

    def _show_notice(self, sentence: str, tone: str) -> None:
        self.toast(sentence, tone)

    def _restart(self) -> None:
        self._session.restart_engine()

    def _restart_smaller(self) -> None:
        self._session.restart_engine(smaller=True)

    def _show_details(self) -> None:
        self.show_page("logs" if self._session.problem else "performance")

    def _show_models(self) -> None:
        self.show_page("models")

    def _show_logs(self) -> None:
        self.show_page("logs")

    # --- shortcuts ----------------------------------------------------------------------------

    def _act(self, shortcut: Shortcut) -> None:
        """Do what a shortcut of the table says."""
        if shortcut.id.startswith("page_"):
            self._go(shortcut.id.removeprefix("page_"))
            return
        if shortcut.page:
            self.show_page(shortcut.page)
            page = self.pages.get(shortcut.page)
            if isinstance(page, TakesShortcuts):
                page.shortcut(shortcut.id)
            return
        steps: dict[str, Callable[[], object]] = {
            "palette": self.palette_wanted.emit,
            "search": self._search,
            "settings": lambda: self._go("settings"),
            "help": self._help,
            "quit": self.quit_wanted.emit,
            "yield_now": self.yield_wanted.emit,
            "rail": self._toggle_rail,
            "zoom_in": lambda: self._zoom(theme().zoom + ZOOM_STEP),
            "zoom_out": lambda: self._zoom(theme().zoom - ZOOM_STEP),
            "zoom_reset": lambda: self._zoom(1.0),
        }
        steps[shortcut.id]()

    def _go(self, name: str) -> None:
        """Show a page and put the focus on its first control."""
        self.show_page(name)
        first = first_control(self.stack.currentWidget())
        if first is not None:
            first.setFocus(Qt.FocusReason.ShortcutFocusReason)

    def _search(self) -> None:
        """Search on this page if it can, else in the chats."""
        page = self.stack.currentWidget()
        if isinstance(page, TakesShortcuts) and page.shortcut("search"):
            return
        self.show_page("chat")
        chat = self.pages.get("chat")
        if isinstance(chat, TakesShortcuts):
            chat.shortcut("search")

    def _help(self) -> None:
        dialog = HelpDialog(self)
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.page_wanted.connect(self.show_page)
        dialog.open()

    def _toggle_rail(self) -> None:
        self._folded_by_hand = not self._folded_by_hand
        self._fit_width()

    def _zoom(self, zoom: float) -> None:
        theme().use(zoom=zoom)
        self.zoomed.emit(theme().zoom)


def first_control(page: QWidget | None) -> QWidget | None:
    """Return the first control of a page in the order of Tab, or None."""
    widget = page.nextInFocusChain() if page is not None else None
    while page is not None and widget is not None and widget is not page:
        wants = widget.focusPolicy() & Qt.FocusPolicy.TabFocus
        if page.isAncestorOf(widget) and wants and widget.isVisible() and widget.isEnabled():
            return widget
        widget = widget.nextInFocusChain()
    return None
