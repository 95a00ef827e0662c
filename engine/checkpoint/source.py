"""A Hugging Face folder as a source of tensors: config, shards, index; everything checked first.

Only reads. Knows no model family: which names must be there is `engine.checkpoint.inventory`'s
question. Called by `engine.checkpoint.convert` and `engine.jobs.convert`.
"""

from collections.abc import Mapping
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import msgspec
import torch
import xxhash

from engine.checkpoint.dtypes import as_tensor
from engine.checkpoint.files import access_error, read_bytes, read_extent
from engine.checkpoint.origin import origin_of
from engine.checkpoint.safetensors import AGAIN, ShardHeader, StoredTensor, read_header
from engine.protocol.errors import CorruptCheckpoint, FileAccess, UnsupportedCheckpoint

CONFIG = "config.json"
INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
SIDE_FILES = (
    CONFIG,
    "generation_config.json",
    "tokenizer*",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
    "*.tiktoken",
    "chat_template*",
    "preprocessor_config.json",
    "processor_config.json",
    "LICENSE*",
    "NOTICE*",
)
"""What is copied beside a converted model, byte for byte."""

_CHOOSE = "Choose a folder with config.json and .safetensors files."


class _Index(msgspec.Struct):
    weight_map: dict[str, str]


class SourceCheckpoint:
    """A folder of safetensors, opened and checked: no shard missing, none cut off.

    Raises (constructor): UnsupportedCheckpoint for a folder of another kind, CorruptCheckpoint
        naming the file or tensor that is missing or damaged, FileAccess.

    Attributes:
        folder: where it lies.
        name: the folder's name, or the repository's in a hub cache; to show.
        origin: repository and commit, as far as the folder says.
        config: config.json as it is.
        tensors: every tensor by name, in file order.
        fingerprint: changes with the config and with any shard's header or length.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.name = _model_name(folder.absolute())
        self.origin = origin_of(folder.absolute())
        files = _list_files(folder)
        raw_config = self._read_config(files)
        self.config: dict[str, Any] = _decode_object(folder / CONFIG, raw_config)
        shards, weight_map = self._find_shards(files)
        headers = {shard: read_header(folder / shard) for shard in shards}
        self.tensors: Mapping[str, StoredTensor] = _merge(headers, weight_map)
        self.fingerprint = _fingerprint(raw_config, headers)
        self._side_files = tuple(
            folder / file for file in files if any(fnmatch(file, known) for known in SIDE_FILES)
        )

    @property
    def model_type(self) -> str:
        """The config's `model_type`; raises UnsupportedCheckpoint if it has none."""
        model_type = self.config.get("model_type")
        if not isinstance(model_type, str) or not model_type:
            raise UnsupportedCheckpoint(
                f"{self.folder / CONFIG} does not say its model_type.", _CHOOSE
            )
        return model_type

    @property
    def side_files(self) -> tuple[Path, ...]:
        """Config, tokenizer, template and licence files, to be copied as they are."""
        return self._side_files

    def raw(self, name: str) -> torch.Tensor:
        """Read a tensor's bytes: uint8 [n]. Raises FileAccess, CorruptCheckpoint."""
        tensor = self.tensors[name]
        return read_extent(tensor.file, tensor.offset, tensor.num_bytes)

    def tensor(self, name: str) -> torch.Tensor:
        """Read a tensor in its stored dtype; raises ValueError if that is unknown to us."""
        stored = self.tensors[name]
        return as_tensor(self.raw(name), stored.dtype, stored.shape)

    def _read_config(self, files: list[str]) -> bytes:
        if "model.ftw" in files:
            raise UnsupportedCheckpoint(
                f"{self.folder} is converted already.", "Load it as it is; nothing is to be done."
            )
        if "freetoken_weight.json" in files:
            raise UnsupportedCheckpoint(
                f"{self.folder} is a FreeToken v1 folder, which cannot be read yet.",
                "Convert again from the original safetensors folder.",
            )
        if CONFIG not in files:
            if any(file.endswith(".gguf") for file in files):
                raise self._foreign("GGUF")
            raise UnsupportedCheckpoint(f"{self.folder} has no {CONFIG}.", _CHOOSE)
        return read_bytes(self.folder / CONFIG)

    def _find_shards(self, files: list[str]) -> tuple[list[str], dict[str, str]]:
        if INDEX in files:
            weight_map = _read_index(self.folder / INDEX)
            shards = sorted(set(weight_map.values()))
            self._check_present(shards, files)
            return shards, weight_map
        if SINGLE in files:
            return [SINGLE], {}
        if any(file.endswith(".safetensors") for file in files):
            raise CorruptCheckpoint(
                f"{INDEX} is missing in {self.folder}.", "Download the model's folder again."
            )
        for ending, kind in ((".gguf", "GGUF"), (".bin", "PyTorch .bin"), (".pt", "PyTorch .pt")):
            if any(file.endswith(ending) for file in files):
                raise self._foreign(kind)
        raise UnsupportedCheckpoint(f"{self.folder} holds no weights.", _CHOOSE)

    def _check_present(self, shards: list[str], files: list[str]) -> None:
        there = set(files)
        missing = [shard for shard in shards if shard not in there]
        if not missing:
            return
        more = f" ({len(missing) - 1} more are missing too)" if len(missing) > 1 else ""
        raise CorruptCheckpoint(
            f"{missing[0]} is missing in {self.folder}{more}.",
            "Download the missing files, or the whole model again.",
        )

    def _foreign(self, kind: str) -> UnsupportedCheckpoint:
        return UnsupportedCheckpoint(
            f"{self.folder} holds {kind} weights, which cannot be converted yet.",
            "Choose the model's safetensors version.",
        )


def _model_name(folder: Path) -> str:
    """Return the folder's name; in a hub cache (models--OWNER--NAME/snapshots/HASH) the NAME."""
    if folder.parent.name == "snapshots" and folder.parents[1].name.startswith("models--"):
        return folder.parents[1].name.rpartition("--")[2]
    return folder.name


def _list_files(folder: Path) -> list[str]:
    """Return the names of files in the folder; links that lead nowhere count as absent."""
    try:
        return sorted(entry.name for entry in folder.iterdir() if entry.is_file())
    except NotADirectoryError as problem:
        raise FileAccess(f"{folder} is a file, not a folder.", _CHOOSE) from problem
    except OSError as problem:
        raise access_error(problem, "read", folder) from problem


def _decode_object(file: Path, raw: bytes) -> dict[str, Any]:
    try:
        found: dict[str, Any] = msgspec.json.decode(raw, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeDecodeError) as problem:
        raise CorruptCheckpoint(f"{file} is damaged: {problem}.", AGAIN) from problem
    return found


def _read_index(file: Path) -> dict[str, str]:
    """Return tensor name -> shard; shard names that leave the folder are refused."""
    try:
        weight_map = msgspec.json.decode(read_bytes(file), type=_Index).weight_map
    except (msgspec.MsgspecError, UnicodeDecodeError) as problem:
        raise CorruptCheckpoint(f"{file} is damaged: {problem}.", AGAIN) from problem
    for shard in weight_map.values():
        if Path(shard).name != shard or "\\" in shard or not shard.endswith(".safetensors"):
            raise CorruptCheckpoint(f"{file} names an impossible file: {shard}.", AGAIN)
    if not weight_map:
        raise CorruptCheckpoint(f"{file} names no tensors.", AGAIN)
    return weight_map


def _merge(headers: dict[str, ShardHeader], weight_map: dict[str, str]) -> dict[str, StoredTensor]:
    """Return all tensors; the index decides where a name belongs, extra tensors are kept."""
    merged: dict[str, StoredTensor] = {}
    for shard, header in headers.items():
        for name, tensor in header.tensors.items():
            if weight_map.get(name, shard) == shard:
                merged.setdefault(name, tensor)
    for name, shard in weight_map.items():
        if name not in merged:
            raise CorruptCheckpoint(
                f"{shard} lacks the tensor {name}, which {INDEX} promises.",
                f"Download {shard} and {INDEX} again.",
            )
    return merged


def _fingerprint(raw_config: bytes, headers: dict[str, ShardHeader]) -> str:
    digest = xxhash.xxh3_128()
    digest.update(raw_config)
    for shard, header in headers.items():
        digest.update(f"\n{shard} {header.file_bytes}\n".encode())
        digest.update(header.raw)
    return digest.hexdigest()
