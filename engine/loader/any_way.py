"""Loads a model by captured steps, or layer by layer where those turn out not to run (case E-06).

What a card can do is asked before; what its compiler and driver say to these kernels shows only
when they are built. Called by `engine.service`.
"""

import logging
from dataclasses import replace

from engine.loader.open import open_model
from engine.loader.parts import LoadedModel, LoadWatch
from engine.loader.tools import OpenTools
from engine.protocol.messages import Load
from engine.settings import EngineSettings
from kernels.device.base import KernelError

_log = logging.getLogger(__name__)


def open_any_way(
    command: Load,
    settings: EngineSettings,
    watch: LoadWatch,
    open_tools: OpenTools | None = None,
) -> LoadedModel:
    """Load a model; see `open_model`. A second try costs a second read, and is told.

    Only what compiler and driver say to a kernel leads to it; memory, a lost card and faults of our
    own stay what they are.

    Raises: as `open_model`.
    """
    try:
        return open_model(command, settings, watch, open_tools=open_tools)
    except KernelError as problem:
        if not any(name.startswith("cuda") for name in command.devices):
            raise
        _log.warning("captured steps cannot be built", exc_info=problem)
        reason = f"its kernels cannot be built: {problem}"
    model = open_model(command, settings, watch, open_tools=lambda *_: (None, reason))
    sentence = f"This card runs the model layer by layer, which is slower: {reason}."
    return replace(model, notices=(*model.notices, ("layer_by_layer", sentence)))
