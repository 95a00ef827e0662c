"""What belongs to the whole window: its rail and strip, the band of trouble, toasts, help."""

from collections.abc import Callable
from pathlib import Path

from PySide6.QtWidgets import QWidget

from app.services.gpu_meter import MeterReading
from app.services.outcome import ProcessOutcome
from app.viewmodels.session_words import lost_engine, refused_load, silent_engine, stuck_engine
from app.views.help_dialog import HelpDialog
from app.widgets.charts.series import Table
from app.widgets.charts.table import ValuesDialog
from app.wording import tr
from engine.protocol import messages as m
from engine.protocol.errors import ErrorCode
from tests.app.component_sheet import component_sheet
from tests.app.faces import Faces, make_faces
from tests.app.scenes.chats import ENDS
from tests.app.scenes.stage import DIALOG, Scene, Stage

WHOLE, LEAST = (1180, 760), (900, 600)
OFTEN = ProcessOutcome(True, "It crashed.", "a log line " * 30, signal=11)
TROUBLES = {
    "memory": lost_engine(ENDS["memory"].explained(), False),
    "crash": lost_engine(ENDS["crash"], False),
    "often": lost_engine(OFTEN, True),
    "missing": lost_engine(ENDS["missing"], False),
    "silent": silent_engine(m.EngineState.GENERATING),
    "stuck": stuck_engine(120),
    "load": refused_load(
        m.Error(
            code=ErrorCode.BUDGET,
            message="The model needs 162 GiB of memory, 96 GiB are there.",
            hint="Choose a smaller model.",
        )
    ),
}


def window(act: Callable[[Faces], object], page: str = "logs") -> Callable[[Path], Stage]:
    """A scene of the window with a page in front."""

    def build(folder: Path) -> Stage:
        faces = make_faces(folder)
        faces.window.show_page(page)
        faces.window.show()
        act(faces)
        faces.session.changed.emit()
        faces.session.meters_changed.emit()
        return Stage(faces.window, [faces], [faces.window.close])

    return build


def generating(faces: Faces) -> None:
    """As the sample session says."""
    faces.window.set_context(18_400, 512 * 1024)


def off(faces: Faces) -> None:
    session = faces.session
    session.state, session.model_name, session.quant = m.EngineState.IDLE, "", ""
    session.status, session.can_stop, session.tok_s = None, False, 0.0


def loading(faces: Faces) -> None:
    off(faces)
    session = faces.session
    session.state, session.state_detail, session.share = m.EngineState.LOADING, "Loading 43 %", 0.43
    session.model_name, session.quant = "Another-MoE-Model-With-A-Long-Name-FP8", "MXFP4"


def yielded(faces: Faces) -> None:
    faces.window.set_yielded(True)


def graphics_card(faces: Faces) -> None:
    """The driver's meters, while there is no engine."""
    gib = 1 << 30
    faces.session.reading = MeterReading(
        158 * gib, 192 * gib, "NVIDIA GeForce RTX 5090", 29 * gib, 32 * gib, 61
    )
    faces.session.status = None


def trouble(kind: str) -> Callable[[Faces], object]:
    """The band below the strip."""

    def act(faces: Faces) -> None:
        off(faces)
        faces.session.trouble = TROUBLES[kind]

    return act


def notes(faces: Faces) -> None:
    """Two toasts, one with a button."""
    words = tr("Takes effect when the engine is restarted: {name}", name=tr("CPU threads"))
    faces.window.toast(words, "info", tr("Restart the engine"), lambda: None)
    faces.window.toast(tr("Deleted {name}, {size} freed.", name="a-model", size="63 GB"), "ok")


def badge(faces: Faces) -> None:
    faces.window.set_badge("models", "60 %")


def dialog(make: Callable[[], QWidget]) -> Callable[[Path], Stage]:
    """A dialog of the window."""

    def build(_folder: Path) -> Stage:
        made = make()
        return Stage(made, [], [made.close])

    return build


def values() -> QWidget:
    """A chart, read as a table."""
    rows = [("64 KiB", "18.1", "17.7"), ("1 MiB", "40.2", "39.3"), ("64 MiB", "49.6", "48.3")]
    heads = (str(tr("Size")), f"{tr('to GPU')} (GB/s)", f"{tr('with CPU')} (GB/s)")
    return ValuesDialog(Table(tr("Copies"), heads, rows))


WINDOW = (
    Scene("window-generating", window(generating), WHOLE),
    Scene("window-generating-small", window(generating), LEAST),
    Scene("window-off", window(off, "server"), WHOLE),
    Scene("window-loading", window(loading, "settings"), WHOLE),
    Scene("window-loading-small", window(loading, "settings"), LEAST),
    Scene("window-yielded", window(yielded), WHOLE),
    Scene("window-graphics-card", window(graphics_card), WHOLE),
    Scene("window-badge", window(badge), WHOLE),
    Scene("window-notes", window(notes, "settings"), WHOLE),
    Scene("window-notes-small", window(notes, "settings"), LEAST),
    *(Scene(f"window-{kind}", window(trouble(kind)), WHOLE) for kind in TROUBLES),
    *(Scene(f"window-{kind}-small", window(trouble(kind)), LEAST) for kind in TROUBLES),
    Scene("dialog-help", dialog(HelpDialog), DIALOG),
    Scene("dialog-values", dialog(values), DIALOG),
    Scene("components", dialog(component_sheet), DIALOG),
)
