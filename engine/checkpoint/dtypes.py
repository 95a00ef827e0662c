"""Dtypes by the names that safetensors files and FTW indexes use."""

import torch

DTYPES: dict[str, torch.dtype] = {
    "BOOL": torch.bool,
    "U8": torch.uint8,
    "I8": torch.int8,
    "U16": torch.uint16,
    "I16": torch.int16,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "U32": torch.uint32,
    "I32": torch.int32,
    "F32": torch.float32,
    "U64": torch.uint64,
    "I64": torch.int64,
    "F64": torch.float64,
    "C64": torch.complex64,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "F8_E8M0": torch.float8_e8m0fnu,
}
"""Names that we can turn into tensors; others are carried as raw bytes."""


def dtype_name(dtype: torch.dtype) -> str:
    """Return the name of a dtype; raises ValueError for one that has none."""
    for name, known in DTYPES.items():
        if known == dtype:
            return name
    raise ValueError(f"{dtype} has no name in the format")


def expected_bytes(dtype: str, shape: tuple[int, ...]) -> int | None:
    """Return the bytes of a tensor, None if the dtype is not known to us."""
    known = DTYPES.get(dtype)
    if known is None:
        return None
    count = 1
    for size in shape:
        count *= size
    return count * known.itemsize


def as_tensor(raw: torch.Tensor, dtype: str, shape: tuple[int, ...]) -> torch.Tensor:
    """View raw bytes (uint8 [n]) as the tensor they hold; no copy.

    Raises: ValueError if the dtype is not known to us.
    """
    known = DTYPES.get(dtype)
    if known is None:
        raise ValueError(f"dtype {dtype} is not known")
    return raw.view(known).reshape(shape)
