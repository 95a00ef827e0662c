"""Nothing of the program can be reached from outside: there is no socket to reach it by."""

import psutil
import pytest

from engine.protocol.messages import Finished, Hello, Load, Loaded, Ready, TokenDelta
from tests.e2e.engine_process import ask, engine

pytestmark = pytest.mark.weights


def sockets(pid: int) -> list[tuple[str, object]]:
    """Sockets of the internet family of a process and its children."""
    whole = psutil.Process(pid)
    return [
        (one.status, one.laddr)
        for process in (whole, *whole.children(recursive=True))
        for one in process.net_connections("inet")
    ]


def test_engine_whatever_it_does_then_it_opens_no_port(converted_home):
    """Case A-15: idle, loaded, answering; so no route needs a key, and none is without."""
    with engine(converted_home.root) as process:
        process.send(Hello())
        process.wait(Ready)
        assert sockets(process.process.pid) == []
        process.send(Load(id="l", model="tiny-moe-fp8"))
        process.wait(Loaded)
        assert sockets(process.process.pid) == []
        process.send(ask("a", "Tell me a story.", max_tokens=200))
        process.wait(TokenDelta)
        assert sockets(process.process.pid) == []
        process.wait(Finished)
        assert process.end() == 0
