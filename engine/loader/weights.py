"""A model's dense weights on their way from the folder to where they are used.

Knows names and progress, not what a weight is for. Called by `engine.loader.open`.
"""

from collections.abc import Callable

from engine.checkpoint.ftw import FtwReader
from engine.loader.parts import LoadWatch
from engine.protocol.errors import Cancelled
from kernels.device.base import Device
from kernels.weights import DenseWeight


def on_device(weight: Callable[[str], DenseWeight], device: Device) -> Callable[[str], DenseWeight]:
    """Return weights on the device, each of them once however often it is asked for."""
    kept: dict[str, DenseWeight] = {}

    def moved(name: str) -> DenseWeight:
        if name not in kept:
            one, here = weight(name), device.torch_device
            scales = None if one.scales is None else one.scales.to(here)
            kept[name] = DenseWeight(one.values.to(here), scales, one.group)
        return kept[name]

    return moved


def read_weights(reader: FtwReader, watch: LoadWatch) -> Callable[[str], DenseWeight]:
    """Return the family's way to dense weights: cancellable, and telling how far it is."""
    done = 0

    def weight(name: str) -> DenseWeight:
        nonlocal done
        if watch.cancelled():
            raise Cancelled("Loading was cancelled.")
        one = reader.weight(name)
        done += one.values.numel()
        watch.progress("build", min(done, total), total)
        return one

    total = reader.dense_values
    return weight
