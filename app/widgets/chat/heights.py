"""Where the items of a long column stand: heights, measured or estimated, and their running sum.

Whole pixels, no Qt. Changing one height costs the sums below it only when they are asked for, so
that a reply growing at the end of thousands of messages costs nothing above it.
"""

from bisect import bisect_right
from collections.abc import Iterable

CHARACTER = 7.0  # px at 100 %: the mean of prose in the reading size
LINE = 22  # px at 100 %
FRAME = 62  # role line, gaps, card or figures around the text


class Heights:
    """The heights of a column's items, from top to bottom."""

    def __init__(self, heights: Iterable[int] = ()) -> None:
        self._heights = list(heights)
        self._tops = [0]  # of the first items; as many as are summed up by now

    def __len__(self) -> int:
        """Return the number of items."""
        return len(self._heights)

    @property
    def total(self) -> int:
        """The height of all items together."""
        return self.top(len(self._heights))

    def height(self, index: int) -> int:
        """Return the height of one item."""
        return self._heights[index]

    def top(self, index: int) -> int:
        """Return where an item begins; for the number of items, where the last one ends."""
        while len(self._tops) <= index:
            self._tops.append(self._tops[-1] + self._heights[len(self._tops) - 1])
        return self._tops[index]

    def at(self, y: int) -> int:
        """Return the item that covers `y`; the first or last one beyond the ends.

        Raises:
            IndexError: there is no item.
        """
        if not self._heights:
            raise IndexError("an empty column covers nothing")
        while self._tops[-1] <= y and len(self._tops) <= len(self._heights):
            self.top(len(self._tops))
        return min(max(0, bisect_right(self._tops, y) - 1), len(self._heights) - 1)

    def set(self, index: int, height: int) -> None:
        """Take another height of one item."""
        if height != self._heights[index]:
            self._heights[index] = height
            del self._tops[index + 1 :]

    def replace_from(self, index: int, heights: Iterable[int]) -> None:
        """Put others in the place of all items from `index` on."""
        self._heights[index:] = heights
        del self._tops[index + 1 :]


def estimate(text: str, width: int) -> int:
    """Return about how high a message is, in px at 100 %, before it was ever laid out.

    Args:
        text: what it says.
        width: of the column, px at 100 %.
    """
    per_line = max(8.0, width / CHARACTER)
    lines = 1 + text.count("\n") + int(len(text) / per_line)
    return FRAME + LINE * lines
