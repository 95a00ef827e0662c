"""`python -m app`: arguments, the things that belong to a process, and the event loop."""

import argparse
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from app.application import PAGES, make_application
from app.services.diagnostics import Diagnostics
from app.services.display import display_problem
from app.services.interrupts import Interrupts
from app.services.log_ring import LogRing
from app.services.settings import Environment, read_environment
from app.services.single_instance import SingleInstance
from app.services.tidy import Collector

NO_DISPLAY = 78


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
    app = make_application(offscreen=False)
    instance = SingleInstance(environment.root.root)
    if not instance.claim() and instance.hand_over(page, file):
        return 0
    ring = LogRing()
    diagnostics = Diagnostics(ring, environment.root.logs)
    collector, interrupts = Collector(), Interrupts()
    # Qt is up and the log is open: what takes long to import can be reported now.
    from app.main import Desktop
    from app.warm_up import WarmUp

    desktop = Desktop(environment, ring)
    instance.asked.connect(desktop.raise_window)
    instance.opened.connect(desktop.open_model)
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
