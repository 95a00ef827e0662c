"""What kernels are compiled for: a card, as the driver describes it, or Triton's interpreter."""

import torch
import triton

from kernels.cuda.driver import compute_class, max_shared_bytes
from kernels.triton.tiles import Card

_INTERPRETED = Card(shared_bytes=1 << 16)  # no card: any tile runs


def interpreted() -> bool:
    """Whether kernels run in Triton's interpreter, on a CPU."""
    return bool(triton.knobs.runtime.interpret)


def card(device: torch.device) -> Card:
    """Return what the card can do."""
    if interpreted():
        return _INTERPRETED
    index = device.index or 0
    major, minor = compute_class(index)
    return Card(max_shared_bytes(index), wgmma=major == 9, native_fp8=(major, minor) >= (8, 9))
