"""What the tests of the window share: a known look, and the fake engine.

`looks`: the test starts in the dark tone, at 100 %, in English. `make_process`, `make_client`,
`loaded_client`: the fake engine; see tests/support/app_engine.py.
"""

from collections.abc import Iterator

import pytest
from PySide6.QtWidgets import QApplication

from app.widgets.look import use
from tests.support.app_engine import loaded_client, make_client, make_process

__all__ = ["loaded_client", "looks", "make_client", "make_process"]


@pytest.fixture
def looks(qapp: QApplication) -> Iterator[None]:
    """A known look, and the same one afterwards."""
    use("dark", 1.0, "en", reduced_motion=True)
    yield
    use("dark", 1.0, "en", reduced_motion=True)
