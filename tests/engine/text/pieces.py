"""Comparing replies whatever their cut points."""

from engine.text.dialects.base import Piece


def joined(pieces: list[Piece]) -> list[Piece]:
    """Merge neighbours of one kind, so that only the cut points differ."""
    out: list[Piece] = []
    for piece in pieces:
        if out and out[-1].kind == piece.kind != "tool_call":
            out[-1] = Piece(piece.kind, out[-1].text + piece.text)
        else:
            out.append(piece)
    return out
