"""The pages on their view models, each imported and built when it is first asked for.

Called by `app.main`. A start pays for the page in front; the others follow when a person goes there
or when `app.warm_up` has time for them.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING

from PySide6.QtWidgets import QWidget

from app.parts import ViewModels

if TYPE_CHECKING:
    from app.views.chat import ChatView
    from app.views.first_run import FirstRunView
    from app.views.logs import LogsView
    from app.views.models import ModelsView
    from app.views.performance import PerformanceView
    from app.views.profiler import ProfilerView
    from app.views.server import ServerView
    from app.views.settings import SettingsView

NAMES = (
    "chat", "models", "performance", "profiler", "server", "logs", "settings", "first_run",
)  # fmt: skip


class Pages(Mapping[str, QWidget]):
    """The pages by name, in the order of the rail; the first run is not in it.

    Args:
        vm: what they show.
        go: brings a page to the front.
        go_to_section: opens a section of the settings.
    """

    def __init__(
        self, vm: ViewModels, go: Callable[[str], None], go_to_section: Callable[[str], None]
    ) -> None:
        self._vm, self._go, self._go_to_section = vm, go, go_to_section

    def __getitem__(self, name: str) -> QWidget:
        """Return a page; builds it at the first call."""
        if name not in NAMES:
            raise KeyError(name)
        page: QWidget = getattr(self, name)
        return page

    def __contains__(self, name: object) -> bool:
        """Whether there is such a page, built or not."""
        return name in NAMES

    def __iter__(self) -> Iterator[str]:
        """Yield all names; builds nothing."""
        return iter(NAMES)

    def __len__(self) -> int:
        """Return how many pages there are, built or not."""
        return len(NAMES)

    @property
    def built(self) -> tuple[str, ...]:
        """Names of the pages that are built."""
        return tuple(name for name in NAMES if name in self.__dict__)

    def rest(self, place: Callable[[str], object]) -> Iterator[str]:
        """Build what is missing, one piece for each step of the iterator; yields the page's name.

        Args:
            place: puts a page where it belongs, by its name.
        """
        for name in sorted(NAMES, key=lambda name: name == "settings"):  # it has parts of others
            if name not in self.built:
                import_module(f"app.views.{name}")
                yield name
                place(name)
                yield name
        for section in self.settings.items:
            self.settings.build(section)
            yield "settings"

    # The imports stand with what needs them: they are part of what a first visit costs.

    @cached_property
    def chat(self) -> "ChatView":
        """The chat."""
        from app.views.chat import ChatView

        return ChatView(self._vm.chat)

    @cached_property
    def models(self) -> "ModelsView":
        """What is installed, what can be fetched, jobs."""
        from app.views.models import ModelsView

        return ModelsView(self._vm.models, self._vm.discover, self._vm.jobs)

    @cached_property
    def performance(self) -> "PerformanceView":
        """The division of memory, and what it yields."""
        from app.views.performance import PerformanceView

        page = PerformanceView(self._vm.performance, self._vm.yielding)
        page.models_wanted.connect(self._go_to_models)
        page.settings_wanted.connect(self._go_to_section)
        return page

    @cached_property
    def profiler(self) -> "ProfilerView":
        """The measurements of this machine."""
        from app.views.profiler import ProfilerView

        return ProfilerView(self._vm.profiler)

    @cached_property
    def server(self) -> "ServerView":
        """The local API."""
        from app.views.server import ServerView

        return ServerView(self._vm.server)

    @cached_property
    def logs(self) -> "LogsView":
        """The log of window, engine and jobs."""
        from app.views.logs import LogsView

        return LogsView(self._vm.logs)

    @cached_property
    def settings(self) -> "SettingsView":
        """The settings, with the rows that have a life of their own."""
        from app.views.about import LicenceRow, UpdateRow
        from app.views.device import DeviceRow
        from app.views.first_run import FirstRunRow
        from app.views.models_remote import remote_rows
        from app.views.models_storage import StorageRow
        from app.views.runtime import RuntimeRow
        from app.views.settings import SettingsView

        vm, again = self._vm, FirstRunRow()
        again.wanted.connect(self._go_to_first_run)
        return SettingsView(
            vm.settings,
            {
                "general": (again,),
                "storage": (StorageRow(vm.move),),
                "engine": (DeviceRow(vm.device),),
                "remote": remote_rows(vm.remote),
                "about": (RuntimeRow(vm.runtime), UpdateRow(vm.about), LicenceRow(vm.about)),
            },
        )

    @cached_property
    def first_run(self) -> "FirstRunView":
        """The steps of the first start."""
        from app.views.first_run import FirstRunView

        page = FirstRunView(self._vm.first_run, self._vm.runtime)
        page.page_wanted.connect(self._go)
        return page

    def _go_to_models(self) -> None:
        self._go("models")

    def _go_to_first_run(self) -> None:
        self._go("first_run")
