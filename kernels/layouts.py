"""How one expert lies in memory: sizes, offsets, and what a value is. No tensors; knows no model.

Layout `units16`: an expert is one contiguous record of I/16 units. A unit is complete work for 16
rows of I: `g0 u0 g1 u1 .. g15 u15` (gate and up rows of H values, interleaved), then the matching
16 columns of down, transposed (`d0 .. d15`, H values each), then the unit's scales, if the
encoding has any. The record is padded to 4 KiB. So an expert can be split at any unit.
Called by `engine.quant`, `engine.checkpoint`, `engine.moe` and every expert kernel.
"""

from dataclasses import dataclass
from typing import Literal

import torch

Encoding = Literal["bf16", "fp8_block"]
DenseEncoding = Encoding | Literal["float32"]
BYTE_ENCODINGS: tuple[Encoding, ...] = ("bf16", "fp8_block")  # whole bytes a value

LAYOUT_ID = "units16"
UNIT_ROWS = 16
RECORD_ALIGN_BYTES = 4096
UNIT_ALIGN_BYTES = 16
VALUE_DTYPES: dict[Encoding, torch.dtype] = {
    "bf16": torch.bfloat16,
    "fp8_block": torch.float8_e4m3fn,
}
DENSE_DTYPES: dict[DenseEncoding, torch.dtype] = {
    "bf16": torch.bfloat16,
    "fp8_block": torch.float8_e4m3fn,
    "float32": torch.float32,
}
"""What a weight outside the experts may be stored as; `kernels.weights`."""


@dataclass(frozen=True, slots=True)
class RecordLayout:
    """Sizes and offsets of one expert's record.

    Attributes:
        hidden: H, from 1.
        intermediate: I, a multiple of 16.
        encoding: how a value is stored.
        group: side G of a square scale block (0 = no scales). With `fp8_block`, each unit carries
            fp32 scales [3, ceil(H/G)] for gate, up and down: its 16 rows lie in one block row.

    Raises: ValueError for sizes that make no record.
    """

    hidden: int
    intermediate: int
    encoding: Encoding
    group: int = 0

    def __post_init__(self) -> None:
        if self.hidden < 1:
            raise ValueError(f"hidden is {self.hidden}")
        if self.intermediate < 1 or self.intermediate % UNIT_ROWS:
            raise ValueError(f"intermediate {self.intermediate} is not a multiple of {UNIT_ROWS}")
        if self.group < 0 or self.group % UNIT_ROWS:
            raise ValueError(f"group {self.group} is not a multiple of {UNIT_ROWS}")
        if (self.group > 0) != (self.encoding == "fp8_block"):
            raise ValueError(f"group {self.group} does not go with encoding {self.encoding}")

    @property
    def num_units(self) -> int:
        """Units of one expert: I / 16."""
        return self.intermediate // UNIT_ROWS

    @property
    def value_dtype(self) -> torch.dtype:
        """What a stored weight is."""
        return VALUE_DTYPES[self.encoding]

    @property
    def value_bytes(self) -> int:
        """Bytes of one stored weight."""
        return self.value_dtype.itemsize

    @property
    def unit_value_bytes(self) -> int:
        """Bytes of a unit's weights: 16 gate rows, 16 up rows, 16 down columns."""
        return 3 * UNIT_ROWS * self.hidden * self.value_bytes

    @property
    def scale_groups(self) -> int:
        """Scales along H: ceil(H / G), 0 without scales."""
        return -(-self.hidden // self.group) if self.group else 0

    @property
    def unit_scale_bytes(self) -> int:
        """Bytes of a unit's fp32 scales, for gate, up and down."""
        return 3 * self.scale_groups * 4

    @property
    def unit_bytes(self) -> int:
        """Bytes from one unit to the next."""
        return _round_up(self.unit_value_bytes + self.unit_scale_bytes, UNIT_ALIGN_BYTES)

    @property
    def record_bytes(self) -> int:
        """Bytes from one expert to the next: the units, padded to 4 KiB."""
        return _round_up(self.num_units * self.unit_bytes, RECORD_ALIGN_BYTES)


def _round_up(value: int, step: int) -> int:
    return -(-value // step) * step
