"""Memory nodes: spreads large buffers over the nodes of a machine that has several (Linux).

A page lies on the node of the thread that touches it first. Experts filled by one thread would all
lie on one node, and every other socket would read them over the link between sockets. Source:
mbind(2), get_mempolicy(2), numa(7).
"""

import ctypes
import os
import platform
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from kernels.device.host import PAGE_BYTES

LEAST_BYTES = 64 << 20  # smaller memory may come from a heap, where a policy outlives the buffer
DEFAULT_POLICY, INTERLEAVE_POLICY = 0, 3  # MPOL_DEFAULT, MPOL_INTERLEAVE
_MOST_NODES = 4096
_CALLS = {"x86_64": (237, 239), "aarch64": (235, 236)}
"""Numbers of mbind and get_mempolicy, by machine."""
_MASK_BITS = 8 * ctypes.sizeof(ctypes.c_ulong)
_WHERE_IT_LIES = 2  # MPOL_F_ADDR
_SYSTEM, _PROCESS = Path("/sys/devices/system/node"), Path("/proc/self/status")

Interleave = Callable[[int, int, Sequence[int]], None]
"""(address, bytes, nodes); raises OSError."""


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What the system tells of its nodes.

    Attributes:
        memory: nodes with memory.
        cpus: nodes with CPUs.
        allowed: nodes whose memory this process may use.
        policy: of this process; `DEFAULT_POLICY` unless it was started under another.
    """

    memory: frozenset[int]
    cpus: frozenset[int]
    allowed: frozenset[int]
    policy: int = DEFAULT_POLICY


def parse_nodes(text: str) -> frozenset[int]:
    """Return the numbers of a list such as "0-1,4"; of one that is not like this none at all."""
    found: set[int] = set()
    for part in text.strip().split(","):
        first, dash, last = part.strip().partition("-")
        last = last if dash else first
        if not (_is_node(first) and _is_node(last)):
            return frozenset()
        found.update(range(int(first), int(last) + 1))
    return frozenset(found)


def choose_nodes(facts: NodeFacts) -> tuple[int, ...]:
    """Return the nodes to spread over; none where there are not two, or where somebody chose.

    A node without CPUs is the memory of a card or a slower kind.
    """
    if facts.policy != DEFAULT_POLICY:
        return ()
    nodes = facts.memory & facts.cpus & facts.allowed
    return tuple(sorted(nodes)) if len(nodes) > 1 else ()


def read_facts(system: Path = _SYSTEM, process: Path = _PROCESS) -> NodeFacts:
    """Ask Linux; what it does not tell counts as allowed, and as no node."""
    memory = parse_nodes(_text(system / "has_memory") or _text(system / "online"))
    cpus = parse_nodes(_text(system / "has_cpu")) or memory
    lines = _text(process).splitlines()
    listed = [line.partition(":")[2] for line in lines if line.startswith("Mems_allowed_list:")]
    allowed = parse_nodes(listed[0]) if listed else memory
    return NodeFacts(memory, cpus, allowed)


def usable_nodes() -> tuple[int, ...]:
    """Return the nodes to spread over on this machine; see `choose_nodes`."""
    if sys.platform != "linux":
        return ()
    facts = read_facts()
    if len(facts.memory) < 2:  # most machines: nothing is called
        return ()
    try:
        policy, _ = policy_of()
    except OSError:
        policy = DEFAULT_POLICY
    return choose_nodes(NodeFacts(facts.memory, facts.cpus, facts.allowed, policy))


def spread(
    address: int,
    num_bytes: int,
    nodes: Sequence[int] | None = None,
    call: Interleave | None = None,
) -> str:
    """Let the pages of memory that nobody has touched come from all nodes in turn.

    `nodes` default to those of this machine, `call` to the system's.

    Returns: a sentence on what was done, or on why the system refused; "" if nothing is to be done.
    """
    if num_bytes < LEAST_BYTES:
        return ""
    nodes = usable_nodes() if nodes is None else nodes
    if len(nodes) < 2:
        return ""
    names, amount = ", ".join(map(str, nodes)), f"{num_bytes / 1e9:.1f} GB of main memory"
    try:
        (call or interleave)(address, num_bytes, nodes)
    except OSError as problem:
        return (
            f"{amount} could not be spread over the memory nodes {names}: {problem.strerror}. "
            "CPUs of the other nodes may read them more slowly."
        )
    return f"{amount} are spread over the memory nodes {names}."


def interleave(address: int, num_bytes: int, nodes: Sequence[int]) -> None:
    """Set the policy of the whole pages of a range. Raises OSError, also where Linux is not."""
    start = -(-address // PAGE_BYTES) * PAGE_BYTES
    size = (address + num_bytes - start) // PAGE_BYTES * PAGE_BYTES
    if size <= 0:
        return
    words = words_of(nodes)
    mask = (ctypes.c_ulong * len(words))(*words)
    most = ctypes.c_ulong(len(mask) * _MASK_BITS + 1)  # the system counts one too few
    _call(
        *(0, ctypes.c_void_p(start), ctypes.c_ulong(size)),
        *(ctypes.c_int(INTERLEAVE_POLICY), mask, most, ctypes.c_uint(0)),
    )


def policy_of(address: int | None = None) -> tuple[int, tuple[int, ...]]:
    """Return (policy, its nodes) of this process, or of the page at an address. Raises OSError."""
    policy = ctypes.c_int(DEFAULT_POLICY)
    mask = (ctypes.c_ulong * (_MOST_NODES // _MASK_BITS))()
    flags = 0 if address is None else _WHERE_IT_LIES
    _call(
        *(1, ctypes.byref(policy), mask, ctypes.c_ulong(_MOST_NODES + 1)),
        *(ctypes.c_void_p(address), ctypes.c_ulong(flags)),
    )
    return policy.value, nodes_of(mask)


def words_of(nodes: Sequence[int]) -> tuple[int, ...]:
    """Return the words of a mask that holds these nodes, the lowest numbers in the first."""
    words = [0] * (max(nodes) // _MASK_BITS + 1)
    for node in nodes:
        words[node // _MASK_BITS] |= 1 << node % _MASK_BITS
    return tuple(words)


def nodes_of(words: Iterable[int]) -> tuple[int, ...]:
    """Return the nodes of a mask."""
    return tuple(
        index * _MASK_BITS + bit
        for index, word in enumerate(words)
        for bit in range(_MASK_BITS if word else 0)
        if word >> bit & 1
    )


def _call(which: int, *arguments: object) -> None:
    """Make one of `_CALLS`."""
    numbers = _CALLS.get(platform.machine()) if sys.platform == "linux" else None
    if numbers is None:
        raise OSError(0, "there is no such call on this system")
    library = ctypes.CDLL(None, use_errno=True)
    if library.syscall(ctypes.c_long(numbers[which]), *arguments) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def _is_node(text: str) -> bool:
    return text.isascii() and text.isdigit() and int(text) < _MOST_NODES


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""
