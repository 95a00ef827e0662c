"""`model.ftw`: the index of an FTW folder, as msgspec structs. Format "freetoken", major 2.

One JSON object. It says which data files there are and how long, where the expert bank's records
and every other tensor lie in them (extents start at multiples of 4 KiB), and the xxh3 of each.
`index_xxh3` covers the index itself: the hash of the file with that field's digits set to zero.
A newer minor version may add fields, which are ignored; another major version is refused.
Knows no tensors. Called by `engine.checkpoint.writer` and `engine.checkpoint.ftw`.
"""

from pathlib import Path, PurePosixPath
from typing import Any, Literal

import msgspec
import xxhash

from engine.checkpoint.dtypes import expected_bytes
from engine.protocol.errors import CorruptCheckpoint, UnsupportedCheckpoint
from kernels.layouts import LAYOUT_ID, UNIT_ROWS, Encoding, RecordLayout

INDEX_NAME = "model.ftw"
FORMAT = "freetoken"
MAJOR, MINOR = 2, 0
ALIGN_BYTES = 4096
CREATED_BY = f"FreeToken Desktop, FTW {MAJOR}.{MINOR}"

AGAIN = "Convert the model again from its original folder."
_BLANK = "0" * 16

Role = Literal["dense", "scale", "aux"]


class _Data(msgspec.Struct, frozen=True, kw_only=True):
    """Common options of the index's parts."""


class DataFile(_Data, frozen=True, kw_only=True):
    """A file of raw bytes beside the index."""

    name: str
    num_bytes: int


class LayoutFacts(_Data, frozen=True, kw_only=True):
    """The record layout, by name and in numbers; both must agree."""

    id: str
    hidden: int
    intermediate: int
    encoding: Encoding
    group: int
    unit_rows: int
    unit_bytes: int
    record_bytes: int

    @classmethod
    def of(cls, layout: RecordLayout) -> "LayoutFacts":
        """Describe a layout."""
        return cls(
            id=LAYOUT_ID,
            hidden=layout.hidden,
            intermediate=layout.intermediate,
            encoding=layout.encoding,
            group=layout.group,
            unit_rows=UNIT_ROWS,
            unit_bytes=layout.unit_bytes,
            record_bytes=layout.record_bytes,
        )

    def layout(self) -> RecordLayout:
        """Return the layout; raises ValueError if the numbers make none."""
        return RecordLayout(self.hidden, self.intermediate, self.encoding, self.group)


class Bank(_Data, frozen=True, kw_only=True):
    """All experts: record (layer, expert) lies at offset + (layer * num_experts + expert) * size.

    `layer_ids` are the model's layers that have experts, in order; `record_xxh3` one hash each.
    """

    file: int
    offset: int
    layer_ids: tuple[int, ...]
    num_experts: int
    layout: LayoutFacts
    record_xxh3: tuple[str, ...]

    @property
    def num_bytes(self) -> int:
        """Bytes of all records."""
        return len(self.layer_ids) * self.num_experts * self.layout.record_bytes


class TensorExtent(_Data, frozen=True, kw_only=True):
    """One tensor. Role "dense" is loaded, "scale" belongs to a dense one, "aux" is only kept."""

    name: str
    role: Role
    dtype: str
    shape: tuple[int, ...]
    file: int
    offset: int
    num_bytes: int
    xxh3: str
    scale: str = ""


class SideFile(_Data, frozen=True, kw_only=True):
    """A copied file: config, tokenizer, chat template, licence."""

    name: str
    num_bytes: int
    xxh3: str


class Source(_Data, frozen=True, kw_only=True):
    """What the model was converted from.

    `repo` and `commit` are empty where nothing said them, `content` for a large source: see
    `engine.protocol.identity`.
    """

    name: str
    fingerprint: str
    repo: str = ""
    commit: str = ""
    content: str = ""


class Index(_Data, frozen=True, kw_only=True):
    """Everything in `model.ftw`. `format` to `minor` stay first in every version."""

    format: str = FORMAT
    index_xxh3: str = _BLANK
    major: int = MAJOR
    minor: int = MINOR
    created_by: str = CREATED_BY
    name: str
    model_type: str
    quant: str
    total_bytes: int  # of all data files
    source: Source
    config: dict[str, Any]
    files: tuple[DataFile, ...]
    bank: Bank
    tensors: tuple[TensorExtent, ...]
    side_files: tuple[SideFile, ...] = ()


class _Head(msgspec.Struct):
    format: str = ""
    index_xxh3: str = ""
    major: int = 0


def encode_index(index: Index) -> bytes:
    """Return the bytes of `model.ftw`, with their own hash in them."""
    blank = msgspec.json.encode(msgspec.structs.replace(index, index_xxh3=_BLANK))
    return blank.replace(_BLANK.encode(), _digest(blank), 1)


def decode_index(raw: bytes, folder: Path) -> Index:
    """Read `model.ftw` and check everything that can be checked without the data files.

    Raises: UnsupportedCheckpoint for another format, major version or layout;
        CorruptCheckpoint if it is damaged or contradicts itself.
    """
    where = f"{INDEX_NAME} in {folder}"
    try:
        head = msgspec.json.decode(raw, type=_Head)
    except (msgspec.MsgspecError, UnicodeDecodeError) as problem:
        raise CorruptCheckpoint(f"{where} is damaged: {problem}.", AGAIN) from problem
    if head.format != FORMAT:
        raise UnsupportedCheckpoint(f"{where} is not the index of a FreeToken model.", AGAIN)
    if head.major != MAJOR:
        raise UnsupportedCheckpoint(
            f"{where} has format version {head.major}; this program reads version {MAJOR}.",
            "Update the program, or convert the model again.",
        )
    digits = head.index_xxh3.encode()
    if len(digits) != len(_BLANK) or _digest(raw.replace(digits, _BLANK.encode(), 1)) != digits:
        raise CorruptCheckpoint(f"{where} is damaged: its checksum does not match.", AGAIN)
    try:
        index = msgspec.json.decode(raw, type=Index)
    except (msgspec.MsgspecError, UnicodeDecodeError) as problem:
        raise CorruptCheckpoint(f"{where} is damaged: {problem}.", AGAIN) from problem
    _check(index, where)
    return index


def align(offset: int) -> int:
    """Return the next place at which an extent may start."""
    return -(-offset // ALIGN_BYTES) * ALIGN_BYTES


def _digest(raw: bytes) -> bytes:
    return xxhash.xxh3_64_hexdigest(raw).encode()


def _check(index: Index, where: str) -> None:
    """Hold the index against itself: it is input, like any file."""
    facts = index.bank.layout
    if facts.id != LAYOUT_ID:
        raise UnsupportedCheckpoint(
            f"{where} has its experts in layout '{facts.id}'; this program reads '{LAYOUT_ID}'.",
            "Update the program, or convert the model again.",
        )
    try:
        agree = LayoutFacts.of(facts.layout()) == facts
    except ValueError:
        agree = False
    num_records = len(index.bank.layer_ids) * index.bank.num_experts
    if not agree or num_records != len(index.bank.record_xxh3) or num_records < 1:
        raise _contradiction(where, "the expert bank")
    for name in [*(f.name for f in index.files), *(f.name for f in index.side_files)]:
        if PurePosixPath(name).name != name or "\\" in name or ":" in name:
            raise _contradiction(where, f"the file name {name}")
    names = {tensor.name for tensor in index.tensors}
    if len(names) != len(index.tensors):
        raise _contradiction(where, "tensor names that occur twice")
    for tensor in index.tensors:
        need = expected_bytes(tensor.dtype, tensor.shape)
        unknown = need is None and tensor.role != "aux"
        wrong = (need is not None and need != tensor.num_bytes) or min(tensor.shape, default=0) < 0
        if unknown or wrong or (tensor.scale and tensor.scale not in names):
            raise _contradiction(where, f"tensor {tensor.name}")
    _check_extents(index, where)


def _check_extents(index: Index, where: str) -> None:
    extents = [(index.bank.file, index.bank.offset, index.bank.num_bytes, "the expert bank")]
    extents += [(t.file, t.offset, t.num_bytes, f"tensor {t.name}") for t in index.tensors]
    ends = dict.fromkeys(range(len(index.files)), 0)
    for file, offset, num_bytes, what in sorted(extents):
        if file not in ends or offset % ALIGN_BYTES or num_bytes < 0 or offset < ends[file]:
            raise _contradiction(where, f"the place of {what}")
        ends[file] = offset + num_bytes
        if ends[file] > index.files[file].num_bytes:
            raise _contradiction(where, f"the place of {what}")


def _contradiction(where: str, what: str) -> CorruptCheckpoint:
    return CorruptCheckpoint(f"{where} is damaged: {what} cannot be right.", AGAIN)
