"""The first run: hardware, engine, bandwidths, a first model. Four steps, each may be skipped.

It shows what others know and starts what they do; nothing here is asked for, and nothing waits for
it. QtCore only.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from PySide6.QtCore import QObject, Signal

from app.predict import hardware
from app.predict.hardware import Candidate, Check, Suggestion, suggest
from app.predict.profiles import best_profile
from app.predict.unseen import ThisMachine
from app.services.catalog import CatalogEntry
from app.services.engine_client import EngineClient
from app.services.machine_facts import MachineFacts, MachineReader
from app.services.model_library import ModelLibrary
from app.viewmodels.discover import facts_of
from app.viewmodels.flows import UNDER_WAY, FlowsViewModel
from app.viewmodels.profile_shelf import ProfileShelf
from app.viewmodels.profiler import ProfilerViewModel
from app.viewmodels.session import SessionViewModel

Step = Literal["hardware", "engine", "measure", "model"]
StepState = Literal["wait", "now", "busy", "done", "failed", "skipped"]
OfferState = Literal["get", "busy", "paused", "failed", "installed"]
STEPS: tuple[Step, ...] = ("hardware", "engine", "measure", "model")


@dataclass(frozen=True, slots=True)
class Offer:
    """A model that fits, as the catalogue names it, and what is done about it already."""

    entry: CatalogEntry
    suggestion: Suggestion
    state: OfferState


@dataclass(frozen=True, slots=True)
class Sources:
    """What the first run shows and starts; `profiles` is the folder of measurements."""

    reader: MachineReader
    client: EngineClient
    session: SessionViewModel
    profiler: ProfilerViewModel
    flows: FlowsViewModel
    library: ModelLibrary
    profiles: Path


class FirstRunViewModel(QObject):
    """See the module.

    Attributes:
        facts: what the machine is; None = not read yet.
        checks: the judgement of its parts.
        offers: at most three models that fit, fastest first.

    Signals:
        changed(): any of them, or the state of a step, differs.
    """

    changed = Signal()

    def __init__(self, sources: Sources, catalog: Sequence[CatalogEntry]) -> None:
        super().__init__()
        self._from, self._shelf = sources, ProfileShelf(sources.profiles)
        self._catalog = {entry.repo: entry for entry in catalog if entry.is_known}
        self._skipped: set[Step] = set()
        self.facts: MachineFacts | None = None
        self.checks: tuple[Check, ...] = ()
        self.offers: tuple[Offer, ...] = ()
        sources.reader.known.connect(self._on_facts)
        sources.session.changed.connect(self.changed)
        sources.client.ready.connect(self.changed)
        sources.profiler.changed.connect(self.changed)
        sources.profiler.measured.connect(self._on_measured)
        sources.flows.changed.connect(self._renew)
        sources.library.changed.connect(self._renew)

    # --- facts ------------------------------------------------------------------------------

    @property
    def client(self) -> EngineClient:
        """The engine, for its version and devices."""
        return self._from.client

    @property
    def session(self) -> SessionViewModel:
        """The session, for the engine's trouble and the model in use."""
        return self._from.session

    @property
    def profiler(self) -> ProfilerViewModel:
        """The measurement, for its progress and figures."""
        return self._from.profiler

    @property
    def largest_bytes(self) -> int:
        """The largest model that this machine's memory holds; 0 = not known yet."""
        return int(next((check.other for check in self.checks if check.part == "ram"), 0))

    @property
    def smallest_bytes(self) -> int:
        """The smallest model of the catalogue; 0 = there is none."""
        return min((facts_of(e).total_bytes for e in self._catalog.values()), default=0)

    @property
    def current(self) -> Step | None:
        """The first step that is neither done nor skipped; None = all are."""
        return next((step for step in STEPS if self._raw(step) not in ("done", "skipped")), None)

    def state(self, step: Step) -> StepState:
        """Return how a step stands; what is neither begun nor its turn waits."""
        raw = self._raw(step)
        return "wait" if raw == "now" and step != self.current else raw

    def _raw(self, step: Step) -> StepState:
        own = {
            "hardware": self._hardware,
            "engine": self._engine,
            "measure": self._measure,
            "model": self._model,
        }[step]()
        return "skipped" if step in self._skipped and own in ("now", "failed") else own

    def _hardware(self) -> StepState:
        return "busy" if self.facts is None else "done"

    def _engine(self) -> StepState:
        trouble = self._from.session.trouble
        if trouble is not None and trouble.kind != "load":
            return "failed"
        return "done" if self._from.client.is_ready else "busy"

    def _measure(self) -> StepState:
        phase = self._from.profiler.phase
        states: dict[str, StepState] = {"running": "busy", "done": "done", "failed": "failed"}
        return states.get(phase, "now")

    def _model(self) -> StepState:
        states = {offer.state for offer in self.offers}
        if "busy" in states:
            return "busy"
        return "done" if "installed" in states else "now"

    # --- intents ----------------------------------------------------------------------------

    def look(self) -> None:
        """The page is shown: read the machine anew."""
        self._shelf.refresh()
        self._from.reader.ask(self._from.library.target_folder)

    def skip(self, step: Step) -> None:
        """Go on without a step; a measurement under way is cancelled."""
        self._skipped.add(step)
        if step == "measure":
            self._from.profiler.cancel()
        self.changed.emit()

    def measure(self) -> None:
        """Measure typical experts of each format, quickly."""
        self._skipped.discard("measure")
        self._from.profiler.run("quick", typical=True)

    def get(self, repo: str) -> None:
        """Fetch an offered model and make it ready, in the background."""
        entry = self._catalog.get(repo)
        if entry is not None:
            self._from.flows.get(entry.repo, entry.title)

    def restart_engine(self) -> None:
        """Start the engine again."""
        self._from.session.restart_engine()

    def use_builtin(self) -> None:
        """Chat at once with what is there: the model loaded last, else the built-in one."""
        session = self._from.session
        if self._from.client.model is None and session.coming is None:
            session.load_default()

    # --- events -----------------------------------------------------------------------------

    def _on_facts(self, facts: MachineFacts) -> None:
        gpu, smallest = facts.gpu, self.smallest_bytes
        self.facts = facts
        self.checks = (
            hardware.check_card(gpu.vram_total if gpu else 0),
            hardware.check_driver(gpu.driver if gpu else ""),
            hardware.check_ram(facts.ram_total, smallest),
            hardware.check_disk(facts.disk_free, smallest),
            hardware.check_link(gpu.link_width if gpu else 0, gpu.best_width if gpu else 0),
        )
        self._renew()

    def _on_measured(self) -> None:
        self._shelf.refresh()
        self._renew()

    def _renew(self) -> None:
        if self.facts is not None:
            best = suggest([self._candidate(entry) for entry in self._catalog.values()])
            self.offers = tuple(self._offer(one) for one in best)
        self.changed.emit()

    def _candidate(self, entry: CatalogEntry) -> tuple[Candidate, ThisMachine]:
        facts, machine = facts_of(entry), self.facts or MachineFacts()
        profile = best_profile(self._shelf.profiles, entry.quant, facts.expert_bytes)
        vram = machine.gpu.vram_total if machine.gpu is not None else 0
        here = ThisMachine(machine.ram_total, machine.ram_free, vram, machine.disk_free, profile)
        return Candidate(entry.repo, facts), here

    def _offer(self, one: Suggestion) -> Offer:
        entry, flow = self._catalog[one.key], self._from.flows.flow_of(one.key)
        state: OfferState = "get"
        if any(e.repo == one.key for e in self._from.library.entries()):
            state = "installed"
        elif flow is not None and flow.state != "ready":
            state = UNDER_WAY[flow.state]
        return Offer(entry, one, state)
