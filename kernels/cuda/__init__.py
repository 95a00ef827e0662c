"""CUDA C++ kernels of a decode step: sources, their compiler, the driver, and typed launchers.

Importing this needs neither torch's CUDA build nor a driver. `cuda_obstacle` says what is missing.
"""

from kernels.cuda.compile import open_nvrtc
from kernels.cuda.driver import open_driver
from kernels.device.base import DeviceLostError


def cuda_obstacle() -> str:
    """Return why the CUDA kernels cannot run on this machine; "" if they can."""
    try:
        open_driver()
    except (OSError, DeviceLostError, RuntimeError):
        return "this machine has no working NVIDIA driver"
    try:
        open_nvrtc()
    except (OSError, RuntimeError):
        return "the CUDA compiler library (NVRTC), which torch's CUDA build brings, is not there"
    return ""
