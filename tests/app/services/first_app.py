"""A first app without a window: `python -m tests.app.services.first_app FOLDER [KIND]`.

Tells what it has become, then each request as a line of JSON. Lines on stdin: `deaf` = it begins to
end, `end` = it has ended. KIND `mortal` dies when a start has written to it, before it reads.
"""

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

from PySide6.QtCore import QCoreApplication, QObject, Qt, Signal

from app.services.handing_over import Request
from app.services.single_instance import SingleInstance
from tests.conftest import REPOSITORY


class FirstApp:
    """The handle of such a process, for a test."""

    def __init__(self, folder: Path, *kind: str, **variables: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.app.services.first_app", str(folder), *kind],
            cwd=REPOSITORY,
            env=os.environ | variables,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.line() == "FIRST"

    def line(self) -> str:
        return self.process.stdout.readline().strip()

    def told(self) -> list[str]:
        return json.loads(self.line())

    def tell(self, command: str) -> None:
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()

    def close(self) -> None:
        self.process.kill()  # a stopped one as well
        self.process.communicate(timeout=10)


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


class Mortal(SingleInstance):
    def _on_connection(self) -> None:
        if self._server is not None and self._server.hasPendingConnections():
            os._exit(9)


class Commands(QObject):
    """What the test wants, from a thread that waits for it."""

    came = Signal(str)

    def read(self) -> None:
        for line in sys.stdin:
            self.came.emit(line.strip())
        self.came.emit("end")  # the test is gone


def main(folder: str, kind: str = "") -> int:
    app = QCoreApplication(["first-app"])
    instance = (Mortal if kind == "mortal" else SingleInstance)(Path(folder))
    say(instance.take_place(Request()).name)
    instance.asked.connect(lambda page, token: say(json.dumps(["page", page, token])))
    instance.opened.connect(lambda file, token: say(json.dumps(["file", file, token])))
    instance.answer()

    def obey(command: str) -> None:
        if command == "deaf":
            instance.stop_listening()
        else:
            instance.close()
            app.quit()
        say(command)

    commands = Commands()
    commands.came.connect(obey, Qt.ConnectionType.QueuedConnection)
    threading.Thread(target=commands.read, daemon=True).start()
    return app.exec()


if __name__ == "__main__":
    os._exit(main(*sys.argv[1:]))  # the thread may still wait for stdin
