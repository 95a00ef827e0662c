"""Where things live: the one data root, and the read-only resources that ship with the program.

Pure: reads no environment (callers pass the override). Used by app and engine alike, so that both
mean the same folders.
"""

import sys
from dataclasses import dataclass
from pathlib import Path

from platformdirs import user_data_path

HOME_VARIABLE = "FREETOKEN_HOME"


@dataclass(frozen=True, slots=True)
class DataRoot:
    """Everything the program writes lies under `root`; nothing is written elsewhere."""

    root: Path

    @property
    def chats(self) -> Path:
        """The chat database and attachments."""
        return self.root / "chats"

    @property
    def models(self) -> Path:
        """Converted models, one FTW folder each."""
        return self.root / "models"

    @property
    def runtime(self) -> Path:
        """Engine runtimes installed after the app."""
        return self.root / "runtime"

    @property
    def caches(self) -> Path:
        """Things that can be made anew: kernel caches, downloads in flight."""
        return self.root / "caches"

    @property
    def profiles(self) -> Path:
        """Measured bandwidths of this machine."""
        return self.root / "profiles"

    @property
    def logs(self) -> Path:
        """Rotating logs of app, engine and jobs."""
        return self.root / "logs"

    @property
    def settings_file(self) -> Path:
        """The app's settings (JSON)."""
        return self.root / "settings.json"


def data_root(override: str | None = None) -> DataRoot:
    """Return the data root: `override` if given, else the platform's folder for user data."""
    if override:
        return DataRoot(Path(override).expanduser().absolute())
    return DataRoot(user_data_path("FreeToken Desktop", appauthor=False))


def resources_dir() -> Path:
    """Return the folder of shipped resources, in a checkout and in a frozen build alike."""
    frozen = getattr(sys, "_MEIPASS", None)  # set by PyInstaller's boot loader
    base = Path(frozen) if frozen else Path(__file__).resolve().parents[2]
    return base / "resources"
