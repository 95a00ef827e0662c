"""The CPU threads beside captured steps: what they are told, and what the log says of it."""

import logging
import os
import sys
from types import SimpleNamespace

import torch

from engine.loader import captured


def test_threads_when_started_then_their_cpus_are_allowed_and_in_the_log(monkeypatch, caplog):
    """Case E-08: who wonders why two engines slow each other down finds the CPUs in the log."""
    made = []
    monkeypatch.setattr(captured, "expert_obstacle", lambda: "")
    monkeypatch.setattr(captured, "CpuPool", lambda *parts: made.append(parts))
    pool = SimpleNamespace(layout=None, storage=None, num_records=1)
    mailbox = SimpleNamespace(mail=torch.zeros(8), reply=torch.zeros(8))
    with caplog.at_level(logging.INFO, "engine.loader.captured"):
        captured._threads(SimpleNamespace(num_threads=10_000, pool=pool), mailbox)
    ((_, _, cpus, options),) = made
    if sys.platform == "linux":
        assert set(cpus) == os.sched_getaffinity(0)
    assert caplog.messages == [f"expert threads on CPUs {cpus}, pinned: {options.pin}"]


def test_threads_when_there_are_no_kernels_then_none(monkeypatch):
    """Case E-09: a CPU that they do not run on is no reason not to start."""
    monkeypatch.setattr(captured, "expert_obstacle", lambda: "it lacks AVX")
    assert captured._threads(None, None) is None
