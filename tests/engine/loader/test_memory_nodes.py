"""A load on a machine with several memory nodes."""

import errno

import pytest

from engine.loader.open import open_model
from engine.loader.parts import LoadWatch
from engine.protocol.messages import Load
from engine.protocol.places import DataRoot
from engine.service.stats import load_notice
from engine.settings import EngineSettings
from kernels.device import numa
from tests.support.checkpoints import convert_checkpoint, write_checkpoint

QUIET = LoadWatch(lambda *_: None, lambda: False)


@pytest.fixture
def notices(monkeypatch, tmp_path):
    """Load a small model on two nodes; return what was called and what is said of memory."""
    folder = convert_checkpoint(write_checkpoint(tmp_path / "source"), tmp_path / "model")
    monkeypatch.setattr(numa, "LEAST_BYTES", 1)

    def load(problem=None, nodes=(0, 1)):
        calls = []

        def call(address, num_bytes, nodes):
            calls.append((num_bytes, nodes))
            if problem:
                raise problem

        monkeypatch.setattr(numa, "usable_nodes", lambda: nodes)
        monkeypatch.setattr(numa, "interleave", call)
        command = Load(id="l", model=str(folder), devices=("cpu",))
        model = open_model(command, EngineSettings(home=DataRoot(tmp_path), threads=1), QUIET)
        try:
            pool = model.info.pool_bytes
            return calls, pool, [one for one in model.notices if one[0] == "memory_nodes"]
        finally:
            model.close()

    return load


def test_load_when_there_are_two_nodes_then_the_pool_is_spread_and_said(notices):
    """Case E-14: once, all of the pool, and a sentence for the log that alarms nobody."""
    calls, pool_bytes, ((code, sentence),) = notices()
    assert calls == [(pool_bytes, (0, 1))]
    assert "are spread over the memory nodes 0, 1" in sentence
    assert load_notice(code, sentence).level == "info"


def test_load_when_spreading_is_refused_then_the_model_loads_and_says_why(notices):
    """Case E-14: a container may forbid the call."""
    _, _, ((_, sentence),) = notices(OSError(errno.EPERM, "Operation not permitted"))
    assert "could not be spread over the memory nodes 0, 1: Operation not permitted" in sentence


def test_load_when_there_is_one_node_then_nothing_is_said(notices):
    """The ordinary machine."""
    assert notices(nodes=())[::2] == ([], [])
