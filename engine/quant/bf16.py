"""Plain bfloat16 weights: stored as they are, no scales."""

import torch

from engine.protocol.errors import UnsupportedCheckpoint
from engine.quant.base import ExpertSizes
from kernels.layouts import UNIT_ROWS, RecordLayout
from kernels.reference.records import pack_record


class Bf16:
    """The format "bf16"; see `QuantFormat`."""

    name = "bf16"
    stored_dtype = torch.bfloat16

    def __init__(self, group: int = 0) -> None:
        if group:
            raise UnsupportedCheckpoint(f"bf16 weights have no scale blocks, but {group} is given.")

    def scale_shape(self, rows: int, columns: int) -> None:
        """Return None: there are no scales."""

    def layout(self, spec: ExpertSizes) -> RecordLayout:
        """Return the record layout; raises UnsupportedCheckpoint if I is no multiple of 16."""
        if spec.moe_intermediate % UNIT_ROWS:
            raise UnsupportedCheckpoint(
                f"Experts are {spec.moe_intermediate} wide; only multiples of {UNIT_ROWS} can be"
                " laid out."
            )
        return RecordLayout(spec.hidden, spec.moe_intermediate, "bf16")

    def pack(self, tensors: dict[str, torch.Tensor]) -> torch.Tensor:
        """Lay one expert (gate, up, down) out as a record."""
        rows, width = tensors["gate"].shape
        layout = RecordLayout(width, rows, "bf16")
        return pack_record(layout, tensors["gate"], tensors["up"], tensors["down"])

    def dequantize(self, weight: torch.Tensor, scale: torch.Tensor | None) -> torch.Tensor:
        """Return the values as float32; raises ValueError if there are scales."""
        if scale is not None:
            raise ValueError("bf16 weights have no scales")
        return weight.to(torch.float32)
