"""Which CPUs the pool takes, on machines that exist and on machines that do not."""

import os
import struct
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels.cpu.topology import (
    Cpu,
    CpuChoice,
    Machine,
    choose,
    default_cpus,
    linux_cpus,
    read_machine,
    read_quota,
    windows_cpus,
)


@st.composite
def machines(draw):
    """Cores of one or two CPUs, of one to three speeds, numbered in any order, some not allowed."""
    speeds = draw(st.lists(st.sampled_from((0, 400, 700, 1024)), min_size=1, max_size=20))
    sizes = [draw(st.integers(1, 2)) for _ in speeds]
    numbers = iter(draw(st.permutations(range(sum(sizes)))))
    cpus = [
        Cpu(next(numbers), core, speed)
        for core, (speed, size) in enumerate(zip(speeds, sizes, strict=True))
        for _ in range(size)
    ]
    allowed = draw(st.lists(st.sampled_from(cpus), min_size=1, unique=True))
    return Machine(tuple(allowed), draw(st.none() | st.floats(0.1, 50)))


def _cores(machine, numbers):
    cores = {cpu.number: cpu.core for cpu in machine.cpus}
    return [cores[number] for number in numbers]


@given(machines())
def test_choose_when_nothing_is_wished_takes_one_cpu_a_core_and_leaves_some(machine):
    """Distinct allowed CPUs of distinct cores; two stay free of more than three, else one."""
    choice = choose(machine)
    assert len(set(choice.cpus)) == len(choice.cpus) >= 1
    assert set(choice.cpus) <= {cpu.number for cpu in machine.cpus}
    assert len(set(_cores(machine, choice.cpus))) == len(choice.cpus)
    total = len(machine.cpus) if machine.quota is None else machine.quota
    total = max(1, min(len(machine.cpus), int(total)))
    assert total - len(choice.cpus) >= (2 if total > 3 else 1 if total > 1 else 0)


@given(machines(), st.integers(1, 50))
def test_choose_when_a_number_is_wished_keeps_to_it_and_to_the_order(machine, number):
    """More threads only add CPUs; second CPUs of a core come after every core has one."""
    choice = choose(machine, number)
    assert len(choice.cpus) == min(number, len(machine.cpus))
    assert choose(machine, number + 1).cpus[: len(choice.cpus)] == choice.cpus
    cores = _cores(machine, choice.cpus)
    distinct = len({cpu.core for cpu in machine.cpus})
    assert len(set(cores[:distinct])) == min(number, distinct)


@given(machines())
def test_choose_when_cores_differ_in_speed_takes_fast_ones_first(machine):
    """Within the first CPUs of all cores no slow one comes before a fast one."""
    distinct = len({cpu.core for cpu in machine.cpus})
    speeds = {cpu.number: cpu.speed for cpu in machine.cpus}
    fastest = max(speeds.values())
    slow = [speeds[n] < 0.8 * fastest for n in choose(machine, distinct).cpus]
    assert slow == sorted(slow)


@given(machines())
def test_choose_when_a_quota_holds_pins_nothing(machine):
    """The system stops threads of a group that has used its time up."""
    limited = machine.quota is not None and machine.quota < len(machine.cpus)
    assert choose(machine).pin != limited


def _hybrid(fast, slow):
    """Fast cores of two CPUs, then slow cores of one: the numbers of Intel's desktop parts."""
    cpus = [Cpu(2 * core + half, core, 5700) for core in range(fast) for half in range(2)]
    return Machine((*cpus, *(Cpu(2 * fast + i, fast + i, 4200) for i in range(slow))))


@pytest.mark.parametrize(
    ("machine", "wanted"),
    [
        (_hybrid(8, 16), (14, 12, 10, 8, 6, 4, 2, 0)),
        (_hybrid(2, 4), (2, 0, 7, 6, 5, 4)),
        (_hybrid(8, 0), (14, 12, 10, 8, 6, 4, 2, 0)),
        (Machine(tuple(Cpu(n, n) for n in range(16))), tuple(range(15, 1, -1))),
        (Machine(tuple(Cpu(n, n) for n in range(16)), quota=6.5), (15, 14, 13, 12)),
        (Machine(tuple(Cpu(n, n) for n in range(3))), (2, 1)),
        (Machine((Cpu(5, 5),)), (5,)),
    ],
)
def test_choose_when_the_machine_is_known_takes_these(machine, wanted):
    """Enough fast cores: no slow one. Too few: all cores. A server, a container, tiny ones."""
    assert choose(machine).cpus == wanted


@pytest.mark.parametrize("nodes", [2, 4])
@pytest.mark.parametrize("number", [None, 1, 16, 10_000])
def test_choose_when_there_are_several_nodes_then_threads_lie_on_cpus_that_exist(nodes, number):
    """Case E-14: 2 or 4 sockets, of which the system lets us use some, and any wish."""
    cpus = [
        Cpu(node * 64 + half * 16 + core, node * 64 + core)
        for node in range(nodes)
        for half in range(2)
        for core in range(16)
        if node != 1 or core < 3
    ]
    choice = choose(Machine(tuple(cpus)), number)
    assert 1 <= len(choice.cpus) <= len(cpus)
    assert set(choice.cpus) <= {cpu.number for cpu in cpus}
    assert len(choice.cpus) == min(number or len(choice.cpus), len(cpus))


@pytest.mark.linux
@pytest.mark.skipif(sys.platform != "linux", reason="sets an affinity mask")
def test_default_when_the_process_is_held_to_cpus_then_nothing_else_is_taken():
    """Case E-08: started under a mask, the engine counts and takes only what is in it."""
    held = max(os.sched_getaffinity(0))
    code = (
        f"import os; os.sched_setaffinity(0, {{{held}}})\n"
        "from engine.system import usable_cores\n"
        "from kernels.cpu.topology import default_cpus\n"
        "print(usable_cores(), default_cpus().cpus, default_cpus(8).cpus)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == f"1 ({held},) ({held},)"


def test_choose_when_it_cannot_says_so():
    """No CPU, no thread."""
    with pytest.raises(ValueError, match="no CPU"):
        choose(Machine(()))
    with pytest.raises(ValueError, match="0 threads"):
        choose(Machine((Cpu(0, 0),)), 0)


def test_linux_when_files_tell_cores_and_capacity_reads_them(tmp_path):
    """Siblings as a list or a range; capacity before frequency; what is missing is unknown."""
    for number, siblings, speed in ((0, "0,2", ""), (1, "1-3", "1024"), (2, "0,2", "")):
        topology = tmp_path / f"cpu{number}" / "topology"
        topology.mkdir(parents=True)
        (topology / "thread_siblings_list").write_text(siblings + "\n")
        if speed:
            (topology.parent / "cpu_capacity").write_text(speed + "\n")
    (tmp_path / "cpu2" / "cpufreq").mkdir()
    (tmp_path / "cpu2" / "cpufreq" / "cpuinfo_max_freq").write_text("4200000\n")
    cpus = linux_cpus(tmp_path, [0, 1, 2, 9])
    assert cpus == (Cpu(0, 0), Cpu(1, 1, 1024), Cpu(2, 0, 4200000), Cpu(9, 9))


def _write(folder, **files):
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)


def test_quota_when_groups_are_nested_is_the_tightest(tmp_path):
    """Version 2: every group above counts; "max" is none."""
    membership, root = tmp_path / "cgroup", tmp_path / "fs"
    membership.write_text("0::/outer/inner\n")
    assert read_quota(membership, root) is None
    _write(root / "outer" / "inner", cpu__max="max 100000\n")
    assert read_quota(membership, root) is None
    _write(root / "outer", cpu__max="250000 100000\n")
    assert read_quota(membership, root) == 2.5
    _write(root, cpu__max="150000 100000\n")
    assert read_quota(membership, root) == 1.5


def test_quota_when_the_group_is_of_version_1_is_read(tmp_path):
    """A container sees its own group at the top of the mount, under a path that is not there."""
    membership, root = tmp_path / "cgroup", tmp_path / "fs"
    membership.write_text("4:memory:/docker/abc\n3:cpu,cpuacct:/docker/abc\n1:name=systemd:/\n")
    _write(root / "cpu", cpu__cfs_quota_us="-1\n", cpu__cfs_period_us="100000\n")
    assert read_quota(membership, root) is None
    _write(root / "cpu", cpu__cfs_quota_us="300000\n", cpu__cfs_period_us="100000\n")
    assert read_quota(membership, root) == 3.0
    assert read_quota(tmp_path / "none", root) is None


def _core(efficiency_class, *groups, relation=0):
    masks = b"".join(struct.pack("<QH6x", mask, group) for group, mask in groups)
    size = 32 + len(masks)
    head = struct.pack("<IIBB20xH", relation, size, 1, efficiency_class, len(groups))
    return head + masks


def test_windows_when_cores_are_listed_reads_groups_classes_and_affinity():
    """Two fast cores of two CPUs, a slow one, one in the second group; a package is passed over."""
    package = _core(0, (0, 0b11111), relation=3)
    cores = _core(1, (0, 0b11)), _core(1, (0, 0b1100)), _core(0, (0, 0b10000)), _core(1, (1, 1))
    facts = package + b"".join(cores)
    every = windows_cpus(facts)
    assert [(c.number, c.core, c.speed) for c in every] == [
        (0, 0, 2),
        (1, 0, 2),
        (2, 2, 2),
        (3, 2, 2),
        (4, 4, 1),
        (64, 64, 2),
    ]
    assert [c.number for c in windows_cpus(facts, allowed=0b10110)] == [1, 2, 4]
    assert windows_cpus(b"") == ()


def test_default_when_asked_on_this_machine_is_within_it():
    """Whatever the machine: at least one CPU that may be used."""
    choice = default_cpus()
    assert isinstance(choice, CpuChoice)
    assert set(choice.cpus) <= {cpu.number for cpu in read_machine().cpus}
    assert choice.cpus
