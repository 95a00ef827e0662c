"""What Triton says about the card it compiles for. The only module here that asks it."""

import torch
import triton

from kernels.triton.tiles import Card

_INTERPRETED = Card(shared_bytes=1 << 16)  # no card: any tile runs


def interpreted() -> bool:
    """Whether kernels run in Triton's interpreter, on a CPU."""
    return bool(triton.knobs.runtime.interpret)


def card(device: torch.device) -> Card:
    """Return what the card can do."""
    if interpreted():
        return _INTERPRETED
    active = triton.runtime.driver.active
    facts = active.utils.get_device_properties(device.index or 0)
    arch = int(active.get_current_target().arch)
    return Card(int(facts["max_shared_mem"]), wgmma=arch // 10 == 9, native_fp8=arch >= 89)
