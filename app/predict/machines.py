"""The six machines of the paper, to stand beside the one at hand.

Source: arXiv 2608.16157, Table 1. B_P: measured host-to-device expert transfer; B_H: measured rate
of the CPU expert kernel. GB/s.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Machine:
    """One machine's two rates, GB/s."""

    name: str
    fill_gbps: float
    cpu_gbps: float
    detail: str = ""

    @property
    def ratio(self) -> float:
        """B_P / B_H; 0 when B_H is unknown."""
        return self.fill_gbps / self.cpu_gbps if self.cpu_gbps > 0 else 0.0


REFERENCE_MACHINES: tuple[Machine, ...] = (
    Machine("5090 server", 52.7, 77.3, "RTX 5090, PCIe 5.0 x16, 2x Xeon Gold 6459C, DDR5"),
    Machine("4090 server", 25.1, 63.2, "RTX 4090, PCIe 4.0 x16, 2x Xeon Platinum 8358P, DDR4"),
    Machine("3090 server", 25.3, 56.7, "RTX 3090, PCIe 4.0 x16, 2x Xeon Gold 6330, DDR4"),
    Machine("5090 desktop", 49.0, 53.8, "RTX 5090, PCIe 5.0 x16, Ryzen 9 9950X3D, DDR5"),
    Machine("4060 laptop", 11.8, 47.5, "RTX 4060 Laptop, PCIe 4.0 x8, Core i9-13900H, LPDDR5"),
    Machine("PRO 6000", 51.5, 178.0, "RTX PRO 6000, PCIe 5.0 x16, Xeon Platinum 8559C, DDR5"),
)
