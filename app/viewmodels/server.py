"""The Server page before the API exists: says so, and shows what will be there. QtCore only."""

import sys

from PySide6.QtCore import QObject, Signal

from app.wording import tr

DEFAULT_PORT = 1919
IS_WINDOWS = sys.platform == "win32"

# Programs that will have a snippet, in the order of the picker.
CLIENTS = ("Codex", "Claude Code", "OpenCode", "OpenClaw", "curl")


class ServerViewModel(QObject):
    """State of the local API; switched off for good in this version.

    Signals:
        changed(): anything differs.
    """

    changed = Signal()

    @property
    def is_available(self) -> bool:
        """Whether this version has an API at all."""
        return False

    @property
    def is_on(self) -> bool:
        """Whether the API listens."""
        return False

    @property
    def sentence(self) -> str:
        """Why the switch cannot be used."""
        return tr("The server for other programs comes with the API, in a later version.")

    @property
    def detail(self) -> str:
        """What it will be."""
        return tr(
            "Then programs on this computer can use the loaded model through the OpenAI and "
            "Anthropic interfaces. It stays off until you switch it on, and listens to this "
            "computer only."
        )

    def snippet(self, client: str) -> tuple[str, ...]:
        """Return the lines that a client will need; `client` is one of `CLIENTS`.

        For the shell of this system: PowerShell on Windows.
        """
        base = f"http://127.0.0.1:{DEFAULT_PORT}"
        programs = {
            "Codex": ("OPENAI_BASE_URL", f"{base}/v1", "codex"),
            "Claude Code": ("ANTHROPIC_BASE_URL", base, "claude"),
            "OpenCode": ("OPENAI_BASE_URL", f"{base}/v1", "opencode"),
            "OpenClaw": ("OPENAI_BASE_URL", f"{base}/v1", "openclaw"),
        }
        if client not in programs:
            return (f"{'curl.exe' if IS_WINDOWS else 'curl'} {base}/v1/models",)
        name, value, program = programs[client]
        setting = f'$env:{name} = "{value}"' if IS_WINDOWS else f"export {name}={value}"
        return (setting, program)
