"""The composition root: services -> view models -> pages -> window. Wires, decides nothing.

`Desktop` is the whole app without the event loop; `app.__main__` and `app.smoke` run it. What lies
below the window is made in `app.parts`.
"""

import logging

from PySide6.QtCore import QObject, QUrl, Signal
from PySide6.QtGui import QDesktopServices

from app.first_picture import FirstPicture
from app.pages import Pages
from app.palette import make_palette
from app.parts import make_services, make_view_models, program_of
from app.predict import amounts
from app.services.closing import Closing
from app.services.event_log import EventLog
from app.services.handing_over import activation
from app.services.log_ring import LogRing
from app.services.model_open import model_folder
from app.services.settings import Environment, Settings, chosen_folder
from app.services.tray import Tray
from app.viewmodels.chat import Coming
from app.views.main_window import MainWindow
from app.widgets.icons import icon
from app.widgets.look import use
from app.wording import figures, tr
from engine.protocol.messages import EngineState

_log = logging.getLogger("app")


class Desktop(QObject):
    """The app.

    Attributes:
        services, vm, pages, window, closing: its parts, for the smoke run and tests.

    Signals:
        begun(): the window is on screen and engine, library and meter have been started.
        finished(): everything is stopped; the event loop may end.
    """

    begun = Signal()
    finished = Signal()

    def __init__(self, environment: Environment, ring: LogRing) -> None:
        super().__init__()
        self._is_quitting = False
        self.services = make_services(environment, ring)
        self._events = EventLog(self.services.client, self.services.jobs)
        self._look(self.services.settings.value)
        self.vm = make_view_models(self.services)
        self.pages = Pages(self.vm, self._show_page, self._show_settings)
        self.window = MainWindow(self.vm.session, self.pages)
        self._first_picture = FirstPicture(self.window)
        self._first_picture.drawn.connect(self._begin)
        self.palette = make_palette(self.window, self.pages, self.vm.chat.chats, self.vm.session)
        self.tray = Tray(icon("models"), self)
        s, vm = self.services, self.vm
        self.closing = Closing(
            s.client,
            s.jobs,
            first=(
                vm.session.close,
                vm.chat.close,
                vm.remote.close,
                vm.about.close,
                s.library.close,
            ),
            last=(
                s.meter.stop,
                s.presence.stop,
                s.machine.stop,
                s.under_load.stop,
                s.wake.stop,
                vm.chat.fall_silent,
                s.chats.close,
                self.tray.close,
                *(f.close for f in s.files),
            ),
        )
        self.closing.finished.connect(self.finished)
        self._wire_settings()
        self._wire_window()
        self._wire_pages()

    def show(self, page: str = "") -> None:
        """Show the window; engine, library and meter start after its first picture."""
        settings = self.services.settings.value
        self.window.restore(settings.geometry, settings.rail_folded)
        if page:
            self.window.show_page(page)
        self._first_picture.expect()
        self.window.show()
        if self.window.page == "chat":
            self.pages.chat.composer.focus()

    def greet(self) -> None:
        """Show the first run, once; it blocks nothing, and Settings leads there again."""
        if not self.services.settings.value.first_run_told:
            self.services.settings.set(first_run_told=True)
            self.window.show_page("first_run")

    def raise_window(self, page: str = "", token: str = "") -> None:
        """Bring the window to the front: a second start (with its token), or the tray."""
        self.window.showNormal() if self.window.isMinimized() else self.window.show()
        self.window.raise_()
        with activation(token):
            self.window.activateWindow()
        if page:
            self.window.show_page(page)

    def is_busy(self) -> bool:
        """Whether a reply is being written or a model is being loaded."""
        return self.vm.session.state not in (EngineState.IDLE, EngineState.READY)

    def open_model(self, file: str, token: str = "") -> None:
        """Load a model that the desktop handed over: a double click on its `model.ftw`."""
        self.raise_window(token=token)
        folder = model_folder(file)
        if folder is None:
            self._warn(tr("{path} is no model of FreeToken.", path=file))
        else:
            self.vm.session.load(folder)

    def quit(self) -> None:
        """Close the window and stop everything; `finished` follows within five seconds."""
        self._is_quitting = True
        self.window.close()  # hands out its place
        self.closing.begin()

    def _begin(self) -> None:
        if self.closing.has_begun:
            return  # quit before the first picture
        _log.info("window shown")
        self.services.meter.start()
        self.services.presence.start()
        self.services.wake.start()
        self.vm.session.start()
        self.vm.about.begin()
        for sentence in (*self.services.settings.notices, *self.vm.chat.notices):
            self.window.toast(sentence, "warn")
        self._tell_outdated_runtime()
        self.begun.emit()

    # --- wires

    def _wire_settings(self) -> None:
        s, vm = self.services, self.vm
        s.settings.changed.connect(self._look)
        s.settings.changed.connect(self._follow_folder)
        s.settings.changed.connect(self._follow_program)
        s.settings.changed.connect(self._tell_no_tray)
        vm.settings.notice.connect(self._warn)
        vm.settings.restart_needed.connect(self._offer_restart)

    def _wire_window(self) -> None:
        window, settings = self.window, self.services.settings
        window.zoomed.connect(lambda zoom: settings.set(zoom=zoom))
        window.remembered.connect(self._on_closed)
        window.quit_wanted.connect(self.quit)
        window.context_wanted.connect(self._show_context)
        self.tray.open_wanted.connect(self.raise_window)
        self.tray.quit_wanted.connect(self.quit)
        self.vm.session.changed.connect(self._show_state)
        self.vm.session.changed.connect(self._show_coming)
        self._wire_yielding()

    def _wire_yielding(self) -> None:
        yielding, window = self.vm.yielding, self.window
        self.services.presence.seen.connect(self.vm.performance.take_presence)
        yielding.changed.connect(self._show_yielded)
        yielding.happened.connect(self.vm.performance.history.mark)
        yielding.said.connect(self._say)
        window.yield_wanted.connect(yielding.toggle)
        self.tray.yield_wanted.connect(yielding.toggle)
        self.tray.load_wanted.connect(self.vm.session.load_default)
        self.tray.unload_wanted.connect(self.vm.session.unload)

    def _wire_pages(self) -> None:
        vm, window = self.vm, self.window
        vm.profiler.measured.connect(vm.performance.reload_profiles)
        vm.chat.page_requested.connect(window.show_page)
        vm.chat.load_requested.connect(vm.session.load_default)
        vm.chat.talk.state_changed.connect(self._wake)
        vm.chat.restart_requested.connect(vm.session.restart_engine)
        vm.chat.said.connect(self._say)
        vm.chat.context.changed.connect(self._show_fill)
        vm.chat.engine_changed.connect(self._show_fill)
        vm.models.freed.connect(self._say_freed)
        vm.move.said.connect(self._say)
        vm.remote.changed.connect(self._show_remote)
        vm.chat.talk.state_changed.connect(self._show_remote)
        self._show_remote()
        vm.about.told.connect(self._tell_release)
        vm.runtime.stop_wanted.connect(self.services.client.stop)
        vm.runtime.installed.connect(self._take_runtime)
        vm.discover.flows.settings_wanted.connect(self._show_hub_settings)

    def _look(self, settings: Settings) -> None:
        use(settings.theme, settings.zoom, settings.language, settings.reduced_motion)

    def _tell_no_tray(self, settings: Settings) -> None:
        """Some desktops have no tray: say once that closing ends the app there."""
        if settings.close_to_tray and not self.tray.is_available and not settings.no_tray_told:
            self.services.settings.set(no_tray_told=True)
            self._warn(tr("This desktop has no tray: closing the window quits."))

    def _follow_folder(self, settings: Settings) -> None:
        self.services.library.set_extra(chosen_folder(settings))

    def _follow_program(self, settings: Settings) -> None:
        """Another program or thread count: what starts from now on uses it."""
        services = self.services
        program = program_of(services.environment, settings)
        services.client.process.program = program
        services.jobs.set_program(program)

    def _take_runtime(self) -> None:
        """Other libraries are there; what runs keeps its own until it is started again."""
        self._follow_program(self.services.settings.value)
        if self.services.client.process.is_running:
            self._offer_restart(tr("Engine runtime"))
        else:
            self.vm.session.restart_engine()

    def _tell_outdated_runtime(self) -> None:
        """After an update of the program, once; what is installed goes on working."""
        offer, settings = self.vm.runtime.offer, self.services.settings
        if offer is None or settings.value.runtime_told == offer.key:
            return
        if self.vm.runtime.need != "outdated":
            return
        settings.set(runtime_told=offer.key)
        words = tr("This version of the program comes with other engine libraries.")
        self.window.toast(words, "info", tr("Show"), lambda: self._show_settings("about"))

    def _tell_release(self, sentence: str, page: str) -> None:
        def show() -> None:
            QDesktopServices.openUrl(QUrl(page))

        self.window.toast(sentence, "info", tr("Open its page"), show)

    def _on_closed(self, place: str, folded: bool) -> None:
        """The window was closed: remember its place, then end or live on in the tray."""
        settings = self.services.settings
        settings.set(geometry=place, rail_folded=folded)
        if self._is_quitting or not (settings.value.close_to_tray and self.tray.is_available):
            self.closing.begin()
        elif not self.closing.has_begun and not settings.value.tray_told:
            settings.set(tray_told=True)
            self.tray.say(tr("FreeToken Desktop goes on in the tray, with its model loaded."))

    def _show_state(self) -> None:
        now, session = self.vm.yielding.now, self.vm.session
        sentence = session.sentence
        if session.tok_s:
            rate = amounts.number(session.tok_s)
            sentence = tr("{engine} · {rate} tok/s", engine=sentence, rate=rate)
        if now.is_yielded:
            sentence = tr("{engine} · {memory}", engine=sentence, memory=now.words)
        self.tray.set_state(sentence)
        self.tray.set_model(self.services.client.model is not None, not self.is_busy())

    def _show_yielded(self) -> None:
        now = self.vm.yielding.now
        self.window.set_yielded(now.is_yielded)
        self.tray.set_yield(now.can_take_back, now.is_known)
        self._show_state()

    def _show_coming(self) -> None:
        session = self.vm.session
        is_coming = session.state is EngineState.LOADING and bool(session.model_name)
        doing = session.state_detail or tr("Loading")
        coming = Coming(session.model_name, doing, session.share) if is_coming else None
        self.vm.chat.set_coming(coming)

    def _show_remote(self) -> None:
        remote = self.vm.remote
        self.window.set_remote(remote.shown_name, remote.host, remote.is_replying)

    def _wake(self) -> None:
        """A message waits for a model that was freed while idle."""
        if self.vm.chat.talk.is_waiting:
            self.vm.session.wake()

    def _show_page(self, name: str) -> None:
        self.window.show_page(name)

    def _show_settings(self, section: str) -> None:
        self.window.show_page("settings")
        self.pages.settings.open_section(section)

    def _show_hub_settings(self) -> None:
        self._show_settings("storage")

    def _show_context(self) -> None:
        """The context meter was clicked: the breakdown is in the inspector."""
        self.window.show_page("chat")
        self.pages.chat.shortcut("context")

    def _show_fill(self) -> None:
        context = self.vm.chat.context
        self.window.set_context(context.used_tokens, context.capacity_tokens)

    def _say_freed(self, name: str, size_bytes: int) -> None:
        size = figures.file_size(size_bytes)
        self.window.toast(tr("Deleted {name}, {size} freed.", name=name, size=size), "ok")

    def _say(self, sentence: str) -> None:
        self.window.toast(sentence, "info")

    def _warn(self, sentence: str) -> None:
        self.window.toast(sentence, "warn")

    def _offer_restart(self, label: str) -> None:
        """A value counts only for a new engine process."""
        if self.services.client.process.is_running:
            words = tr("Takes effect when the engine is restarted: {name}", name=label)
            restart = self.vm.session.restart_engine
            self.window.toast(words, "info", tr("Restart the engine"), restart)
