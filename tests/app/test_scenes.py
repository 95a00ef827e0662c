"""The walk over every scene in each look: names, contrast, nothing cut, nothing on top of another.

Cases G-15, G-17, G-22. `python -m tests.app.pictures FOLDER` draws the same scenes for a person.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from PySide6.QtCore import QCoreApplication, QEvent
from PySide6.QtGui import QImage
from PySide6.QtWidgets import QPushButton, QWidget
from pytestqt.qtbot import QtBot

from app.theme import Mode, px, theme
from app.widgets.buttons import Button
from app.widgets.chips import TONES, Chip
from app.widgets.labels import Elide, Label
from app.widgets.layout import fixed, holder, vbox
from app.widgets.look import use
from app.wording import tr
from tests.app.pictures import main
from tests.app.scenes import DIALOG, SCENES, Scene, Stage
from tests.app.walk import (
    clipped,
    controls,
    described,
    faint,
    overlaps,
    pale,
    picture,
    settle,
    shortened,
    spoken_name,
)

# tone, zoom, language, device px per px; half of the pairings of tone, language and pixels each.
LOOKS: tuple[tuple[Mode, float, str, int], ...] = (
    ("dark", 1.0, "en", 1),
    ("light", 1.0, "zh_CN", 1),
    ("light", 1.0, "en", 2),
    ("dark", 1.0, "zh_CN", 2),
    ("dark", 1.6, "zh_CN", 1),
    ("light", 1.6, "en", 1),
    ("dark", 1.0, "pseudo", 1),
)


@pytest.fixture(params=SCENES, ids=lambda scene: scene.name)
def staged(
    request: pytest.FixtureRequest, looks: None, tmp_path: Path
) -> Iterator[tuple[Scene, Stage]]:
    """A scene, built once and then seen in every look, as when a person changes it."""
    scene: Scene = request.param
    stage = scene.build(tmp_path)
    theme().dress(stage.widget.window())
    stage.widget.show()
    yield scene, stage
    for end in stage.ends:
        end()
    stage.widget.deleteLater()
    QCoreApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete.value)


def test_scene_in_every_look_then_named_readable_and_whole(staged: tuple[Scene, Stage]) -> None:
    """What assistive tools hear, and what eyes can read."""
    scene, stage = staged
    widget, faults = stage.widget, []
    seen = stage.front or widget
    for look in LOOKS:
        use(*look[:3], True)
        if scene.size != DIALOG:
            widget.setMinimumSize(0, 0)
            widget.resize(*(px(n) for n in scene.size))
        settle()
        image = picture(seen, look[3])
        found = [f"nameless: {described(w)}" for w in controls(seen) if not spoken_name(w)]
        found += clipped(seen) + overlaps(seen) + pale(seen, image) + faint(seen, image)
        found += shortened(seen) if look[2] != "pseudo" else []
        faults += [f"{look}: {fault}" for fault in found]
    assert faults == []


def wrong_ink() -> QWidget:
    """A label in the colour of hairlines."""
    return Label("As good as not there", role="line")


def cut() -> QWidget:
    """A label in half the room of its words."""
    return fixed(Label("Words that need more room than they get"), width=60)


def nameless() -> QWidget:
    """A button of which nobody hears what it does."""
    return QPushButton()


def ellipsis() -> QWidget:
    """Our own words, shortened."""
    return fixed(Elide(tr("Restart with 10 % smaller cache")), width=70)


def painted_pale() -> QWidget:
    """A chip whose painted ink is nearly its ground."""
    chip = Chip("Faint")
    TONES["test"] = ("raised", "line", "")
    chip.set_text("Faint", "test")
    return chip


@pytest.mark.parametrize(
    ("part", "check"),
    [
        (wrong_ink, lambda w: pale(w, picture(w, 1))),
        (cut, clipped),
        (nameless, lambda w: [c for c in controls(w) if not spoken_name(c)]),
        (ellipsis, shortened),
        (painted_pale, lambda w: faint(w, picture(w, 2))),
    ],
    ids=["pale", "cut", "nameless", "shortened", "faint"],
)
def test_walk_when_a_part_is_wrong_then_found(
    qtbot: QtBot, looks: None, part: Callable[[], QWidget], check: Callable[[QWidget], list[object]]
) -> None:
    """The walk can fail: one fault beside a sound label and button, and none without it."""
    page = holder(vbox(Label("Sound"), Button("Sound"), None))
    qtbot.addWidget(page)
    page.resize(300, 200)
    page.show()
    settle()
    try:
        assert check(page) == []
        page.layout().addWidget(part())
        settle()
        assert len(check(page)) == 1
    finally:
        TONES.pop("test", None)


def test_walk_when_labels_lie_on_each_other_or_outside_then_found(
    qtbot: QtBot, looks: None
) -> None:
    """Also the part of a label that a scroll area does not show lies on nothing."""
    page = QWidget()
    qtbot.addWidget(page)
    page.resize(300, 200)
    first, second = Label("First"), Label("Second")
    for label in (first, second):
        label.setParent(page)
        label.show()
    page.show()
    first.move(10, 10)
    second.move(10, 100)
    settle()
    assert (overlaps(page), clipped(page)) == ([], [])
    second.move(20, 12)
    assert len(overlaps(page)) == 1
    second.move(280, 100)
    assert len(clipped(page)) == 1


def test_scenes_then_each_has_its_own_name_and_can_be_drawn(qtbot: QtBot, tmp_path: Path) -> None:
    """Pictures are named after scene and look."""
    names = [scene.name for scene in SCENES]
    assert len(set(names)) == len(names)
    main([str(tmp_path), "--looks", "dark,light-zh@2x", "server-small"])
    sizes = {path.name: QImage(str(path)).size().toTuple() for path in tmp_path.iterdir()}
    assert sizes == {
        "server-small.dark.png": (843, 552),
        "server-small.light-zh@2x.png": (2 * 843, 2 * 552),
    }
