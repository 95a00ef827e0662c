"""Write pictures of all scenes: `python -m tests.app.pictures FOLDER [PART ...] [--looks A,B]`.

Without parts every scene of `tests.app.scenes` is drawn, else those whose names contain one. Looks
are keys of `LOOKS`; the usual ones are dark and light in English and Chinese. To be looked at by a
person before each release.
"""

import argparse
import os
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")

from PySide6.QtCore import QCoreApplication, QEvent
from PySide6.QtWidgets import QApplication

from app.theme import Mode, px, theme
from app.widgets.look import use
from tests.app.scenes import DIALOG, SCENES, Scene
from tests.app.walk import picture, settle

Look = tuple[Mode, float, str, int]  # tone, zoom, language, device px per px
LOOKS: dict[str, Look] = {
    "dark": ("dark", 1.0, "en", 1),
    "light": ("light", 1.0, "en", 1),
    "dark-zh": ("dark", 1.0, "zh_CN", 1),
    "light-zh": ("light", 1.0, "zh_CN", 1),
    "dark@2x": ("dark", 1.0, "en", 2),
    "light-zh@2x": ("light", 1.0, "zh_CN", 2),
    "light-160": ("light", 1.6, "en", 1),
    "dark-pseudo": ("dark", 1.0, "pseudo", 1),
}
USUAL = "dark,light,dark-zh,light-zh"


def draw(scene: Scene, looks: dict[str, Look], folder: Path) -> None:
    """Write one scene in the looks, built once: what does not follow a change is seen."""
    use(*next(iter(looks.values()))[:3], True)
    with tempfile.TemporaryDirectory() as home:
        stage = scene.build(Path(home))
        theme().dress(stage.widget.window())
        stage.widget.show()
        for name, (*look, ratio) in looks.items():
            use(*look)
            if scene.size != DIALOG:
                stage.widget.setMinimumSize(0, 0)
                stage.widget.resize(*(px(n) for n in scene.size))
            settle()
            picture(stage.widget, ratio).save(str(folder / f"{scene.name}.{name}.png"))
        for end in stage.ends:
            end()
        stage.widget.deleteLater()
        QCoreApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete.value)


def main(arguments: list[str]) -> None:
    """Write what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("parts", nargs="*")
    parser.add_argument("--looks", default=USUAL, help=", ".join(LOOKS))
    asked = parser.parse_intermixed_args(arguments)
    _app = QApplication.instance() or QApplication(sys.argv[:1])
    asked.folder.mkdir(parents=True, exist_ok=True)
    theme()
    looks = {name: LOOKS[name] for name in asked.looks.split(",")}
    for scene in SCENES:
        if not asked.parts or any(part in scene.name for part in asked.parts):
            draw(scene, looks, asked.folder)


if __name__ == "__main__":
    main(sys.argv[1:])
