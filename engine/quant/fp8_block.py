"""FP8 (e4m3) weights with one float32 scale per G x G block, as Qwen3-FP8 publishes them.

A weight [N, M] comes with `weight_scale_inv` [ceil(N/G), ceil(M/G)]; value = code * scale. Blocks
at the lower and right edge may be partial.
"""

import torch

from engine.protocol.errors import UnsupportedCheckpoint
from engine.quant.base import ExpertSizes, expert_layout, plain_weight
from kernels.layouts import UNIT_ROWS, Encoding, RecordLayout
from kernels.reference.records import pack_record
from kernels.weights import DenseWeight

PUBLISHED_GROUP = 128


class Fp8Block:
    """The format "fp8_block"; see `QuantFormat`."""

    name: Encoding = "fp8_block"
    stored_dtype = torch.float8_e4m3fn

    def __init__(self, group: int = 0) -> None:
        self.group = group or PUBLISHED_GROUP
        if self.group < 0 or self.group % UNIT_ROWS:
            raise UnsupportedCheckpoint(
                f"FP8 scale blocks of {self.group} x {self.group} are not supported; their side"
                f" must be a multiple of {UNIT_ROWS}."
            )

    def scale_shape(self, rows: int, columns: int) -> tuple[int, int]:
        """Return (ceil(rows/G), ceil(columns/G))."""
        return -(-rows // self.group), -(-columns // self.group)

    def layout(self, spec: ExpertSizes) -> RecordLayout:
        """Return the record layout; raises UnsupportedCheckpoint if I is no multiple of 16."""
        return expert_layout(spec, self.name, self.group)

    def pack(self, tensors: dict[str, torch.Tensor]) -> torch.Tensor:
        """Lay one expert out as a record; scales become float32, which is exact."""
        rows, width = tensors["gate"].shape
        layout = RecordLayout(width, rows, self.name, self.group)
        scales = (
            tensors["gate_scale"].to(torch.float32),
            tensors["up_scale"].to(torch.float32),
            tensors["down_scale"].to(torch.float32),
        )
        return pack_record(layout, tensors["gate"], tensors["up"], tensors["down"], scales)

    def dense(self, values: torch.Tensor, scales: torch.Tensor | None) -> DenseWeight:
        """Return the weight with its scales as float32, which is exact.

        Shapes: values [N, M]; scales [ceil(N/G), ceil(M/G)] or None.
        Raises: ValueError if the scales' shape does not go with that of the values.
        """
        if scales is None:
            return plain_weight(values)
        wide = scales.to(torch.float32).contiguous()
        return DenseWeight(values.contiguous(), wide, self.group)
