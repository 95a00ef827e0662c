"""Job: load all libraries of the engine, choose its kernels, compute something.

Spec: {}. Result: version by library, the devices that were found, and why Triton cannot compile for
prompts on a card ("" = it can). What is missing shows here within seconds and by its name, before a
runtime is used. Started by `engine.jobs.runtime_check`.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Any

from engine.protocol.errors import CorruptCheckpoint, FileAccess
from engine.protocol.messages import Event

LIBRARIES = ("torch", "safetensors", "tokenizers", "jinja2", "xxhash")
_OURS = ("engine.service.service", "engine.loader", "engine.text", "engine.checkpoint")


def run(
    spec: dict[str, Any], emit: Callable[[Event], None], cancelled: Callable[[], bool]
) -> dict[str, Any]:
    """Run the job. Raises: FileAccess naming what cannot be loaded; CorruptCheckpoint."""
    try:
        loaded = {name: import_module(name) for name in LIBRARIES}
        for name in _OURS:
            import_module(name)
        from kernels.device.registry import list_devices  # needs torch
        from kernels.registry import choices
        from kernels.triton import obstacle

        choices("cpu")
        devices = list_devices(("cuda", "cpu"))
    except (ImportError, OSError) as problem:
        raise FileAccess(f"A library of the engine cannot be loaded: {problem}.") from problem
    _compute(loaded["torch"])
    versions = {name: str(getattr(module, "__version__", "")) for name, module in loaded.items()}
    names = [facts.name for facts in devices]
    return {"libraries": versions, "devices": names, "triton": obstacle()}


def _compute(torch: Any) -> None:  # noqa: ANN401 - the module, which may be absent when linted
    square = torch.arange(16, dtype=torch.float32).reshape(4, 4)
    if float((square @ square.T).sum()) != 3680.0:
        raise CorruptCheckpoint("The engine's libraries compute wrongly on this processor.")
