"""Write pictures of the first run: `python -m tests.app.first_run.pictures FOLDER`."""

import os
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")

from PySide6.QtWidgets import QApplication

from app.theme import theme
from app.viewmodels.session_words import silent_engine
from app.views.first_run import FirstRunView
from app.widgets.look import use
from engine.protocol import messages as m
from tests.app.first_run.stubs import BARE, GPU, STRONG, WEAK, World
from tests.app.performance.stubs import profile_bytes
from tests.app.pictures import grab


def fresh(world: World) -> None:
    """Nothing is known yet."""


def turn(world: World) -> None:
    """The measurement has its turn."""
    world.know(STRONG)
    world.ready(GPU)


def measuring(world: World) -> None:
    """It runs."""
    turn(world)
    world.vm.measure()
    step = m.Progress(id="", stage="measure", done_bytes=5, total_bytes=24, detail="bf16: copies")
    world.jobs.update("job-1", progress=step, eta_s=8.0)


def offers(world: World) -> None:
    """Measured, with models to choose from."""
    measuring(world)
    path = world.folder / "a.json"
    path.write_bytes(profile_bytes(fmt="fp8_block"))
    world.jobs.end("job-1", m.JobDone(job="profile", result={"paths": [str(path)]}))


def bare(world: World) -> None:
    """No card, little memory."""
    world.know(BARE)
    world.ready()
    world.vm.skip("measure")


def trouble(world: World) -> None:
    """Warnings everywhere, and an engine that does not answer."""
    world.know(WEAK)
    world.session.trouble = silent_engine()
    world.session.changed.emit()


SHOTS = {
    "fresh-dark": (("dark", 1.0, "en"), 1, (996, 712), fresh),
    "turn-dark": (("dark", 1.0, "en"), 1, (996, 712), turn),
    "measuring-light": (("light", 1.0, "en"), 1, (996, 712), measuring),
    "offers-dark": (("dark", 1.0, "en"), 1, (996, 712), offers),
    "offers-light-zh": (("light", 1.0, "zh_CN"), 1, (996, 712), offers),
    "offers-dark@2x": (("dark", 1.0, "en"), 2, (996, 712), offers),
    "bare-light": (("light", 1.0, "en"), 1, (996, 712), bare),
    "trouble-dark-zh": (("dark", 1.0, "zh_CN"), 1, (996, 712), trouble),
    "trouble-pseudo-840": (("light", 1.0, "pseudo"), 1, (840, 552), trouble),
}


def main(folder: Path) -> None:
    """Write them all."""
    app = QApplication.instance() or QApplication(sys.argv[:1])
    folder.mkdir(parents=True, exist_ok=True)
    theme()
    for name, (look, ratio, size, act) in SHOTS.items():
        use(*look)
        with tempfile.TemporaryDirectory() as home:
            world = World(Path(home))
            page = FirstRunView(world.vm)
            page.resize(*size)
            page.show()
            act(world)
            grab(page, ratio).save(str(folder / f"first-run-{name}.png"))
            page.close()
            page.deleteLater()
            app.processEvents()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
