"""The converted built-in model for the transcripts."""

import pytest

from engine.protocol.places import DataRoot
from tests.support.converted import convert_once


@pytest.fixture(scope="session")
def converted_home(tmp_path_factory: pytest.TempPathFactory) -> DataRoot:
    """A data root that holds the built-in model, converted."""
    return convert_once(tmp_path_factory)
