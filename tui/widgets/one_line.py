"""One line of chrome: text in roles, cut to the width, repainted only when it changed."""

from collections.abc import Sequence
from typing import NamedTuple

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from ..draw.spans import Role
from ..frame.theme import find_look
from .marking import MarkingWidget

ELLIPSIS = "…"


class Piece(NamedTuple):
    """A run of text in one role; `action` is what a click on it does."""

    text: str
    role: Role = "text"
    action: str = ""


Pieces = tuple[Piece, ...]


class OneLine(MarkingWidget):
    """A line with pieces at the left and pieces at the right; the left ones are cut when room is short."""

    DEFAULT_CSS = """
    OneLine {
        height: 1;
        width: 1fr;
        padding: 0 1;
    }
    """

    _left: Pieces = ()
    _right: Pieces = ()

    def set_pieces(self, left: Sequence[Piece], right: Sequence[Piece] = ()) -> None:
        """Show these pieces; nothing is repainted when they are the ones shown."""
        if (tuple(left), tuple(right)) != (self._left, self._right):
            self._left = tuple(left)
            self._right = tuple(right)
            self.repaint()

    @property
    def text(self) -> str:
        """What the line says at its present width."""
        return self.render_line(0).text.strip()

    def render_line(self, y: int) -> Strip:
        """Return the line; there is only one."""
        width = self.size.width
        if y != 0 or width <= 0:
            return Strip.blank(max(0, width), self.rich_style)
        right = cut_pieces(self._right, width)
        room = width - measure_pieces(right)
        left = cut_pieces(self._left, max(0, room - 1) if right else room)
        style = self.rich_style
        gap = Segment(" " * (room - measure_pieces(left)), style)
        segments = [self._segment(piece, style) for piece in left]
        return Strip([*segments, gap, *(self._segment(piece, style) for piece in right)], width)

    def _segment(self, piece: Piece, style: Style) -> Segment:
        if piece.role != "text":
            style += find_look(self.app, piece.role)
        if piece.action:
            style += Style.from_meta({"@click": piece.action})
        return Segment(piece.text, style)


def measure_pieces(pieces: Sequence[Piece]) -> int:
    """Return the terminal cells that pieces take."""
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


def join_pieces(groups: Sequence[Sequence[Piece]], separator: str = " · ") -> list[Piece]:
    """Return groups of pieces as one line, with a muted separator between them."""
    joined: list[Piece] = []
    for group in groups:
        if joined and group:
            joined.append(Piece(separator, "muted"))
        joined.extend(group)
    return joined
