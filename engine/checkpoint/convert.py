"""Safetensors folder -> FTW folder: inventory, streamed copy, check, rename.

One expert or tensor is in memory at a time. The source is only read. The output appears under its
name once every byte of it was read back and found right. Knows the family only by its names.
Called by `engine.jobs.convert`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, Self

from engine.checkpoint.files import reading
from engine.checkpoint.index import Bank, Index, LayoutFacts, Role, Source, align
from engine.checkpoint.inventory import Inventory, NameMap, Wanted, take_inventory
from engine.checkpoint.source import SourceCheckpoint
from engine.checkpoint.verify import verify_folder
from engine.checkpoint.writer import FtwWriter, Written
from engine.protocol.errors import Cancelled, FileAccess
from engine.protocol.identity import content_id
from engine.quant.base import ExpertSizes
from engine.quant.registry import get_format

Progress = Callable[[str, int, int], None]
"""(stage "convert" or "verify", done_bytes, total_bytes)"""

_STEPS = 200  # progress reports per stage, at most
_ENTRY_BYTES = 512  # of the index, per tensor, for the space check
_RECORD_ENTRY_BYTES = 20


class RouterFacts(Protocol):
    """The part of a router's facts that is needed here."""

    @property
    def num_experts(self) -> int:
        """E."""
        ...


class ModelFacts(ExpertSizes, Protocol):
    """What a conversion must know of a model; `engine.models.spec.ModelSpec` has it."""

    @property
    def model_type(self) -> str:
        """The family."""
        ...

    @property
    def moe_layers(self) -> tuple[int, ...]:
        """Layer ids that have experts."""
        ...

    @property
    def router(self) -> RouterFacts:
        """How many experts there are."""
        ...

    @property
    def quant(self) -> str:
        """Name of the quant format."""
        ...


@dataclass(frozen=True, slots=True)
class Recipe:
    """How to convert one model: its family and what it must have."""

    model_type: str
    wanted: Wanted

    @classmethod
    def of(cls, facts: ModelFacts, names: NameMap) -> Self:
        """Build the recipe. Raises UnsupportedCheckpoint for an unknown format or odd sizes."""
        quant = get_format(facts.quant, facts.quant_group)
        layout = quant.layout(facts)
        wanted = Wanted(quant, layout, facts.moe_layers, facts.router.num_experts, names)
        return cls(facts.model_type, wanted)


@dataclass(frozen=True, slots=True)
class Converted:
    """What a conversion made."""

    folder: Path
    num_bytes: int
    num_records: int
    num_tensors: int
    aux: tuple[str, ...]


def convert(
    source: SourceCheckpoint,
    target: Path,
    recipe: Recipe,
    progress: Progress,
    cancelled: Callable[[], bool],
    make_writer: Callable[[Path, int], FtwWriter] = FtwWriter,
) -> Converted:
    """Convert a checked source into `target`, which must not be there yet.

    Units: progress in bytes, at most 200 reports per stage; `cancelled` is asked per tensor.
    Raises: CorruptCheckpoint and UnsupportedCheckpoint (before anything is written, or while a
        shard is read), DiskFull, FileAccess, Cancelled. After any of them the target is absent
        and the temporary folder removed.
    """
    _check_apart(source.folder, target)
    inventory = take_inventory(source.tensors, source.name, recipe.wanted)
    need = _need_bytes(source, inventory, recipe)
    report = _Report(progress, cancelled)
    with make_writer(target, need) as writer:
        _write(source, inventory, recipe, writer, report)
        writer.seal(lambda written: _index(source, recipe, written))
        report.stage("verify", 0)
        verified = verify_folder(writer.folder, report.at, cancelled)
        report.check()
        writer.publish()
    return Converted(
        target, verified.num_bytes, verified.num_records, verified.num_tensors, inventory.aux
    )


class _Report:
    """Passes on progress in sensible steps, and cancels."""

    def __init__(self, progress: Progress, cancelled: Callable[[], bool]) -> None:
        self._progress = progress
        self._cancelled = cancelled
        self._stage = ""
        self._done = self._told = self._total = 0

    def stage(self, name: str, total: int) -> None:
        """Begin a stage."""
        self._stage, self._done, self._told, self._total = name, 0, 0, total

    def add(self, num_bytes: int) -> None:
        """Count bytes that were done."""
        self.at(self._done + num_bytes, self._total)

    def at(self, done: int, total: int) -> None:
        """Report where the stage is, if that is far enough from the last report."""
        self._done = done
        if (done - self._told) * _STEPS >= total or done == total:
            self._told = done
            self._progress(self._stage, done, total)

    def check(self) -> None:
        """Raise Cancelled if the person asked to stop."""
        if self._cancelled():
            raise Cancelled("The conversion was cancelled.")


def _write(
    source: SourceCheckpoint,
    inventory: Inventory,
    recipe: Recipe,
    writer: FtwWriter,
    report: _Report,
) -> None:
    wanted = recipe.wanted

    def copy(name: str, role: Role, scale: str = "") -> None:
        tensor = source.tensors[name]
        writer.add_tensor(name, role, tensor.dtype, tensor.shape, source.raw(name), scale)
        report.add(tensor.num_bytes)

    report.stage("convert", _copied_bytes(source, inventory, recipe))
    for record in inventory.experts:
        report.check()
        writer.add_record(
            wanted.quant.pack({role: source.tensor(name) for role, name in record.items()})
        )
        report.add(wanted.layout.record_bytes)
    for weight, scale in inventory.dense:
        report.check()
        copy(weight, "dense", scale)
        if scale:
            copy(scale, "scale")
    for name in inventory.aux:
        report.check()
        copy(name, "aux")
    for path in source.side_files:
        writer.add_side_file(path)


def _index(source: SourceCheckpoint, recipe: Recipe, written: Written) -> Index:
    wanted = recipe.wanted
    return Index(
        name=source.name,
        model_type=recipe.model_type,
        quant=wanted.quant.name,
        total_bytes=sum(file.num_bytes for file in written.files),
        source=Source(
            name=source.name,
            fingerprint=source.fingerprint,
            repo=source.origin.repo,
            commit=source.origin.commit,
            content=content_id(source.folder),
        ),
        config=source.config,
        files=written.files,
        bank=Bank(
            file=0,
            offset=0,
            layer_ids=wanted.layer_ids,
            num_experts=wanted.num_experts,
            layout=LayoutFacts.of(wanted.layout),
            record_xxh3=written.record_xxh3,
        ),
        tensors=written.tensors,
        side_files=written.side_files,
    )


def _other_tensors(inventory: Inventory) -> list[str]:
    pairs = [name for pair in inventory.dense for name in pair if name]
    return [*pairs, *inventory.aux]


def _copied_bytes(source: SourceCheckpoint, inventory: Inventory, recipe: Recipe) -> int:
    """Bytes of records and tensors to be written: the total of the progress."""
    records = len(inventory.experts) * recipe.wanted.layout.record_bytes
    return records + sum(source.tensors[name].num_bytes for name in _other_tensors(inventory))


def _need_bytes(source: SourceCheckpoint, inventory: Inventory, recipe: Recipe) -> int:
    """Bytes that the disk must have: data with padding, copied files, index (estimated)."""
    others = _other_tensors(inventory)
    records = len(inventory.experts) * recipe.wanted.layout.record_bytes
    data = sum(align(source.tensors[name].num_bytes) for name in others)
    side = 0
    for path in source.side_files:
        with reading(path):
            side += align(path.stat().st_size)
    index = len(others) * _ENTRY_BYTES + len(inventory.experts) * _RECORD_ENTRY_BYTES
    return records + data + side + index + (1 << 16)


def _check_apart(source: Path, target: Path) -> None:
    """Raise FileAccess if the output would lie inside the source."""
    if target.resolve().is_relative_to(source.resolve()):
        raise FileAccess(
            f"{target} lies inside the folder that is to be converted.",
            "Choose a folder outside of it.",
        )
