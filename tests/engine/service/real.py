"""A service without doubles, on its thread, and a small model for it."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from engine.service import EngineService
from engine.settings import EngineSettings
from tests.engine.service.doubles import Client
from tests.support.checkpoints import convert_checkpoint, write_checkpoint


def small_model(place: Path) -> Path:
    """Make two layers of five experts with 512 tokens of context, a token a byte."""
    return convert_checkpoint(write_checkpoint(place / "source"), place / "model")


@contextmanager
def real_service(settings: EngineSettings) -> Iterator[Client]:
    """Run the service; it has ended behind the block."""
    client = Client(None)
    client.service = EngineService(client.emit, settings, devices=lambda: ())
    thread = threading.Thread(target=client.service.run)
    thread.start()
    try:
        yield client
    finally:
        client.service.stop()
        thread.join(20)
        assert not thread.is_alive()
