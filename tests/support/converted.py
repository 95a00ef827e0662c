"""The built-in model as FTW, converted once per test run."""

from pathlib import Path

import pytest

from engine.loader.locate import locate_model
from engine.protocol.places import DataRoot


def convert_once(factory: pytest.TempPathFactory) -> DataRoot:
    """Return a data root whose models hold the built-in one; shared by the whole run."""
    home = DataRoot(Path(factory.getbasetemp()) / "converted-home")
    locate_model("builtin", home, lambda *_: None, lambda: False)
    return home
