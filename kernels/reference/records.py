"""Pack one expert into a `units16` record and read it back, in plain torch: the truth for tests.

Knows bytes, layout and dequantisation; not where a record lives or what an expert computes. The
interleaving is written down in `kernels.layouts`. Called by `engine.quant` (packing) and by
`kernels.reference.experts` (reading, once per routed expert: hence no loop over units).
"""

import torch

from kernels.layouts import UNIT_ROWS, RecordLayout

Scales = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def pack_record(
    layout: RecordLayout,
    gate: torch.Tensor,
    up: torch.Tensor,
    down: torch.Tensor,
    scales: Scales | None = None,
) -> torch.Tensor:
    """Lay one expert out as a record; bytes are moved, never rounded.

    Shapes: gate, up [I, H]; down [H, I]; scales = gate, up [ceil(I/G), ceil(H/G)] and down
    [ceil(H/G), ceil(I/G)] float32 -> uint8 [record_bytes] on the device of `gate`.
    Returns: the record; bytes that belong to no value or scale are zero.
    Raises: ValueError for a shape, dtype or missing scale that does not go with `layout`.
    """
    dtype = layout.value_dtype
    rows, width = layout.intermediate, layout.hidden
    for part, tensor, shape in (
        ("gate", gate, (rows, width)),
        ("up", up, (rows, width)),
        ("down", down, (width, rows)),
    ):
        _check(part, tensor, shape, dtype)
    units = layout.num_units
    row_bytes = width * layout.value_bytes
    record = torch.zeros(layout.record_bytes, dtype=torch.uint8, device=gate.device)
    body = record[: units * layout.unit_bytes].view(units, layout.unit_bytes)
    values = body[:, : layout.unit_value_bytes].view(units, 3 * UNIT_ROWS, row_bytes)
    split = (units, UNIT_ROWS, row_bytes)
    values[:, 0 : 2 * UNIT_ROWS : 2] = _raw(gate).view(split)
    values[:, 1 : 2 * UNIT_ROWS : 2] = _raw(up).view(split)
    values[:, 2 * UNIT_ROWS :] = _raw(down.T).view(split)
    if layout.group:
        if scales is None:
            raise ValueError(f"encoding {layout.encoding} needs scales")
        end = layout.unit_value_bytes + layout.unit_scale_bytes
        body[:, layout.unit_value_bytes : end] = _unit_scales(layout, scales).view(torch.uint8)
    elif scales is not None:
        raise ValueError(f"encoding {layout.encoding} has no scales")
    return record


def unpack_record(
    layout: RecordLayout, record: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Read a record back as float32: stored value times its block's scale, rounded once.

    Shapes: uint8 [record_bytes] -> gate, up, down transposed, each [I, H] float32, contiguous, on
    the device of `record`.
    Raises: ValueError if `record` is not one contiguous record of this layout.
    """
    if record.dtype != torch.uint8 or record.shape != (layout.record_bytes,):
        raise ValueError(
            f"a record is uint8 [{layout.record_bytes}], got {record.dtype} {list(record.shape)}"
        )
    units, width = layout.num_units, layout.hidden
    body = record[: units * layout.unit_bytes].view(units, layout.unit_bytes)
    values = body[:, : layout.unit_value_bytes].view(units, 3 * UNIT_ROWS, -1)
    parts = (
        _decode(layout, values[:, 0 : 2 * UNIT_ROWS : 2]),
        _decode(layout, values[:, 1 : 2 * UNIT_ROWS : 2]),
        _decode(layout, values[:, 2 * UNIT_ROWS :]),
    )
    if layout.group:
        end = layout.unit_value_bytes + layout.unit_scale_bytes
        scales = body[:, layout.unit_value_bytes : end].view(torch.float32)
        wide = scales.view(units, 3, layout.scale_groups).repeat_interleave(layout.group, dim=2)
        for index, part in enumerate(parts):
            part.mul_(wide[:, index : index + 1, :width])
    gate, up, down = (part.view(layout.intermediate, width) for part in parts)
    return gate, up, down


def _raw(tensor: torch.Tensor) -> torch.Tensor:
    """Return the bytes, row by row, flat: uint8 [n]."""
    return tensor.contiguous().reshape(-1).view(torch.uint8)


def _decode(layout: RecordLayout, values: torch.Tensor) -> torch.Tensor:
    """Turn stored bytes [U, 16, row bytes] into float32 [U, 16, H], contiguous."""
    dtype = layout.value_dtype
    if dtype.itemsize > 1:
        return values.contiguous().view(dtype).to(torch.float32)
    # All 256 codes, looked up: five times faster on a CPU than torch's own conversion
    # (one x86 server core, torch 2.13) and the same bits.
    codes = torch.arange(256, dtype=torch.uint8, device=values.device)
    table = codes.view(dtype).to(torch.float32)
    flat = values.to(torch.int32, memory_format=torch.contiguous_format).view(-1)
    return table.index_select(0, flat).view(layout.num_units, UNIT_ROWS, layout.hidden)


def _unit_scales(layout: RecordLayout, scales: Scales) -> torch.Tensor:
    """Gather each unit's scales: [U, 3 * ceil(H/G)] float32, for gate, up and down."""
    gate, up, down = scales
    across, along = layout.scale_groups, -(-layout.intermediate // layout.group)
    _check("gate scale", gate, (along, across), torch.float32)
    _check("up scale", up, (along, across), torch.float32)
    _check("down scale", down, (across, along), torch.float32)
    # 16 divides G, so that a unit's rows share one row of blocks.
    rows = torch.arange(layout.num_units, device=gate.device) * UNIT_ROWS // layout.group
    each = torch.stack((gate[rows], up[rows], down.T[rows]), dim=1)
    return each.reshape(layout.num_units, 3 * across)


def _check(part: str, tensor: torch.Tensor, shape: tuple[int, int], dtype: torch.dtype) -> None:
    if tuple(tensor.shape) != shape or tensor.dtype != dtype:
        raise ValueError(
            f"{part} is {tensor.dtype} {list(tensor.shape)}, expected {dtype} {list(shape)}"
        )
