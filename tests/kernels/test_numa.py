"""Large buffers on machines with several memory nodes."""

import errno
import os
import sys
from ctypes import addressof, c_char
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels.device import numa
from kernels.device.cpu import plain_buffer
from kernels.device.host import PAGE_BYTES, reserve
from kernels.device.numa import NodeFacts, choose_nodes, parse_nodes, read_facts, spread

LARGE = numa.LEAST_BYTES
INTERLEAVE = 3  # of the system's own header
NUMBERS = st.frozensets(st.integers(0, 80))
LINUX = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")


def ranges(nodes: frozenset[int]) -> str:
    """Write nodes as the system does."""
    parts: list[list[int]] = []
    for node in sorted(nodes):
        if parts and parts[-1][-1] == node - 1:
            parts[-1].append(node)
        else:
            parts.append([node])
    return ",".join(f"{p[0]}-{p[-1]}" if len(p) > 1 else f"{p[0]}" for p in parts)


@given(NUMBERS)
def test_parse_when_the_system_wrote_it_then_the_same_nodes(nodes: frozenset[int]) -> None:
    """Single numbers and ranges, in any mixture; an empty file has none."""
    assert parse_nodes(ranges(nodes) + "\n") == nodes


@given(st.text(alphabet="0123456789-,x² \n", max_size=12))
def test_parse_when_it_is_rubbish_then_no_error_and_no_absurd_number(text: str) -> None:
    """A file that somebody else made up costs nothing but the spreading."""
    assert all(0 <= node < 4096 for node in parse_nodes(text))


@pytest.mark.parametrize("text", ["", "a", "1-", "-1", "0,,1", "1-2-3", "0-99999999999", "²"])
def test_parse_when_it_is_no_list_then_none(text: str) -> None:
    """Nothing is read half."""
    assert parse_nodes(text) == frozenset()


@given(NUMBERS, NUMBERS, NUMBERS, st.integers(0, 5))
def test_choose_when_any_facts_then_only_nodes_that_have_all_and_never_one_alone(
    memory: frozenset[int], cpus: frozenset[int], allowed: frozenset[int], policy: int
) -> None:
    """Case E-14: no node that is forbidden, without memory, or a card's; a set policy stands."""
    nodes = choose_nodes(NodeFacts(memory, cpus, allowed, policy))
    both = memory & cpus & allowed
    assert nodes == (tuple(sorted(both)) if len(both) > 1 and policy == 0 else ())


def test_read_when_there_are_four_nodes_then_memory_cpus_and_what_is_allowed(
    tmp_path: Path,
) -> None:
    """Case E-14: four nodes, the last a card's memory, of which a group of processes has three."""
    for name, text in (("has_memory", "0-3\n"), ("has_cpu", "0-2\n"), ("online", "0-4\n")):
        (tmp_path / name).write_text(text)
    status = tmp_path / "status"
    status.write_text("Name:\tx\nMems_allowed:\t0000000d\nMems_allowed_list:\t0,2-3\n")
    facts = read_facts(tmp_path, status)
    assert facts == NodeFacts(frozenset({0, 1, 2, 3}), frozenset({0, 1, 2}), frozenset({0, 2, 3}))
    assert choose_nodes(facts) == (0, 2)


def test_read_when_the_system_tells_little_then_what_it_tells_counts(tmp_path: Path) -> None:
    """Old systems have only the nodes that are there; some containers have nothing."""
    assert choose_nodes(read_facts(tmp_path, tmp_path / "status")) == ()
    (tmp_path / "online").write_text("0-1\n")
    assert choose_nodes(read_facts(tmp_path, tmp_path / "status")) == (0, 1)


@pytest.mark.parametrize(("num_bytes", "nodes"), [(LARGE, ()), (LARGE, (0,)), (LARGE - 1, (0, 1))])
def test_spread_when_there_is_nothing_to_spread_then_nothing_is_called(
    num_bytes: int, nodes: tuple[int, ...]
) -> None:
    """One node, or a small buffer, whose policy would stay with the heap."""
    calls: list[object] = []
    assert spread(4096, num_bytes, nodes, lambda *facts: calls.append(facts)) == ""
    assert calls == []


def test_spread_when_there_are_two_nodes_then_called_once_and_told() -> None:
    """The whole range, both nodes, one sentence."""
    calls: list[object] = []
    told = spread(8192, 3 * 10**9, (0, 2), lambda *facts: calls.append(facts))
    assert calls == [(8192, 3 * 10**9, (0, 2))]
    assert told == "3.0 GB of main memory are spread over the memory nodes 0, 2."


@pytest.mark.parametrize("code", [errno.EPERM, errno.ENOSYS, errno.EINVAL])
def test_spread_when_the_system_refuses_then_told_and_the_memory_serves(
    monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """Containers forbid the call or do not know it: the model loads all the same (E-14)."""

    def refuse(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(numa, "usable_nodes", lambda: (0, 1))
    monkeypatch.setattr(numa, "interleave", refuse)
    buffer = plain_buffer(LARGE)
    assert os.strerror(code) in buffer.placement
    assert "could not be spread over the memory nodes 0, 1" in buffer.placement
    assert buffer.tensor.numel() == LARGE
    buffer.tensor[-1] = 7
    assert buffer.tensor[-1] == 7


@pytest.mark.parametrize("system", ["win32", "darwin"])
def test_nodes_when_it_is_not_linux_then_none(monkeypatch: pytest.MonkeyPatch, system: str) -> None:
    """Nothing is read and nothing is called there."""
    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.setattr(numa, "read_facts", lambda: pytest.fail("read"))
    assert numa.usable_nodes() == ()
    with pytest.raises(OSError, match="no such call"):
        numa.interleave(4096, 1 << 20, (0, 1))


def test_nodes_when_somebody_chose_a_policy_then_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that was started for one node stays there."""
    both = frozenset({0, 1})
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(numa, "read_facts", lambda: NodeFacts(both, both, both))
    monkeypatch.setattr(numa, "policy_of", lambda: (2, (0,)))
    assert numa.usable_nodes() == ()
    monkeypatch.setattr(numa, "policy_of", lambda: (numa.DEFAULT_POLICY, ()))
    assert numa.usable_nodes() == (0, 1)


@given(NUMBERS.filter(bool))
def test_mask_when_any_nodes_then_read_back_the_same(nodes: frozenset[int]) -> None:
    """Nodes beyond the first word, too."""
    assert numa.nodes_of(numa.words_of(sorted(nodes))) == tuple(sorted(nodes))
    assert sum(word.bit_count() for word in numa.words_of(sorted(nodes))) == len(nodes)


@pytest.mark.skipif(sys.platform == "win32", reason="words are shorter there")
def test_mask_when_a_node_is_beyond_the_first_word_then_it_lies_in_the_second() -> None:
    """As the system reads it."""
    assert numa.words_of((0, 2, 70)) == (5, 64)


def _asked_of(address: int) -> tuple[int, tuple[int, ...]]:
    try:
        return numa.policy_of(address)
    except OSError as problem:
        pytest.skip(f"needs a system that tells policies: {problem.strerror}")


@LINUX
def test_interleave_when_really_called_then_the_system_says_so() -> None:
    """The real call, on the node that every machine has; whole pages only, the rest as before."""
    page = PAGE_BYTES
    memory = reserve(16 * page)
    view = c_char.from_buffer(memory)
    first = addressof(view)
    before = _asked_of(first)
    assert before[0] != INTERLEAVE
    numa.interleave(first + 5, 8 * page, (0,))
    assert numa.policy_of(first) == before
    assert numa.policy_of(first + page) == (INTERLEAVE, (0,))
    assert numa.policy_of(first + 7 * page) == (INTERLEAVE, (0,))
    assert numa.policy_of(first + 8 * page) == before
    memory[page : 2 * page] = b"x" * page
    assert numa.policy_of(first + page) == (INTERLEAVE, (0,))
    numa.interleave(first, page - 1, (0,))  # no whole page
    del view
    memory.close()


@LINUX
@pytest.mark.parametrize("nodes", [(0, 1), (0, 1, 2, 3), (0, 70)])
def test_buffer_when_nodes_are_faked_then_spread_or_refused_and_it_serves(
    monkeypatch: pytest.MonkeyPatch, nodes: tuple[int, ...]
) -> None:
    """Case E-14: 2 or 4 nodes by the real call, though this machine may have one."""
    monkeypatch.setattr(numa, "usable_nodes", lambda: nodes)
    buffer = plain_buffer(LARGE + 12345)
    inside = buffer.tensor.data_ptr() + LARGE // 2
    policy, _ = _asked_of(inside)
    done = "are spread over" in buffer.placement
    assert done == (policy == INTERLEAVE)
    assert done or "could not be spread" in buffer.placement
    buffer.tensor[::PAGE_BYTES] = 3
    assert int(buffer.tensor[::PAGE_BYTES].min()) == 3
