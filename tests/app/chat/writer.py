"""A chat that is being written, to be killed: `python -m tests.app.chat.writer FOLDER`.

Store, view model and a fake engine, no window. Each time text has arrived, prints the monotonic
time and the length of the reply; when the engine is gone, `stopped` and the length.
"""

import sys
import time
from pathlib import Path

from PySide6.QtCore import QCoreApplication

from app.services.chat_store import ChatStore
from app.services.engine_client import EngineClient
from app.services.engine_process import EngineProcess
from app.viewmodels.chat import ChatViewModel
from tests.support.app_engine import fake_program


def say(line: str) -> None:
    """Tell the test something, at once."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main(folder: str) -> int:
    """Write until killed."""
    app = QCoreApplication(sys.argv[:1])
    client = EngineClient(EngineProcess(fake_program("--tokens", "90000", "--rate", "400")))
    vm = ChatViewModel(ChatStore(Path(folder)), client)

    def tell(message_id: int) -> None:
        message = vm.talk.message(message_id)
        say(f"{time.monotonic()} {len(message.text) if message else 0}")

    def stopped(_outcome: object) -> None:
        say(f"stopped {len(vm.talk.messages[-1].text)}")

    vm.talk.grew.connect(tell)
    client.stopped.connect(stopped)
    client.start()
    client.load("/models/fake")
    vm.change_sampling(max_tokens=90_000)
    vm.send("Write for a long time.")
    return app.exec()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
