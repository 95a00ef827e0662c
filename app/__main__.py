"""`python -m app`: arguments, the things that belong to a process, and the event loop."""

import argparse
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QMessageBox

from app.application import PAGES, make_application
from app.services.diagnostics import Diagnostics
from app.services.display import display_problem
from app.services.handing_over import Request, activation_token, let_others_forward
from app.services.interrupts import Interrupts
from app.services.log_ring import LogRing
from app.services.settings import Environment, read_environment, stored_language
from app.services.single_instance import Place, SingleInstance
from app.services.tidy import Collector
from app.wording import tr
from app.wording.language import use_language

NO_DISPLAY = 78
TAKEN = 75


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m app", description="FreeToken Desktop")
    parser.add_argument("file", nargs="?", default="", help="a model.ftw to load")
    parser.add_argument("--page", default="", choices=("", *PAGES), help="page to begin with")
    parser.add_argument("--home", default="", help="data root instead of the usual one")
    parser.add_argument(
        "--smoke",
        default="",
        metavar="DIR",
        help="run every part once, write pictures and smoke.json into DIR, and exit",
    )
    return parser.parse_args(arguments)


def run_desktop(environment: Environment, page: str, file: str = "") -> int:
    """Show the app until it is closed; `file` is a model to load. Returns the exit code."""
    request = Request(page, file, activation_token())
    app = make_application(offscreen=False)
    instance = SingleInstance(environment.root.root)
    let_others_forward()
    place = instance.take_place(request)
    if place is not Place.FIRST:
        return 0 if place is Place.HANDED_OVER else tell_taken(environment, instance)
    ring = LogRing()
    diagnostics = Diagnostics(ring, environment.root.logs)
    collector, interrupts = Collector(), Interrupts()
    # Qt is up and the log is open: what takes long to import can be reported now.
    from app.main import Desktop
    from app.warm_up import WarmUp

    desktop = Desktop(environment, ring)
    instance.asked.connect(desktop.raise_window)
    instance.opened.connect(desktop.open_model)
    desktop.begun.connect(instance.answer)
    desktop.closing.begun.connect(instance.stop_listening)
    interrupts.asked.connect(desktop.quit)
    desktop.finished.connect(app.quit)
    rest = desktop.pages.rest(desktop.window.prepare)
    warm_up = WarmUp(desktop.window, rest, desktop.is_busy)
    desktop.begun.connect(warm_up.begin)
    if file:
        desktop.begun.connect(lambda: desktop.open_model(file))
    elif not page:
        desktop.greet()
    desktop.show(page)
    code = app.exec()
    instance.close()
    interrupts.close()
    collector.close()
    diagnostics.close()
    return code


def tell_taken(environment: Environment, instance: SingleInstance) -> int:
    """Say that another app has the data root and does not answer. Returns the exit code."""
    use_language(stored_language(environment.root.settings_file))
    process, host = instance.holder()
    folder, number = environment.root.root, process or "?"
    if host:
        sentence = tr(
            "FreeToken Desktop is running already over the data folder {folder}, on the computer "
            "{host} (process {number}). Close it there first.",
            folder=folder,
            host=host,
            number=number,
        )
    else:
        sentence = tr(
            "FreeToken Desktop is running already over the data folder {folder} (process "
            "{number}) and does not answer. Wait a moment and start it again, or end that process.",
            folder=folder,
            number=number,
        )
    if sys.stderr is not None:  # a program without a console on Windows has none
        sys.stderr.write(sentence + "\n")
    if QGuiApplication.platformName() not in ("offscreen", "minimal"):  # nobody would see it
        QMessageBox.critical(None, tr("FreeToken Desktop"), sentence)
    return TAKEN


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program. Returns the exit code."""
    options = parse(sys.argv[1:] if arguments is None else arguments)
    if options.smoke:
        from app.smoke import run_smoke  # not needed by anybody else

        home = options.home or str(Path(options.smoke).absolute() / "home")
        return run_smoke(read_environment(home), options.smoke)
    environment = read_environment(options.home)
    problem = display_problem(environment)
    if problem:
        sys.stderr.write(problem + "\n")
        return NO_DISPLAY
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # until the window can answer
    file = str(Path(options.file).absolute()) if options.file else ""
    return run_desktop(environment, options.page, file)


if __name__ == "__main__":
    sys.exit(main())
