"""Random experts for tests: weights over several binades, so that errors of order show."""

import torch

from kernels.layouts import RecordLayout
from kernels.reference.records import pack_record


def random_record(layout: RecordLayout, generator: torch.Generator) -> torch.Tensor:
    """Return one packed record, uint8 [record_bytes], with values over about ten binades."""
    rows, width = layout.intermediate, layout.hidden

    def weight(*shape: int) -> torch.Tensor:
        values = torch.randn(shape, generator=generator)
        powers = torch.randint(-5, 5, shape, generator=generator)
        return (values * 2.0**powers).clamp(-400, 400).to(layout.value_dtype)

    parts = weight(rows, width), weight(rows, width), weight(width, rows)
    if not layout.group:
        return pack_record(layout, *parts)
    along, across = -(-rows // layout.group), layout.scale_groups

    def scale(*shape: int) -> torch.Tensor:
        return torch.rand(shape, generator=generator) * 0.3 + 0.01

    scales = scale(along, across), scale(along, across), scale(across, along)
    return pack_record(layout, *parts, scales)
