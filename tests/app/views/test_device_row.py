"""The row that chooses the device of models."""

import pytest

from app.services.settings import SettingsStore
from app.viewmodels.device import DeviceViewModel
from app.views.device import DeviceRow
from app.widgets.look import use
from tests.app.accessible import nameless
from tests.app.walk import clipped, settle


@pytest.fixture
def row(loaded_client, qtbot, tmp_path):
    client = loaded_client("--cards", "2")
    vm = DeviceViewModel(client, SettingsStore(tmp_path / "settings.json"))
    vm.settings, vm.client = vm._settings, client
    made = DeviceRow(vm)
    made.vm = vm
    qtbot.addWidget(made)
    made.resize(560, 160)
    made.show()
    settle()
    return made


def items(row):
    return [row.combo.itemText(i) for i in range(row.combo.count())]


def test_row_when_shown_then_cards_and_the_one_in_use(row, qtbot):
    """Case M-20: which device serves is visible; so is what else there is."""
    assert items(row)[0] == "Automatic"
    assert items(row)[-1] == "CPU only"
    assert [text.partition(" · ")[0] for text in items(row)[1:-1]] == ["Fake Card 0", "Fake Card 1"]
    assert row.combo.currentIndex() == 0
    assert row.fact.text() == "The loaded model runs on Fake CPU."
    assert nameless(row) == []
    assert clipped(row) == []


def test_row_when_a_card_is_chosen_then_its_id_is_kept(row, qtbot):
    """Case M-20: and stays shown while the card is out of the machine."""
    row.combo.activated.emit(1)
    assert row.vm.settings.value.device == "GPU-f"
    assert row.combo.currentIndex() == 1
    row.vm.settings.set(device="GPU-gone")
    assert row.combo.currentText() == "A card that is not there"
    row.combo.activated.emit(row.combo.count() - 1)
    assert row.vm.settings.value.device == "cpu"
    assert "A card that is not there" not in items(row)
    use("dark", 1.0, "zh_CN", True)
    assert items(row)[0] == "自动"
    use("dark", 1.0, "en", True)
    with qtbot.waitSignal(row.vm.client.stopped, timeout=10_000):
        row.vm.client.stop()
    assert row.fact.text() == ""
