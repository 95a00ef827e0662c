"""Device code: e4m3 codes as exact values. Types are Triton's."""

# ruff: noqa: ANN001, ANN201
# mypy: disable-error-code="untyped-decorator, no-untyped-def"

import triton
import triton.language as tl


@triton.jit
def decode_e4m3(codes, NATIVE: tl.constexpr, dtype: tl.constexpr):
    """Codes as uint8 -> values of `dtype`, which must hold three bits of mantissa."""
    if NATIVE:
        values = codes.to(tl.float8e4nv, bitcast=True).to(dtype)
    else:
        # Cards before class 8.9 know no e4m3. Moved to a half's exponent and mantissa, every code
        # but the two NaNs is a half that is 256 times smaller (the exponents' biases differ by 8).
        wide = codes.to(tl.uint16)
        half = (((wide & 0x80) << 8) | ((wide & 0x7F) << 7)).to(tl.float16, bitcast=True)
        exact = tl.where((wide & 0x7F) == 0x7F, float("nan"), half.to(tl.float32) * 256.0)
        values = exact.to(dtype)
    return values
