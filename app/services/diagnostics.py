"""What is written down when something goes wrong in the app itself: log file, hooks, fault handler.

Installed once by `app.__main__`; the hooks are the interpreter's and Qt's own, hence global.
"""

import faulthandler
import logging
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from PySide6.QtCore import QMessageLogContext, QtMsgType, qInstallMessageHandler

from app.services.log_ring import LogRing, RingHandler, rotating_file

_LEVELS = {
    QtMsgType.QtDebugMsg: logging.DEBUG,
    QtMsgType.QtInfoMsg: logging.INFO,
    QtMsgType.QtWarningMsg: logging.WARNING,
    QtMsgType.QtCriticalMsg: logging.ERROR,
    QtMsgType.QtFatalMsg: logging.CRITICAL,
}
# Said by Qt on every machine without a desktop; no fault of anybody.
_HARMLESS = ("This plugin does not support propagateSizeHints", "XDG_RUNTIME_DIR not set")


class Diagnostics:
    """The app's log and the hooks that write to it.

    Args:
        ring: lines for the Logs page.
        folder: the log folder; without it only the ring is used.
        on_error: called with a sentence after an unexpected exception; must not raise.

    Attributes:
        num_errors: unexpected exceptions so far.
    """

    def __init__(
        self, ring: LogRing, folder: Path, on_error: Callable[[str], None] | None = None
    ) -> None:
        self.num_errors = 0
        self.on_error = on_error
        self._log = logging.getLogger("app")
        self._log.setLevel(logging.INFO)
        handlers: list[logging.Handler] = [RingHandler(ring)]
        file = rotating_file(folder / "app.log")
        if file is not None:
            handlers.append(file)
        self._handlers = handlers
        for handler in handlers:
            self._log.addHandler(handler)
        self._had_faulthandler = faulthandler.is_enabled()
        self._faults: BinaryIO | None = None
        try:
            self._faults = (folder / "app-faults.log").open("ab")
            faulthandler.enable(self._faults)
        except OSError:
            faulthandler.enable()
        self._hooks = (sys.excepthook, threading.excepthook)
        sys.excepthook = self._on_exception
        threading.excepthook = self._on_thread_exception
        qInstallMessageHandler(self._on_qt)

    def close(self) -> None:
        """Give all hooks back and close the files."""
        qInstallMessageHandler(None)
        sys.excepthook, threading.excepthook = self._hooks
        faulthandler.disable()
        if self._had_faulthandler:
            faulthandler.enable()
        if self._faults is not None:
            self._faults.close()
        for handler in self._handlers:
            self._log.removeHandler(handler)
            handler.close()

    def _on_exception(
        self,
        kind: type[BaseException],
        problem: BaseException,
        trace: TracebackType | None,
    ) -> None:
        """An exception that nobody caught, in a slot for example: the app goes on."""
        if issubclass(kind, KeyboardInterrupt):
            return
        self.num_errors += 1
        self._log.error(
            "unexpected %s: %s", kind.__name__, problem, exc_info=(kind, problem, trace)
        )
        if self.on_error is not None:
            self.on_error(f"{kind.__name__}: {problem}")

    def _on_thread_exception(self, facts: threading.ExceptHookArgs) -> None:
        if facts.exc_value is not None:
            self._on_exception(facts.exc_type, facts.exc_value, facts.exc_traceback)

    def _on_qt(self, kind: QtMsgType, context: QMessageLogContext, text: str | None) -> None:
        words = text or ""
        if not any(harmless in words for harmless in _HARMLESS):
            self._log.log(_LEVELS.get(kind, logging.WARNING), "Qt: %s", words)
