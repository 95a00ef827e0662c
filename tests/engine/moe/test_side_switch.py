"""Which side pays: made-up machines, whose steps take what they take."""

from hypothesis import given, settings
from hypothesis import strategies as st

from engine.moe.side_switch import WAYS, SideSwitch, SwitchRules
from engine.protocol.messages import MissPolicy

RULES = SwitchRules(trial_steps=4, settle_steps=1, first_serve_steps=20, most_serve_steps=80)
SECONDS = st.floats(0.001, 0.1)


def run(switch: SideSwitch, seconds: dict[MissPolicy, float], steps: int) -> list[MissPolicy]:
    """Let a machine decode; returns the way of each step."""
    ways = []
    for _ in range(steps):
        ways.append(switch.way)
        switch.step(seconds[switch.way])
    return ways


@settings(max_examples=300, deadline=None)
@given(st.tuples(SECONDS, SECONDS, SECONDS))
def test_steps_whatever_the_machine_end_near_the_best_way(figures):
    """A side that costs more than it serves is switched off (cases of 8x slower hybrids)."""
    seconds = dict(zip(WAYS, figures, strict=True))
    switch = SideSwitch(RULES)
    run(switch, seconds, 2000)
    assert seconds[switch.served] <= min(figures) / RULES.gain * (1 + 1e-9)


@settings(max_examples=100, deadline=None)
@given(st.tuples(SECONDS, SECONDS, SECONDS))
def test_trials_whatever_the_machine_stay_rare(figures):
    """Looking for a better way may not cost what it could win."""
    seconds = dict(zip(WAYS, figures, strict=True))
    switch = SideSwitch(RULES)
    run(switch, seconds, 1000)
    served, ways = switch.served, run(switch, seconds, 1000)
    lost = sum(way is not served for way in ways)
    assert lost <= 1000 / RULES.most_serve_steps * (RULES.trial_steps + RULES.settle_steps) + 5


def test_trial_when_hardly_faster_then_nothing_changes():
    """Noise does not make the way flip to and fro."""
    switch = SideSwitch(RULES)
    ways = run(switch, {WAYS[0]: 0.0100, WAYS[1]: 0.0097, WAYS[2]: 0.0098}, 500)
    assert switch.served is MissPolicy.TWO_ENDED
    assert set(ways) == set(WAYS)


def test_step_when_it_was_a_pause_then_it_does_not_count():
    """A person who thinks for a minute is no slow step."""
    switch = SideSwitch(RULES)
    for _ in range(19):
        switch.step(0.01)
    for _ in range(50):
        switch.step(60.0)
    assert switch.way is MissPolicy.TWO_ENDED
    switch.step(0.01)
    assert switch.way is MissPolicy.FILL_ONLY


def test_way_when_the_machine_changes_then_it_follows():
    """A laptop goes on battery: the CPU becomes slow, the link alone wins; and back again."""
    switch = SideSwitch(RULES)
    run(switch, {WAYS[0]: 0.02, WAYS[1]: 0.01, WAYS[2]: 0.05}, 300)
    assert switch.served is MissPolicy.FILL_ONLY
    run(switch, {WAYS[0]: 0.005, WAYS[1]: 0.01, WAYS[2]: 0.05}, 300)
    assert switch.served is MissPolicy.TWO_ENDED


def test_trial_when_the_number_of_rows_changes_then_it_gives_no_verdict():
    """A step of two rows is slower whoever serves it: that says nothing about a side."""
    switch = SideSwitch(RULES)
    for _ in range(20):
        switch.step(0.01)
    assert switch.way is MissPolicy.FILL_ONLY  # would lose: it takes longer than both sides
    for _ in range(200):  # a second row comes and goes
        for rows in ((2,), (1,)):
            switch.step({1: 0.0101, 2: 0.02}[rows[0]], rows)
            assert switch.way is MissPolicy.TWO_ENDED
    assert switch.served is MissPolicy.TWO_ENDED


@settings(max_examples=200, deadline=None)
@given(
    st.tuples(SECONDS, SECONDS, SECONDS),
    st.lists(st.tuples(st.integers(1, 8), st.integers(1, 40)), min_size=1, max_size=40),
)
def test_verdicts_whatever_rows_come_and_go_are_those_of_equal_rows(figures, spans):
    """A row makes every way slower alike; the way changes only if one is faster row for row."""
    seconds = dict(zip(WAYS, figures, strict=True))
    switch = SideSwitch(RULES)
    for rows, steps in spans:
        for _ in range(steps):
            before = switch.served
            switch.step(seconds[switch.way] * rows / 10, (rows,))
            if switch.served is not before:
                assert seconds[switch.served] <= RULES.gain * seconds[before] * (1 + 1e-9)


def test_steps_after_a_change_of_rows_are_timed_once_the_one_before_is_over():
    """A step is launched while the last one runs, so that the first times mix both."""
    switch = SideSwitch(RULES)
    for _ in range(19):
        switch.step(0.01)
    switch.step(0.001, (4,))  # the time of a step of one row
    for _ in range(RULES.trial_steps):
        assert switch.way is MissPolicy.TWO_ENDED
        switch.step(0.05, (4,))
    assert switch.way is MissPolicy.FILL_ONLY
    for _ in range(RULES.trial_steps + RULES.settle_steps):
        switch.step(0.04, (4,))
    assert switch.served is MissPolicy.FILL_ONLY
