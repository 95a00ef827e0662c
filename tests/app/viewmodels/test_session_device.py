"""The session and devices: a card where there is one, and never the CPU without a word."""

import pytest

from tests.app.viewmodels.test_session import World, start, world, write_ftw

__all__ = ["world"]


def loaded_on(one: World) -> str:
    return one.client.model.devices[0]


def test_load_when_there_are_cards_then_the_largest_serves(qtbot, world):
    """Case M-20; the status says which."""
    one = world("--cards", "2")
    one.add_builtin()
    start(qtbot, one)
    assert loaded_on(one) == "cuda:1"
    assert one.client.last_status.devices[0].device.title == "Fake Card 1"
    assert not one.client.last_status.devices[0].device.emulated


@pytest.mark.parametrize(("wish", "name"), [("cpu", "cpu"), ("GPU-f", "cuda:0")])
def test_load_when_a_device_is_chosen_then_that_one_also_after_a_restart(qtbot, world, wish, name):
    """Case M-20: by stable id; cases E-11 and E-13: the CPU is a choice like any other."""
    one = world("--cards", "2")
    one.add_builtin()
    one.settings.set(device=wish)
    start(qtbot, one)
    assert loaded_on(one) == name
    with qtbot.waitSignal(one.client.loaded, timeout=10_000):
        one.session.restart_engine()
    assert loaded_on(one) == name


@pytest.mark.parametrize("code", ["device", "internal", "budget"])
def test_load_when_the_card_cannot_then_on_the_cpu_and_said(qtbot, world, code):
    """Case M-18: never on the CPU without saying so."""
    one = world("--cards", "1", "--card-error", code)
    one.add_builtin()
    said = []
    one.session.notice.connect(lambda sentence, tone: said.append((sentence, tone)))
    start(qtbot, one)
    assert loaded_on(one) == "cpu"
    assert one.session.trouble is None
    ((sentence, tone),) = said
    assert sentence.startswith("Fake Card 0 cannot take the model, so it runs on the CPU.")
    assert tone == "warn"
    with qtbot.waitSignal(one.client.loaded, timeout=10_000):
        one.session.load(write_ftw(one.root.models / "other"))
    assert len(said) == (2 if code == "budget" else 1), "a broken card is tried once"


def test_load_when_the_chosen_card_cannot_then_the_person_decides(qtbot, world):
    """Case M-18: who chose the card is not given something else."""
    one = world("--cards", "1", "--card-error", "device")
    one.add_builtin()
    one.settings.set(device="GPU-f")
    with qtbot.waitSignal(one.client.failed, timeout=10_000):
        one.session.start()
    assert one.client.model is None
    assert one.session.trouble.kind == "load"
    assert one.session.trouble.can_restart


def test_load_when_the_card_served_before_then_not_given_up(qtbot, world):
    """Case M-18: a card that a sleep took away is a lost card, not a reason to compute slowly."""
    one = world("--cards", "1")
    one.add_builtin()
    start(qtbot, one)
    assert loaded_on(one) == "cuda:0"
    program = one.process.program
    one.process.program = type(program)(
        program.path, (*program.arguments, "--card-error", "device")
    )
    with qtbot.waitSignal(one.client.failed, timeout=10_000):
        one.session.restart_engine()
    assert one.client.model is None
    assert one.session.trouble.kind == "load"


def test_split_when_chosen_on_another_device_then_not_taken_over(qtbot, world):
    """Slots of a CPU say nothing about a card."""
    one = world("--cards", "1")
    one.add_builtin()
    one.settings.set(device="cpu")
    start(qtbot, one)
    with qtbot.waitSignal(one.client.resize_applied):
        one.client.resize(expert_slots=11)
    assert one.settings.profile("tiny").expert_slots == 11
    one.settings.set(device="")
    with qtbot.waitSignal(one.client.loaded, timeout=10_000):
        one.session.restart_engine()
    assert loaded_on(one) == "cuda:0"
    assert one.session._loader.chosen_slots != 11
    one.settings.set(device="cpu")
    with qtbot.waitSignal(one.client.loaded, timeout=10_000):
        one.session.restart_engine()
    assert one.session._loader.chosen_slots == 11


def test_load_when_the_card_kills_the_engine_then_the_next_one_takes_the_cpu(qtbot, world):
    """Case M-18: a driver that dies with the process must not die again at each start."""
    one = world("--cards", "1", "--card-crash")
    one.add_builtin()
    said = []
    one.session.notice.connect(lambda sentence, tone: said.append(sentence))
    with qtbot.waitSignal(one.client.stopped, timeout=10_000):
        one.session.start()
    with qtbot.waitSignal(one.client.loaded, timeout=10_000):
        one.session.restart_engine()
    assert loaded_on(one) == "cpu"
    assert [sentence for sentence in said if sentence.startswith("The engine stopped while")] == [
        "The engine stopped while Fake Card 0 took the model, so another device takes it."
    ]


def test_load_when_a_model_is_too_large_for_a_card_that_served_then_on_the_cpu(qtbot, world):
    """The same model on the same machine, whatever was loaded before it."""
    one = world("--cards", "1")
    one.add_builtin()
    start(qtbot, one)
    program = one.process.program
    one.process.program = type(program)(
        program.path, (*program.arguments, "--card-error", "budget")
    )
    with qtbot.waitSignal(one.client.loaded, timeout=10_000):
        one.session.restart_engine()
    assert loaded_on(one) == "cpu"


def test_split_when_the_card_gave_way_then_the_one_of_the_cpu_counts(qtbot, world):
    """What was chosen for the CPU is no wish for the card, and stays one for the CPU."""
    one = world("--cards", "1", "--card-error", "device")
    one.add_builtin()
    one.settings.set_profile("tiny", expert_slots=11, device="cpu")
    start(qtbot, one)
    assert loaded_on(one) == "cpu"
    assert one.session._loader.chosen_slots == 11
