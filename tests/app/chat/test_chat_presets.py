"""Presets on disk and with the chat: saved, chosen, compared, never lost."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.services.presets import NAME_LENGTH, Preset, PresetStore
from engine.protocol.messages import Sampling
from tests.app.chat.fakes import FakeClient, make_vm

BRIEF = Preset("Brief", "Be brief.", Sampling(temperature=0.2, seed=7), "low")


def test_preset_when_saved_then_a_new_store_has_it(tmp_path) -> None:
    """By name, in alphabetical order, one of a name."""
    store = PresetStore(tmp_path / "presets.json")
    store.save(BRIEF)
    store.save(Preset("  another   one "))
    store.save(msgspec.structs.replace(BRIEF, system_prompt="Be very brief."))
    again = PresetStore(tmp_path / "presets.json")
    assert [preset.name for preset in again.presets] == ["another one", "Brief"]
    assert again.get("Brief").system_prompt == "Be very brief."
    assert again.get("Brief").sampling == BRIEF.sampling
    again.delete("Brief")
    again.delete("never there")
    assert [p.name for p in PresetStore(tmp_path / "presets.json").presets] == ["another one"]


@given(st.text(max_size=90))
def test_names_then_one_line_of_bounded_length_or_refused(name: str) -> None:
    """Whatever is typed; only an empty name is none."""
    store = PresetStore()
    if not name.split():
        with pytest.raises(ValueError, match="name"):
            store.save(Preset(name))
        return
    kept = store.save(Preset(name)).name
    assert store.get(kept) is not None
    assert len(kept) <= NAME_LENGTH
    assert "\n" not in kept


def test_file_when_damaged_then_it_is_kept_aside_and_said(tmp_path) -> None:
    """Nothing of a person's is overwritten because it cannot be read."""
    path = tmp_path / "presets.json"
    path.write_text("{ half")
    store = PresetStore(path)
    assert store.presets == ()
    assert "presets.json.damaged" in store.notices[0]
    store.save(BRIEF)
    assert (tmp_path / "presets.json.damaged").read_text() == "{ half"


def test_entry_when_damaged_then_only_that_one_is_missing(tmp_path) -> None:
    """A value out of range or of the wrong kind costs its preset only."""
    good = msgspec.to_builtins(BRIEF)
    bad = [3, {"name": ""}, {"name": "hot", "sampling": {"temperature": 99}}, {"name": ["x"]}]
    path = tmp_path / "presets.json"
    path.write_bytes(msgspec.json.encode({"version": 1, "presets": [*bad, good]}))
    assert PresetStore(path).presets == (BRIEF,)


def test_folder_when_it_refuses_then_said_and_kept_for_the_session(tmp_path) -> None:
    """A full or read-only disk loses nothing while the app runs."""
    (tmp_path / "file").write_text("")
    store, said = PresetStore(tmp_path / "file" / "presets.json"), []
    store.failed.connect(said.append)
    store.save(BRIEF)
    assert "could not be saved" in said[0]
    assert store.get("Brief") == BRIEF


@pytest.fixture
def vm(tmp_path, qapp):
    made = make_vm(tmp_path, FakeClient())
    yield made
    made.close()
    made.test_store.close()


def test_chat_when_a_preset_is_chosen_then_its_values_are_sent_and_stay(vm, tmp_path) -> None:
    """Prompt, sampling and reasoning; later changes of the preset leave the chat as it is."""
    presets = vm.presets
    presets._store.save(BRIEF)
    presets.choose("Brief")
    vm.send("q")
    messages, sampling, _ = vm.test_client.requests["reply-1"]
    assert messages[0].parts[0].text == "Be brief."
    assert (sampling.temperature, sampling.seed) == (0.2, 7)
    assert vm.test_client.template_args["reasoning_effort"] == "low"
    presets._store.save(msgspec.structs.replace(BRIEF, system_prompt="Other."))
    assert presets.is_changed
    assert vm.talk.chat.system_prompt == "Be brief."
    kept = vm.test_store.chat(vm.talk.chat.id)
    assert (kept.preset, kept.reasoning) == ("Brief", "low")
    presets.choose("")
    assert (presets.current, vm.talk.chat.system_prompt) == ("", "Be brief.")


def test_preset_when_deleted_then_its_chats_have_none(vm) -> None:
    """The name of a deleted preset is not shown as if it were there."""
    vm.presets._store.save(BRIEF)
    vm.presets.choose("Brief")
    vm.presets._store.delete("Brief")
    assert vm.presets.current == ""
    assert not vm.presets.is_changed
    vm.presets.save()  # nothing to save into
    assert vm.presets.names == ()
