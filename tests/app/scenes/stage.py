"""What a scene is, and what stays alive while it is looked at."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from PySide6.QtWidgets import QWidget

from app.theme import theme

PAGE = (996, 712)  # px of a page in a window of 1180 x 760
SMALL = (843, 552)  # in the least window, 900 x 600, whose rail is folded
DIALOG = (0, 0)  # as large as it wants to be


@dataclass
class Stage:
    """A built scene.

    Attributes:
        widget: what is looked at.
        parts: what it needs and does not own.
        ends: called in order when nobody looks any more.
        front: what lies over the rest and is looked at alone; None = all of it.
    """

    widget: QWidget
    parts: list[object] = field(default_factory=list)
    ends: list[Callable[[], object]] = field(default_factory=list)
    front: QWidget | None = None

    def __post_init__(self) -> None:
        """Stand for the window, which has the style sheet that pages and dialogs inherit."""
        theme().dress(self.widget)


@dataclass(frozen=True)
class Scene:
    """One state of one page.

    Attributes:
        name: unique; page and state.
        build: makes it in an empty folder.
        size: px at 100 %; `DIALOG` leaves it to the widget.
    """

    name: str
    build: Callable[[Path], Stage]
    size: tuple[int, int] = PAGE
