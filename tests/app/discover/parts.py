"""View models of the tab between stubs."""

from pathlib import Path

import msgspec
from PySide6.QtCore import QObject, Signal

from app.services.catalog import read_catalog
from app.services.secrets import SecretStore
from app.services.settings import SettingsStore
from app.viewmodels.discover import DiscoverViewModel
from app.viewmodels.discover_hub import HubSearch
from app.viewmodels.flows import FlowsViewModel
from engine.protocol import messages as m
from tests.app.models.stubs import StubLibrary, StubMeter
from tests.app.profiler.stubs import StubJobs

REPO, TITLE = "Qwen/Qwen3-30B-A3B-FP8", "Qwen3-30B-A3B"
SOURCE = f"/models/.downloads/{REPO}"
GIB = 1 << 30


class FlowJobs(StubJobs):
    """A runner that starts nothing, with what jobs are told at their start."""

    def __init__(self):
        super().__init__()
        self.extras, self.count = {}, 0

    def set_extra(self, job, provide):
        self.extras[job] = provide

    def start(self, job, spec, title=""):
        self.count += 1
        kept, self.states = self.states, {}
        super().start(job, spec, title)
        (state,) = self.states.values()
        job_id = f"job-{self.count}"
        self.states = {**kept, job_id: msgspec.structs.replace(state, id=job_id)}
        self.changed.emit()
        return job_id


class StubDownloads(QObject):
    """Removes nothing."""

    room = Signal(object)
    removed = Signal(str, object)
    found = Signal(object)

    def __init__(self):
        super().__init__()
        self.gone, self.asked, self.looked, self.swept = [], [], [], []

    def look(self, folder):
        self.looked.append(folder)

    def sweep(self, folder):
        self.swept.append(folder)

    def ask_room(self, folder):
        self.asked.append(folder)

    def remove(self, folder):
        self.gone.append(str(folder))


class StubKeyring:
    """Keeps one password."""

    def __init__(self, kept=None):
        self.kept = kept

    def get_password(self, _service, _name):
        return self.kept

    def set_password(self, _service, _name, password):
        self.kept = password


class Parts:
    """Everything that the tab needs."""

    make_jobs = FlowJobs

    def __init__(self, folder: Path, *entries, keyring=None):
        self.jobs, self.library = self.make_jobs(), StubLibrary(*entries)
        self.downloads, self.meter = StubDownloads(), StubMeter()
        self.settings = SettingsStore(folder / "settings.json")
        self.secrets = SecretStore(lambda: keyring)
        self.profiles = folder / "profiles"
        self.profiles.mkdir()
        self.flows = FlowsViewModel(
            self.jobs, self.library, self.settings, self.secrets, self.downloads
        )
        self.hub = HubSearch(self.jobs, self.secrets)
        self.vm = DiscoverViewModel(
            read_catalog(), self.library, self.flows, self.profiles, self.meter, self.hub
        )

    def row(self, repo=REPO):
        return next(row for row in self.vm.rows if row.entry.repo == repo)

    @property
    def flow(self):
        (flow,) = self.flows.flows
        return flow

    def fail(self, code, message="It failed.", hint="Do this."):
        self.jobs.end(self.flow.job.id, m.Error(code=code, message=message, hint=hint))
