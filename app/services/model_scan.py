"""What lies in a models folder: FTW folders by their `model.ftw`, sources by their `config.json`.

Reads facts only, never weights, and never fails on one odd entry (case D-20). No Qt. Blocking; the
library calls it on its own thread.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec

from app.wording import tr
from engine.protocol.identity import content_id

INDEX_NAME = "model.ftw"
FORMAT, MAJOR = "freetoken", 2
MAX_INDEX_BYTES = 64 * 1024 * 1024
MAX_ENTRIES = 2_000  # looked at in a folder; a wrong choice of it must not take for ever (D-21)
DELETED_SUFFIX = ".deleted"

Kind = Literal["ftw", "builtin_source"]


@dataclass(frozen=True, slots=True)
class ModelEntry:
    """A model on disk.

    Attributes:
        path: its folder.
        name: as the index says, else the folder's name.
        kind: "ftw" can be loaded, "builtin_source" must be converted first.
        total_bytes: on disk.
        pool_bytes: of all experts; must fit into host memory.
        dense_bytes: of everything else.
        record_bytes: one expert.
        num_layers, num_moe_layers, num_experts, top_k, hidden_size, context_tokens: 0 = not said.
        is_builtin: came with the app, or was converted from what did.
        repo, commit: what it is a copy of on the hub; "" = its index does not say.
        content: which bytes it was made of, or consists of; "" = not known.
        renew_from: the source that came with a newer version of the app, None = it is up to date.
    """

    path: Path
    name: str
    kind: Kind
    model_type: str = ""
    quant: str = ""
    total_bytes: int = 0
    pool_bytes: int = 0
    dense_bytes: int = 0
    record_bytes: int = 0
    num_layers: int = 0
    num_moe_layers: int = 0
    num_experts: int = 0
    top_k: int = 0
    hidden_size: int = 0
    context_tokens: int = 0
    is_builtin: bool = False
    repo: str = ""
    commit: str = ""
    content: str = ""
    renew_from: Path | None = None

    @property
    def ram_bytes(self) -> int:
        """Host memory that a load needs at least: all experts and one copy of the rest."""
        return self.pool_bytes + self.dense_bytes


@dataclass(frozen=True, slots=True)
class SkipNote:
    """An entry that was left out, and why, as a sentence."""

    path: Path
    reason: str


@dataclass(frozen=True, slots=True)
class Scan:
    """What one look at all folders found.

    Attributes:
        entries: models, by name.
        notes: what was left out.
        missing: models folders that are not there (case D-17).
        taken: everything that lies in models folders; see `key_of`.
    """

    entries: tuple[ModelEntry, ...] = ()
    notes: tuple[SkipNote, ...] = ()
    missing: tuple[Path, ...] = ()
    taken: frozenset[str] = frozenset()


class _Layout(msgspec.Struct):
    record_bytes: int = 0


class _Bank(msgspec.Struct):
    num_experts: int = 0
    layer_ids: tuple[int, ...] = ()
    layout: _Layout = msgspec.field(default_factory=_Layout)


class _Source(msgspec.Struct):
    name: str = ""
    repo: str = ""
    commit: str = ""
    content: str = ""


class _Index(msgspec.Struct):
    """The facts of `model.ftw` that the app needs; everything else in it is ignored."""

    format: str = ""
    major: int = 0
    name: str = ""
    model_type: str = ""
    quant: str = ""
    total_bytes: int = 0
    config: dict[str, Any] = {}
    bank: _Bank = msgspec.field(default_factory=_Bank)
    source: _Source = msgspec.field(default_factory=_Source)


def scan(folders: tuple[Path, ...], sources: tuple[Path, ...]) -> Scan:
    """Look at the models folders and at the sources that came with the app."""
    entries: list[ModelEntry] = []
    notes: list[SkipNote] = []
    missing: list[Path] = []
    taken: set[str] = set()
    builtin = {path.name for path in sources}
    for folder in folders:
        try:
            names = _names(folder)
        except OSError:
            missing.append(folder)
            continue
        taken.update(key_of(folder / name) for name in names)
        if len(names) > MAX_ENTRIES:
            notes.append(SkipNote(folder, tr("Only the first entries of this folder were read.")))
        for name in names[:MAX_ENTRIES]:
            _look(folder / name, builtin, entries, notes)
    for path in sources:
        entry = read_source(path)
        if entry is not None:
            entries.append(entry)
    entries.sort(key=lambda entry: (entry.kind, entry.name.lower(), str(entry.path)))
    return Scan(tuple(entries), tuple(notes), tuple(missing), frozenset(taken))


def key_of(path: Path) -> str:
    """Return what is the same for two paths that the system takes for one."""
    return os.path.normcase(path)


def _names(folder: Path) -> list[str]:
    """All names in a folder: only the first ones are looked at, but each one is taken."""
    return sorted(os.listdir(folder))


def _look(path: Path, builtin: set[str], entries: list[ModelEntry], notes: list[SkipNote]) -> None:
    if path.name.startswith(".") or path.name.endswith(DELETED_SUFFIX):
        return
    try:
        if not path.is_dir():
            notes.append(SkipNote(path, tr("Not a model folder.")))
            return
        entries.append(read_ftw(path, builtin))
    except FileNotFoundError:
        notes.append(SkipNote(path, tr("No model.ftw inside: not converted yet, or another file.")))
    except OSError as problem:
        notes.append(SkipNote(path, tr("Not readable: {reason}.", reason=problem.strerror or "")))
    except ValueError as problem:
        notes.append(SkipNote(path, str(problem)))


def read_ftw(folder: Path, builtin: set[str] | None = None) -> ModelEntry:
    """Read the facts of one FTW folder.

    Raises:
        OSError: there is no `model.ftw`, or it cannot be read.
        ValueError: it is not one of ours; the message is a sentence.
    """
    index_path = folder / INDEX_NAME
    if index_path.stat().st_size > MAX_INDEX_BYTES:
        raise ValueError(tr("model.ftw is too large to be an index."))
    try:
        index = msgspec.json.decode(index_path.read_bytes(), type=_Index)
    except (msgspec.MsgspecError, UnicodeDecodeError) as problem:
        raise ValueError(tr("model.ftw is damaged. Convert the model again.")) from problem
    if index.format != FORMAT:
        raise ValueError(tr("model.ftw was written by another program."))
    if index.major != MAJOR:
        raise ValueError(
            tr(
                "model.ftw has format version {found}; this app reads {known}.",
                found=index.major,
                known=MAJOR,
            )
        )
    layers = len(index.bank.layer_ids)
    pool = layers * index.bank.num_experts * index.bank.layout.record_bytes
    return ModelEntry(
        path=folder,
        name=index.name or folder.name,
        kind="ftw",
        model_type=index.model_type,
        quant=index.quant,
        total_bytes=index.total_bytes,
        pool_bytes=pool,
        dense_bytes=max(0, index.total_bytes - pool),
        record_bytes=index.bank.layout.record_bytes,
        num_moe_layers=layers,
        is_builtin=index.source.name in (builtin or set()),
        repo=index.source.repo,
        commit=index.source.commit,
        content=index.source.content,
        **_config_facts(index.config, index.bank.num_experts),
    )


def read_source(folder: Path) -> ModelEntry | None:
    """Read the facts of a published checkpoint; None if the folder is none."""
    try:
        config = msgspec.json.decode((folder / "config.json").read_bytes(), type=dict[str, Any])
        weights = sum(path.stat().st_size for path in folder.glob("*.safetensors"))
        content = content_id(folder)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None
    quant = config.get("quantization_config")
    return ModelEntry(
        path=folder,
        name=folder.name,
        kind="builtin_source",
        model_type=str(config.get("model_type", "")),
        quant=str(quant.get("quant_method", "")) if isinstance(quant, dict) else "",
        total_bytes=weights,
        pool_bytes=weights,
        is_builtin=True,
        content=content,
        **_config_facts(config, 0),
    )


def _config_facts(config: dict[str, Any], num_experts: int) -> dict[str, Any]:
    return {
        "num_layers": _number(config, "num_hidden_layers"),
        "num_experts": num_experts
        or _number(config, "num_experts", "num_local_experts", "n_routed_experts"),
        "top_k": _number(config, "num_experts_per_tok", "num_experts_per_token"),
        "hidden_size": _number(config, "hidden_size"),
        "context_tokens": _number(config, "max_position_embeddings"),
    }


def _number(config: dict[str, Any], *keys: str) -> int:
    for key in keys:
        value = config.get(key)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
    return 0
