"""The rule of `app.wording`, held over the source of the whole app."""

import json
import re
from pathlib import Path

import pytest

from engine.protocol.places import resources_dir
from tests.app.wording.source import APP, bare_literals, faulty_keys, keys

FILES = sorted(APP.rglob("*.py"))
SHOWN = [file for file in FILES if file.parts[len(APP.parts)] in ("views", "widgets")]
CATALOGUE = json.loads((resources_dir() / "i18n" / "zh_CN.json").read_text("utf-8"))


@pytest.mark.parametrize("file", SHOWN, ids=lambda file: str(file.relative_to(APP)))
def test_words_in_views_and_widgets_then_they_go_through_tr(file: Path) -> None:
    """No text is handed to a person in English only."""
    assert not [str(use) for use in bare_literals([file])]


def test_keys_then_they_are_literals_with_all_values() -> None:
    """A key that is put together at run time is in no catalogue."""
    assert not [str(use) for use in faulty_keys(FILES)]


def test_catalogue_then_it_knows_every_key() -> None:
    """Simplified Chinese is complete; what is missing is listed."""
    missing = [str(use) for use in keys(FILES) if use.text not in CATALOGUE]
    assert not missing, "\n".join(missing)


def test_catalogue_then_placeholders_are_those_of_the_key() -> None:
    """A translation that lost a value would fail when it is shown."""
    for key, text in CATALOGUE.items():
        wanted = sorted(re.findall(r"\{\w+\}", key))
        assert sorted(re.findall(r"\{\w+\}", text)) == wanted, key


def test_scan_when_literals_bypass_tr_then_they_are_found(tmp_path: Path) -> None:
    """The guard itself: each way of handing over words is seen, names and units are not."""
    probe = tmp_path / "probe.py"
    probe.write_text(
        'x.setToolTip("Close it")\n'
        'Button(f"Save {n} files", name="GiB")\n'
        'Label("a b" if a else "Open")\n'
        'tr(f"no {key}")\n'
        'tr("{a} of {b}", a=1)\n'
    )
    assert {use.text for use in bare_literals([probe])} == {"Close it", "Save ", " files", "Open"}
    assert [use.line for use in faulty_keys([probe])] == [4, 5]
