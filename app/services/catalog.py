"""The curated list of models that can be fetched, as it ships in `resources/catalog/models.json`.

Read tolerantly: fields of a newer list are ignored, an entry that cannot be used is left out.
"""

from pathlib import Path

import msgspec

from engine.protocol.places import resources_dir

CATALOG_NAME = "models.json"


class CatalogEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One published checkpoint. Figures are those of its config.json; sizes are arithmetic.

    Attributes:
        repo: OWNER/NAME on the hub.
        title: to show.
        family: the config's `model_type`.
        quant: name of the weight format, as the engine calls it.
        use: "general", "reasoning" or "code".
        approx_bytes: weights on the hub, approximately; 0 = not known.
        context: tokens.
        commit: newest commit on the hub, where it was asked; "" = not known.
        gated: whether the hub asks for an accepted licence first.
        downloads: of last month, where the hub was asked.
    """

    repo: str
    title: str
    family: str = ""
    quant: str = ""
    use: str = ""
    licence: str = ""
    approx_bytes: int = 0
    total_params: int = 0
    active_params: int = 0
    context: int = 0
    layers: int = 0
    experts: int = 0
    top_k: int = 0
    hidden: int = 0
    moe_intermediate: int = 0
    heads: int = 0
    kv_heads: int = 0
    head_dim: int = 0
    vocab: int = 0
    commit: str = ""
    gated: bool = False
    downloads: int = 0

    @property
    def is_known(self) -> bool:
        """Whether there are facts beside the name, enough to work out sizes."""
        return min(self.layers, self.experts, self.hidden, self.moe_intermediate) > 0


class _File(msgspec.Struct):
    models: list[msgspec.Raw] = []


def read_catalog(path: Path | None = None) -> tuple[CatalogEntry, ...]:
    """Return the entries of a catalogue file, ours by default; none if it cannot be read."""
    path = path or resources_dir() / "catalog" / CATALOG_NAME
    try:
        raw = msgspec.json.decode(path.read_bytes(), type=_File)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return ()
    entries: dict[str, CatalogEntry] = {}
    for item in raw.models:
        try:
            entry = msgspec.json.decode(item, type=CatalogEntry)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            continue
        entries.setdefault(entry.repo, entry)
    return tuple(entries.values())
