"""Tile sizes of the grouped expert products, as data, and the rule that picks a line. No tensors.

The choice depends on the length of the whole chunk and on the card, never on residency or on how
the work is cut into launches, so that a row's bits do not either.
"""

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Card:
    """What a card can do, as far as tiles care.

    Attributes:
        shared_bytes: shared memory that one program may take.
        wgmma: its matrix products read operands from shared memory (class 9.0).
        native_fp8: it converts e4m3 by itself (class 8.9 and later).
    """

    shared_bytes: int
    wgmma: bool = False
    native_fp8: bool = False


@dataclass(frozen=True, slots=True)
class Tile:
    """One launch shape of both products.

    Attributes:
        rows: rows of an expert per program.
        columns: rows of I per program of gate and up; both are summed.
        down_columns: columns of H per program of down.
        depth: length of a step along the summed axis.
        warps, stages: as Triton means them.
        down_stages: stages of down.
    """

    rows: int
    columns: int
    down_columns: int
    depth: int
    warps: int
    stages: int
    down_stages: int


# By the rows that an expert gets on average, ascending; the last line takes the rest. First for
# cards with room for deep pipelines (classes 8.0, 9.0, 10.x), then for the others.
_ROOMY: tuple[tuple[float, Tile], ...] = (
    (12, Tile(16, 64, 128, 128, 4, 3, 3)),
    (80, Tile(64, 64, 128, 64, 4, 4, 4)),
    (float("inf"), Tile(128, 128, 256, 64, 8, 3, 3)),
)
_TIGHT: tuple[tuple[float, Tile], ...] = (
    (12, Tile(16, 64, 128, 64, 4, 3, 3)),
    (80, Tile(64, 64, 128, 32, 4, 4, 4)),
    (float("inf"), Tile(128, 64, 128, 32, 8, 4, 4)),
)
ROOMY_SHARED_BYTES = 160_000
WGMMA_ROWS = 64
FP8_COLUMNS = 64


def choose_tile(rows_per_expert: float, card: Card, group: int = 0) -> Tile:
    """Return the tile for a chunk.

    `rows_per_expert` is tokens * K / E; `group` is the side of a scale block, which a step along
    the summed axis must not leave (0 = no scales).
    """
    table = _ROOMY if card.shared_bytes >= ROOMY_SHARED_BYTES else _TIGHT
    tile = next(tile for limit, tile in table if rows_per_expert <= limit)
    if not group:
        return tile
    depth = tile.depth
    while group % depth:
        depth //= 2
    # A second set of sums, to be scaled, takes the registers of half the columns. And where codes
    # go through registers, Triton cannot pipeline down's: they lie across its copies.
    columns = min(tile.columns, FP8_COLUMNS)
    piped = card.wgmma and tile.rows >= WGMMA_ROWS
    return replace(
        tile,
        columns=columns,
        down_columns=2 * columns,
        depth=depth,
        down_stages=tile.down_stages if piped else 1,
    )
