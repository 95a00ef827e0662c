"""Scenes for the tests of pages."""

from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from app.theme import px
from tests.app.scenes import SCENES, Stage
from tests.app.walk import settle


@pytest.fixture
def scene(qtbot: QtBot, tmp_path: Path):
    """Build a scene by its name, at its size."""
    stages: list[Stage] = []

    def build(name: str) -> Stage:
        found = next(scene for scene in SCENES if scene.name == name)
        stage = found.build(tmp_path)
        stages.append(stage)
        stage.widget.resize(*(px(n) for n in found.size))
        stage.widget.show()
        settle()
        return stage

    yield build
    for stage in stages:
        for end in stage.ends:
            end()
        stage.widget.deleteLater()
