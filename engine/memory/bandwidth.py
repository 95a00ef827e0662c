"""Measured rates of this machine, and the judgement whether they still hold.

Only holds and judges numbers; measuring is the profile job. No torch.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Rates:
    """Bytes per second, for one expert format, alone and with both links running together."""

    fill: float  # B_P: host memory to device slot
    cpu: float  # B_H: the CPU expert kernel
    joint_fill: float = 0.0  # 0 = not measured
    joint_cpu: float = 0.0
