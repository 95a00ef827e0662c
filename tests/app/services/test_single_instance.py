"""One app per data root."""

from app.services.single_instance import SingleInstance


def test_second_start_then_first_is_asked_to_show_itself(qtbot, tmp_path):
    """The second one hands over its page and ends: there is one app, and one engine (case A-17)."""
    first = SingleInstance(tmp_path / "Zoë 空")
    assert first.claim()
    second = SingleInstance(tmp_path / "Zoë 空")
    assert not second.claim()
    with qtbot.waitSignal(first.asked) as told:
        assert second.hand_over("models")
    assert told.args == ["models"]
    first.close()


def test_second_start_with_a_file_then_first_opens_it(qtbot, tmp_path):
    """A double click on a model while the app runs; any name of a file comes through."""
    first = SingleInstance(tmp_path)
    assert first.claim()
    name = str(tmp_path / "Zoë 空\n open:" / "model.ftw")
    with qtbot.waitSignal(first.opened) as told:
        assert SingleInstance(tmp_path).hand_over("", name)
    assert told.args == [name]
    first.close()


def test_other_data_root_then_both_run(qtbot, tmp_path):
    """Two data roots are two apps."""
    first, second = SingleInstance(tmp_path / "a"), SingleInstance(tmp_path / "b")
    assert first.claim()
    assert second.claim()
    first.close()
    second.close()


def test_after_close_then_next_start_is_first(qtbot, tmp_path):
    """Nothing is left behind."""
    first = SingleInstance(tmp_path)
    assert first.claim()
    first.close()
    second = SingleInstance(tmp_path)
    assert second.claim()
    second.close()


def test_hand_over_when_nobody_listens_then_false(qtbot, tmp_path):
    """A dead first app is noticed, not waited for."""
    assert not SingleInstance(tmp_path).hand_over()


def test_claim_when_folder_cannot_be_made_then_first(qtbot, tmp_path):
    """A read-only place does not stop the app here; other parts say what is wrong."""
    (tmp_path / "file").write_text("")
    assert SingleInstance(tmp_path / "file" / "root").claim()
