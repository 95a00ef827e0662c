"""The Discover tab's state: the catalogue and what the hub answered, with fit and speed.

What is being fetched is `app.viewmodels.flows`', the question `app.viewmodels.discover_hub`'s.
QtCore only.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Literal

from PySide6.QtCore import QObject, Signal

from app.predict.fit import Fit
from app.predict.profiles import Profile, best_profile
from app.predict.unseen import (
    ConfigFacts,
    DownloadAdvice,
    SpeedGuess,
    ThisMachine,
    guess_speed,
    judge_download,
)
from app.services.catalog import CatalogEntry
from app.services.gpu_meter import GpuMeter, MeterReading
from app.services.model_library import ModelLibrary
from app.viewmodels.discover_hub import HubSearch
from app.viewmodels.flows import UNDER_WAY, FlowsViewModel
from app.viewmodels.profile_shelf import ProfileShelf

_GRAIN = 256 << 20  # free memory is judged in steps, so that a chip does not flicker
_NAME = re.compile(r"[A-Za-z0-9_][\w.-]*/[A-Za-z0-9_][\w.-]*", re.ASCII)

RowState = Literal["get", "busy", "paused", "failed", "installed", "older"]


class Order(StrEnum):
    """How the list is sorted."""

    FIT = "fit"
    SPEED = "speed"
    SIZE = "size"
    NAME = "name"


ORDERS = tuple(Order)
_RANK = {Fit.FITS: 0, Fit.TIGHT: 1, Fit.UNKNOWN: 2, Fit.TOO_BIG: 3}


@dataclass(frozen=True, slots=True)
class DiscoverRow:
    """One model that can be fetched; `advice` and `guess` are for this machine.

    "installed" means the same repository and, where the hub was asked, the same commit; "older"
    another commit of it.
    """

    entry: CatalogEntry
    advice: DownloadAdvice
    guess: SpeedGuess | None
    state: RowState


@dataclass(frozen=True, slots=True)
class MachineFacts:
    """What the judgements rest on, for the line below the list; 0 or None = not known."""

    ram_total: int = 0
    vram_total: int = 0
    disk_free: int = -1
    fill_gbps: float = 0.0
    cpu_gbps: float = 0.0


class DiscoverViewModel(QObject):
    """See the module.

    Args:
        catalog: what is offered.
        library: what is installed already.
        flows: what is being fetched.
        profiles: folder of this machine's measurements, None = none.
        meter: memory of this machine.
        hub: the search there; without it only the catalogue is offered.

    Signals:
        changed(): `rows`, `found`, `machine` differ.
    """

    changed = Signal()

    def __init__(
        self,
        catalog: Sequence[CatalogEntry],
        library: ModelLibrary,
        flows: FlowsViewModel,
        profiles: Path | None = None,
        meter: GpuMeter | None = None,
        hub: HubSearch | None = None,
    ) -> None:
        super().__init__()
        self._catalog, self.hub = tuple(catalog), hub
        self._library, self.flows = library, flows
        self._shelf = ProfileShelf(profiles) if profiles is not None else None
        self._ram, self._vram, self._free = (0, 0), 0, -1
        self.query, self.order, self.only_fitting = "", Order.FIT, False
        self.rows: tuple[DiscoverRow, ...] = ()
        self.found: tuple[DiscoverRow, ...] = ()  # on the hub, and not in the catalogue
        self._told: MachineFacts | None = None
        library.changed.connect(self._renew)
        flows.changed.connect(self._renew)
        flows.downloads.room.connect(self._on_room)
        flows.ended.connect(self.look)
        if hub is not None:
            hub.changed.connect(self._renew)
        if meter is not None:
            meter.reading.connect(self._on_reading)
        self._renew()

    @property
    def machine(self) -> MachineFacts:
        """What the judgements rest on."""
        best = best_profile(self._measured(), "", 0)
        return MachineFacts(
            self._ram[0],
            self._vram,
            self._free,
            best.fill_gbps if best is not None and not best.emulated else 0.0,
            best.cpu_gbps if best is not None else 0.0,
        )

    # --- intents ----------------------------------------------------------------------------

    def look(self) -> None:
        """The page is shown: read measurements and free disk space anew."""
        if self._shelf is not None:
            self._shelf.refresh()
        self.flows.look()
        self.flows.downloads.ask_room(self._library.target_folder)
        self._renew()

    def search(self, text: str) -> None:
        """Show only what has these words; OWNER/NAME that is not listed is offered as it is."""
        self.query = text.strip()
        self._renew()

    def sort(self, order: Order) -> None:
        """Order the list."""
        self.order = order
        self._renew()

    def show_only_fitting(self, only: bool) -> None:
        """Leave out what does not fit this machine."""
        self.only_fitting = only
        self._renew()

    def ask_hub(self) -> None:
        """Ask the hub for what stands in the search field."""
        if self.hub is not None:
            self.hub.ask(self.query)

    def get(self, repo: str) -> None:
        """Fetch a model, convert it, make it ready; a newer commit is kept beside the older one."""
        row = next((r for r in (*self.rows, *self.found) if r.entry.repo == repo), None)
        if row is not None and row.state in ("get", "older"):
            revision = row.entry.commit if row.state == "older" else ""
            self.flows.get(row.entry.repo, row.entry.title, revision)

    # --- parts ------------------------------------------------------------------------------

    def _on_reading(self, reading: MeterReading) -> None:
        free = (reading.ram_total - reading.ram_used) // _GRAIN * _GRAIN
        seen = ((reading.ram_total, free), reading.vram_total or 0)
        if seen != (self._ram, self._vram):
            self._ram, self._vram = seen
            self._renew()

    def _on_room(self, free: int) -> None:
        free = free // _GRAIN * _GRAIN if free > 0 else free
        if free != self._free:
            self._free = free
            self._renew()

    def _renew(self, *_: object) -> None:
        more = self.hub.entries if self.hub is not None else ()
        listed = self._listed({entry.repo for entry in more})
        names = {entry.repo for entry in listed}
        shown = (
            self._rows(listed),
            self._rows([entry for entry in more if entry.repo not in names]),
            self.machine,
        )
        if shown != (self.rows, self.found, self._told):
            self.rows, self.found, self._told = shown
            self.changed.emit()

    def _rows(self, entries: Sequence[CatalogEntry]) -> tuple[DiscoverRow, ...]:
        rows = [self._row(entry) for entry in entries]
        if self.only_fitting:
            rows = [row for row in rows if row.advice.fit in (Fit.FITS, Fit.TIGHT)]
        return tuple(sorted(rows, key=self._key))

    def _listed(self, on_hub: set[str]) -> list[CatalogEntry]:
        words = self.query.casefold().split()
        found = [e for e in self._catalog if all(word in _text(e) for word in words)]
        name = self.query.removeprefix("https://huggingface.co/").rstrip("/")
        on_hub |= {entry.repo for entry in self._catalog}
        if _NAME.fullmatch(name) and name not in on_hub:
            found.append(CatalogEntry(repo=name, title=name.partition("/")[2]))
        return found

    def _state(self, entry: CatalogEntry) -> RowState:
        flow = self.flows.flow_of(entry.repo)
        if flow is not None and flow.state != "ready":
            return UNDER_WAY[flow.state]
        commits = {e.commit for e in self._library.entries() if e.repo == entry.repo}
        if not commits:
            return "get"
        return "installed" if not entry.commit or entry.commit in commits else "older"

    def _row(self, entry: CatalogEntry) -> DiscoverRow:
        state = self._state(entry)
        if not entry.is_known:
            return DiscoverRow(entry, DownloadAdvice(Fit.UNKNOWN), None, state)
        facts, machine = facts_of(entry), self._machine_for(entry)
        return DiscoverRow(
            entry, judge_download(facts, machine), guess_speed(facts, machine), state
        )

    def _measured(self) -> tuple[Profile, ...]:
        return self._shelf.profiles if self._shelf is not None else ()

    def _machine_for(self, entry: CatalogEntry) -> ThisMachine:
        record = facts_of(entry).expert_bytes
        profile = best_profile(self._measured(), entry.quant, record)
        return ThisMachine(*self._ram, self._vram, self._free, profile)

    def _key(self, row: DiscoverRow) -> tuple[float, float, str]:
        size, name = float(size_of(row.entry)), row.entry.title.casefold()
        speed = row.guess.high if row.guess is not None else 0.0
        if self.order is Order.SPEED:
            return (-speed, size, name)
        if self.order is Order.SIZE:
            return (size, 0.0, name)
        if self.order is Order.NAME:
            return (0.0, 0.0, name)
        return (_RANK[row.advice.fit], size, name)


def facts_of(entry: CatalogEntry) -> ConfigFacts:
    """Return the figures that predictions need."""
    return ConfigFacts(
        quant=entry.quant,
        layers=entry.layers,
        experts=entry.experts,
        top_k=entry.top_k,
        hidden=entry.hidden,
        moe_intermediate=entry.moe_intermediate,
        heads=entry.heads,
        kv_heads=entry.kv_heads,
        head_dim=entry.head_dim,
        vocab=entry.vocab,
    )


def size_of(entry: CatalogEntry) -> int:
    """Return the bytes of the weights on the hub, approximately; 0 = not known."""
    return entry.approx_bytes or (facts_of(entry).total_bytes if entry.is_known else 0)


def _text(entry: CatalogEntry) -> str:
    return f"{entry.repo} {entry.title} {entry.quant} {entry.use} {entry.licence}".casefold()
