"""What a quant format must offer: how weights of one encoding are stored, packed and read.

Knows no tensor names and no files (names belong to the model family), and no kernel: it names the
layout that kernels understand. Called by `engine.checkpoint` and, through its reader, by the
loader.
"""

from typing import Protocol

import torch

from engine.protocol.errors import UnsupportedCheckpoint
from kernels.layouts import UNIT_ROWS, Encoding, RecordLayout
from kernels.weights import DenseWeight


class ExpertSizes(Protocol):
    """The facts of a model that decide a record's layout; `ModelSpec` has them."""

    @property
    def hidden(self) -> int:
        """H."""
        ...

    @property
    def moe_intermediate(self) -> int:
        """I of one expert."""
        ...

    @property
    def quant_group(self) -> int:
        """Side of a scale block, 0 = none."""
        ...


class QuantFormat(Protocol):
    """One encoding of weights, as checkpoints publish it."""

    @property
    def name(self) -> str:
        """The registry's name; that of the record's encoding."""
        ...

    @property
    def stored_dtype(self) -> torch.dtype:
        """Dtype of an expert's weights, in the checkpoint and in the record."""
        ...

    def scale_shape(self, rows: int, columns: int) -> tuple[int, int] | None:
        """Return the shape of the scales of a [rows, columns] weight, None without scales."""
        ...

    def layout(self, spec: ExpertSizes) -> RecordLayout:
        """Return the record layout of one expert.

        Raises: UnsupportedCheckpoint if the sizes cannot be laid out.
        """
        ...

    def pack(self, tensors: dict[str, torch.Tensor]) -> torch.Tensor:
        """Lay one expert out as a record.

        Shapes: gate, up [I, H], down [H, I] in `stored_dtype`, and with scales gate_scale,
        up_scale, down_scale of `scale_shape` -> uint8 [record_bytes].
        Raises: ValueError for shapes or dtypes that do not go together.
        """
        ...

    def dense(self, values: torch.Tensor, scales: torch.Tensor | None) -> DenseWeight:
        """Return a weight outside the experts, as it is stored.

        `scales` None = it is stored without scales (norms, routers, embeddings).
        Raises: ValueError for scales that do not go with the values.
        """
        ...


def plain_weight(values: torch.Tensor) -> DenseWeight:
    """Return a weight without scales; a dtype that kernels do not read becomes float32."""
    known = (torch.float32, torch.bfloat16)
    kept = values if values.dtype in known else values.to(torch.float32)
    return DenseWeight(kept.contiguous())


def expert_layout(spec: ExpertSizes, encoding: Encoding, group: int = 0) -> RecordLayout:
    """Return the layout of one expert in an encoding with scale blocks of side `group`.

    Raises: UnsupportedCheckpoint if I is no multiple of 16.
    """
    if spec.moe_intermediate % UNIT_ROWS:
        raise UnsupportedCheckpoint(
            f"Experts are {spec.moe_intermediate} wide; only multiples of {UNIT_ROWS} can be"
            " laid out."
        )
    return RecordLayout(spec.hidden, spec.moe_intermediate, encoding, group)
