"""First run, the engine's libraries, Settings with all sections, About, Server, Logs."""

from collections.abc import Callable
from pathlib import Path

from app.services.engine_program import find_program
from app.services.licences import Licence
from app.services.log_ring import LogRing
from app.services.model_store import StoreFacts
from app.services.remote_client import RemoteClient
from app.services.remote_switch import TalkClient
from app.services.secrets import SecretStore
from app.services.updates import Release, UpdateCheck
from app.viewmodels.about import AboutViewModel
from app.viewmodels.logs import LogsViewModel
from app.viewmodels.remote import RemoteViewModel
from app.viewmodels.server import ServerViewModel
from app.viewmodels.session_words import silent_engine
from app.viewmodels.settings import SECTIONS, SettingsViewModel
from app.views.about import LicenceDialog, LicenceRow, UpdateRow
from app.views.first_run import FirstRunRow, FirstRunView
from app.views.logs import LogsView
from app.views.models_remote import remote_rows
from app.views.models_storage import StorageRow
from app.views.runtime import RuntimeRow
from app.views.server import ServerView
from app.views.settings import SettingsView
from app.widgets.layout import holder, vbox
from app.wording import tr
from engine.protocol import messages as m
from engine.protocol.errors import ErrorCode
from engine.protocol.places import DataRoot
from tests.app.about.test_runtime import Parts as RuntimeParts
from tests.app.about.test_runtime import card_in
from tests.app.chat.fakes import FakeClient
from tests.app.discover.parts import StubKeyring
from tests.app.faces import LINES
from tests.app.first_run.stubs import BARE, GPU, STRONG, WEAK, World
from tests.app.models.test_move import Parts as MoveParts
from tests.app.performance.stubs import profile_bytes
from tests.app.scenes.stage import DIALOG, SMALL, Scene, Stage

# --- first run


def first_run(act: Callable[[World], object], bundle: str = "") -> Callable[[Path], Stage]:
    """A scene of the first run; `bundle` = a program whose libraries are missing."""

    def build(folder: Path) -> Stage:
        world = World(folder)
        runtime = RuntimeParts(folder / "runtime", cuda=True) if bundle else None
        page = FirstRunView(world.vm, runtime.vm if runtime else None)
        page.resize(996, 712)
        page.show()
        act(world)
        return Stage(page, [world, runtime], [page.close])

    return build


def fresh(_world: World) -> None:
    """Nothing is known yet."""


def turn(world: World) -> None:
    """The measurement has its turn."""
    world.know(STRONG)
    world.ready(GPU)


def measuring(world: World) -> None:
    turn(world)
    world.vm.measure()
    step = m.Progress(id="", stage="measure", done_bytes=5, total_bytes=24, detail="bf16: copies")
    world.jobs.update("job-1", progress=step, eta_s=8.0)


def not_measured(world: World) -> None:
    measuring(world)
    error = m.Error(code=ErrorCode.DEVICE, message="The device is gone.", hint="Restart it.")
    world.jobs.end("job-1", error)


def offers(world: World) -> None:
    """Measured, with models to choose from."""
    measuring(world)
    path = world.folder / "a.json"
    path.write_bytes(profile_bytes(fmt="fp8_block"))
    world.jobs.end("job-1", m.JobDone(job="profile", result={"paths": [str(path)]}))


def fetching(world: World) -> None:
    """A model was chosen."""
    offers(world)
    world.vm.get(world.vm.offers[0].entry.repo)


def bare(world: World) -> None:
    """No card, little memory."""
    world.know(BARE)
    world.ready()
    world.vm.skip("measure")


def trouble(world: World) -> None:
    """Warnings everywhere, and an engine that does not answer."""
    world.know(WEAK)
    world.session.trouble = silent_engine()
    world.session.changed.emit()


def runtime(state: str) -> Callable[[Path], Stage]:
    """The card of the engine's libraries."""

    def build(folder: Path) -> Stage:
        card = card_in(folder, state)
        page = holder(vbox(card, None, pad=(20, 20, 20, 20)), "canvas")
        return Stage(page, [card], [page.close])

    return build


# --- settings


class Desk:
    """Settings with the rows that other view models bring."""

    def __init__(self, folder: Path):
        root = DataRoot(folder)
        self.move = MoveParts(folder)
        self.store = self.move.settings
        remote = RemoteClient()
        self.talk = TalkClient(FakeClient(), remote)
        self.remote = RemoteViewModel(
            self.store, remote, self.talk, lambda _host: SecretStore(StubKeyring)
        )
        self.check = UpdateCheck("https://releases.example/latest.json", "00" * 32)
        self.about = AboutViewModel(self.store, self.check, "0.1.0", root)
        self.runtime = RuntimeParts(folder / "runtime")
        self.runtime.put(self.runtime.locks[0].lock)
        program = find_program("", root, 0).path
        facts = ((tr("Engine"), "0.1.0"), (tr("Engine program"), program))
        self.vm = SettingsViewModel(self.store, root, lambda: facts)
        rows = {
            "general": (FirstRunRow(),),
            "storage": (StorageRow(self.move.vm),),
            "remote": remote_rows(self.remote),
            "about": (RuntimeRow(self.runtime.vm), UpdateRow(self.about), LicenceRow(self.about)),
        }
        self.page = SettingsView(self.vm, rows)


def settings(section: str, act: Callable[[Desk], object] | None = None) -> Callable[[Path], Stage]:
    """A scene of the page with a section open."""

    def build(folder: Path) -> Stage:
        desk = Desk(folder)
        page = desk.page
        page.resize(996, 712)
        page.show()
        page.open_section(section)
        if act is not None:
            act(desk)
        return Stage(page, [desk], [page.close])

    return build


def changed(desk: Desk) -> None:
    """Values that differ from their defaults."""
    desk.store.set(zoom=1.1, close_to_tray=True)


def moving(desk: Desk) -> None:
    parts = desk.move
    parts.store.measured.emit(StoreFacts(parts.old, 3, 158 * 10**9, 200 * 10**9))
    parts.vm.move(parts.new)
    progress = m.Progress(id="", stage="copy", done_bytes=10**9, total_bytes=4 * 10**9)
    parts.jobs.update(parts.vm.job.id, progress=progress, speed_bytes_s=5e8, eta_s=6.0)


def not_moved(desk: Desk) -> None:
    moving(desk)
    error = m.Error(
        code=ErrorCode.DISK_FULL, message="9 GiB are needed, 5 are free.", hint="Free 4 GiB."
    )
    desk.move.jobs.end(desk.move.vm.job.id, error)


def remote_refused(desk: Desk) -> None:
    desk.remote.set_on(True)


def remote_on(desk: Desk) -> None:
    desk.remote.set_address("http://192.0.2.7:8000")
    desk.remote._on_listed(("big-moe", "small"))
    desk.remote.set_on(True)


def newer(desk: Desk) -> None:
    desk.check.known.emit(Release("9.9.9", "https://releases.example/9.9.9"))


def search(words: str) -> Callable[[Desk], object]:
    """The search field has words."""
    return lambda desk: desk.page.search.setText(words)


def licences(folder: Path) -> Stage:
    text = folder / "text"
    text.write_text("All rights given.\n\n" * 40)
    entry = Licence("FreeToken Desktop", "0.1.0", "Apache-2.0", (str(text),))
    dialog = LicenceDialog((entry,))
    return Stage(dialog, [], [dialog.close])


# --- server, logs


def server(_folder: Path) -> Stage:
    page = ServerView(ServerViewModel())
    return Stage(page, [], [page.close])


def logs(words: str = "", with_lines: bool = True) -> Callable[[Path], Stage]:
    """A scene of the page; `words` are searched."""

    def build(folder: Path) -> Stage:
        ring = LogRing()
        for source, level, text in LINES * 3 * with_lines:
            ring.append(source, level, text)
        vm = LogsViewModel(ring, folder / "logs")
        page = LogsView(vm)
        page.show()
        if words:
            page.search.setText(words)
        return Stage(page, [ring, vm], [page.close])

    return build


SETUP = (
    Scene("first-run-fresh", first_run(fresh)),
    Scene("first-run-turn", first_run(turn)),
    Scene("first-run-measuring", first_run(measuring)),
    Scene("first-run-not-measured", first_run(not_measured)),
    Scene("first-run-offers", first_run(offers)),
    Scene("first-run-offers-small", first_run(offers), SMALL),
    Scene("first-run-fetching", first_run(fetching)),
    Scene("first-run-bare", first_run(bare)),
    Scene("first-run-trouble", first_run(trouble)),
    Scene("first-run-trouble-small", first_run(trouble), SMALL),
    Scene("first-run-no-runtime", first_run(fresh, "shell")),
    Scene("first-run-no-runtime-small", first_run(fresh, "shell"), SMALL),
    *(
        Scene(f"runtime-{state}", runtime(state), (800, 360))
        for state in ("offer", "busy", "failed", "installed", "outdated", "none")
    ),
    *(Scene(f"settings-{key}", settings(key)) for key, _, _ in SECTIONS),
    *(Scene(f"settings-{key}-small", settings(key), SMALL) for key, _, _ in SECTIONS),
    Scene("settings-changed", settings("general", changed)),
    Scene("settings-moving", settings("storage", moving)),
    Scene("settings-not-moved", settings("storage", not_moved), SMALL),
    Scene("settings-remote-refused", settings("remote", remote_refused)),
    Scene("settings-remote-on", settings("remote", remote_on)),
    Scene("settings-newer", settings("about", newer)),
    Scene("settings-search", settings("general", search("model"))),
    Scene("settings-search-none", settings("general", search("qqq"))),
    Scene("dialog-licences", licences, DIALOG),
    Scene("server", server),
    Scene("server-small", server, SMALL),
    Scene("logs", logs()),
    Scene("logs-small", logs(), SMALL),
    Scene("logs-none", logs(with_lines=False)),
    Scene("logs-filtered-out", logs("qqq")),
)
