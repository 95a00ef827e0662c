"""Every test of the window starts in the dark tone, at 100 %, in English."""

from collections.abc import Iterator

import pytest
from PySide6.QtWidgets import QApplication

from app.widgets.look import use


@pytest.fixture
def looks(qapp: QApplication) -> Iterator[None]:
    """A known look, and the same one afterwards."""
    use("dark", 1.0, "en", reduced_motion=True)
    yield
    use("dark", 1.0, "en", reduced_motion=True)
