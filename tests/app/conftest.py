"""What all tests of the app share. TWO OWNERS: change your part, do not rewrite the file.

`looks` (window): a known look. `make_process`, `make_client`, `loaded_client` (services): the fake
engine, see tests/support/app_engine.py. `collected` (services): cycles are collected between tests
and on the main thread only, as in the app (see app/services/tidy.py); without it a worker thread
destroys Qt objects of the main thread now and then, which crashes a later test. `spoken`: language
and look live on the application, which all files that a process runs share; each file starts from
the same ones, whichever went before.
"""

import gc
from collections.abc import Iterator

import pytest
from PySide6.QtCore import QCoreApplication, QEvent
from PySide6.QtWidgets import QApplication

from app.theme import theme
from app.widgets.look import use
from app.wording import language
from tests.support.app_engine import loaded_client, make_client, make_process

__all__ = ["loaded_client", "looks", "make_client", "make_process"]


@pytest.fixture
def looks(qapp: QApplication) -> Iterator[None]:
    """A known look; afterwards what was closed is really gone, so that nothing piles up."""
    use("dark", 1.0, "en", reduced_motion=True)
    yield
    QCoreApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete.value)
    use("dark", 1.0, "en", reduced_motion=True)


@pytest.fixture(scope="session", autouse=True)
def no_collection_on_threads() -> Iterator[None]:
    """Leave Qt objects to the thread they belong to."""
    gc.collect()
    gc.freeze()
    gc.disable()
    yield
    gc.enable()
    gc.unfreeze()


@pytest.fixture(scope="module", autouse=True)
def spoken() -> Iterator[None]:
    """English and the usual look again, if a file of tests has left others."""
    yield
    if not isinstance(QApplication.instance(), QApplication):
        return
    if (language(), theme().tone, theme().zoom) != ("en", "dark", 1.0):
        use("dark", 1.0, "en", reduced_motion=True)


@pytest.fixture(autouse=True)
def collected(no_collection_on_threads: None) -> Iterator[None]:
    """What a test left behind goes before the next one."""
    yield
    gc.collect()
