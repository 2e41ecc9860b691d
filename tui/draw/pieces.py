"""Pieces of a line of chrome: text in a role, which a click may act on; measured, cut and joined."""

from collections.abc import Sequence
from typing import NamedTuple

from rich.cells import cell_len, set_cell_size

from .spans import ELLIPSIS, Role


class Piece(NamedTuple):
    """A run of text in one role."""

    text: str
    role: Role = "text"
    action: str = ""


Pieces = tuple[Piece, ...]


def measure_pieces(pieces: Sequence[Piece]) -> int:
    return sum(cell_len(piece.text) for piece in pieces)


def cut_pieces(pieces: Sequence[Piece], width: int) -> list[Piece]:
    """Return the pieces that fit, the last one cut with an ellipsis where text was lost."""
    if measure_pieces(pieces) <= width:
        return list(pieces)
    if width <= 0:
        return []
    kept: list[Piece] = []
    room = width - 1
    for piece in pieces:
        size = cell_len(piece.text)
        if size > room:
            kept.append(piece._replace(text=set_cell_size(piece.text, room).rstrip() + ELLIPSIS))
            break
        kept.append(piece)
        room -= size
    return kept


def fill_line(left: Sequence[Piece], right: Sequence[Piece], width: int) -> list[Piece]:
    """Return a line of exactly `width` cells; the left pieces are cut when room is short."""
    ending = cut_pieces(right, width)
    room = width - measure_pieces(ending)
    beginning = cut_pieces(left, max(0, room - 1) if ending else room)
    return [*beginning, Piece(" " * (room - measure_pieces(beginning))), *ending]


def join_pieces(groups: Sequence[Sequence[Piece]], separator: str = " · ") -> list[Piece]:
    """Return groups of pieces as one line, with a muted separator between them."""
    joined: list[Piece] = []
    for group in groups:
        if joined and group:
            joined.append(Piece(separator, "muted"))
        joined.extend(group)
    return joined
