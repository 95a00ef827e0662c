"""The setting of automatic restarts: type with label and help, as `settings_schema` shows it."""

from typing import Annotated

from msgspec import Meta

from app.wording import tr

AutoRestart = Annotated[
    bool,
    Meta(
        extra={
            "section": "engine",
            "label": tr("Restart after a crash"),
            "help": tr("Only when no reply was being written, three times in five minutes at most"),
        }
    ),
]
