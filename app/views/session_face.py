"""What the main window needs of the session view model and of the pages, as protocols."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from PySide6.QtCore import SignalInstance

from app.widgets.strip import ModelChoice
from engine.protocol.messages import EngineState


class Session(Protocol):
    """The engine and its model, as the strip shows them.

    `changed` is emitted after any attribute changed; `problem` is a sentence about an engine that
    ended, or "".
    """

    @property
    def changed(self) -> SignalInstance: ...  # noqa: D102
    @property
    def state(self) -> EngineState: ...  # noqa: D102
    @property
    def state_detail(self) -> str: ...  # noqa: D102
    @property
    def model_name(self) -> str: ...  # noqa: D102
    @property
    def quant(self) -> str: ...  # noqa: D102
    @property
    def tok_s(self) -> float: ...  # noqa: D102
    @property
    def context_used(self) -> int: ...  # noqa: D102
    @property
    def context_capacity(self) -> int: ...  # noqa: D102
    @property
    def can_stop(self) -> bool: ...  # noqa: D102
    @property
    def problem(self) -> str: ...  # noqa: D102
    @property
    def models(self) -> Sequence[ModelChoice]: ...  # noqa: D102

    def load(self, path: str) -> None:
        """Load the model in a folder."""

    def stop_reply(self) -> None:
        """Stop what is running: the reply, or the load."""

    def restart_engine(self) -> None:
        """Start the engine anew and load the model again."""


@runtime_checkable
class TakesShortcuts(Protocol):
    """A page that handles shortcuts of `app.views.shortcuts` by id."""

    def shortcut(self, name: str) -> bool:
        """Do it; False if there is nothing to do."""
