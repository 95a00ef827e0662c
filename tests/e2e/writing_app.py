"""The whole app on the real engine, to be killed: `python -m tests.e2e.writing_app HOME N`.

Writes as soon as the model is there, in a new chat before the context is full. Prints `sent`, the
chat's id and how many turns it has; then, each time text has arrived, the monotonic time and
the length of the reply; when the engine is gone, `stopped` and the length.
"""

import sys
import time

import app.main
from app.__main__ import run_desktop
from app.main import Desktop
from app.services.log_ring import LogRing
from app.services.settings import Environment
from engine.protocol.messages import Finished
from engine.protocol.places import data_root

FULL = 1_500  # tokens of a chat that is not continued; the model reads 2,048


def say(line: str) -> None:
    """Tell the test something, at once."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


class WritingDesktop(Desktop):
    """An app whose person writes as soon as there is a model, and again after each reply."""

    number = ""

    def __init__(self, environment: Environment, ring: LogRing) -> None:
        super().__init__(environment, ring)
        chat, client = self.vm.chat, self.services.client
        client.loaded.connect(self._begin_chat)
        client.finished.connect(self._again)
        client.stopped.connect(self._tell_stopped)
        chat.talk.grew.connect(self._tell)

    def _begin_chat(self, _loaded: object) -> None:
        chat = self.vm.chat
        chat.new_chat()
        chat.change_sampling(max_tokens=1900, temperature=0.9)
        self._send(f"Story {self.number}: tell me of a fox and a bear.")

    def _again(self, finished: Finished) -> None:
        if not self.services.client.is_running:
            return
        if finished.usage.prompt_tokens + finished.usage.reply_tokens < FULL:
            self._send("Go on.")
        else:
            self._begin_chat(None)

    def _send(self, text: str) -> None:
        self.vm.chat.send(text)
        talk = self.vm.chat.talk
        say(f"sent {talk.chat.id} {len(talk.messages) // 2}")

    def _tell(self, message_id: int) -> None:
        message = self.vm.chat.talk.message(message_id)
        say(f"{time.monotonic()} {len(message.text) if message else 0}")

    def _tell_stopped(self, _outcome: object) -> None:
        messages = self.vm.chat.talk.messages
        say(f"stopped {len(messages[-1].text) if messages else 0}")


def main(home: str, number: str) -> int:
    """Write until killed."""
    WritingDesktop.number = number
    app.main.Desktop = WritingDesktop  # what `run_desktop` makes
    return run_desktop(Environment(data_root(home), "", True, needs_x11=False), "")


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:3]))
