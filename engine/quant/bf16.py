"""Plain bfloat16 weights: stored as they are, no scales."""

import torch

from engine.protocol.errors import UnsupportedCheckpoint
from engine.quant.base import ExpertSizes, expert_layout, plain_weight
from kernels.layouts import Encoding, RecordLayout
from kernels.reference.records import pack_record
from kernels.weights import DenseWeight


class Bf16:
    """The format "bf16"; see `QuantFormat`."""

    name: Encoding = "bf16"
    stored_dtype = torch.bfloat16

    def __init__(self, group: int = 0) -> None:
        if group:
            raise UnsupportedCheckpoint(f"bf16 weights have no scale blocks, but {group} is given.")

    def scale_shape(self, rows: int, columns: int) -> None:
        """Return None: there are no scales."""

    def layout(self, spec: ExpertSizes) -> RecordLayout:
        """Return the record layout; raises UnsupportedCheckpoint if I is no multiple of 16."""
        return expert_layout(spec, self.name)

    def pack(self, tensors: dict[str, torch.Tensor]) -> torch.Tensor:
        """Lay one expert (gate, up, down) out as a record."""
        rows, width = tensors["gate"].shape
        layout = RecordLayout(width, rows, self.name)
        return pack_record(layout, tensors["gate"], tensors["up"], tensors["down"])

    def dense(self, values: torch.Tensor, scales: torch.Tensor | None) -> DenseWeight:
        """Return the weight as it is; raises ValueError if there are scales."""
        if scales is not None:
            raise ValueError("bf16 weights have no scales")
        return plain_weight(values)
