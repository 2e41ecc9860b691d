"""The notes: what limits the figures and what was left out, the most important first."""

from collections.abc import Sequence

from .one_line import OneLine, Piece, cut_pieces, join_pieces, measure_pieces

SEPARATOR = "   "
LEAST_CELLS = 24
"""Cells below which a note is not begun."""


class NoteLine(OneLine):
    """Shows the notes that fit; the key beside them shows all."""

    _notes: tuple[str, ...] = ()

    def show(self, notes: Sequence[str]) -> None:
        """Show notes, the most important first."""
        self._notes = tuple(notes)
        self._arrange()

    def on_resize(self) -> None:
        """Choose anew what fits."""
        self._arrange()

    def _arrange(self) -> None:
        heading = [Piece("Notes   ", "muted")]
        left, right = fit_notes(self._notes, self.size.width - measure_pieces(heading))
        self.set_pieces([*heading, *left], right)


def fit_notes(notes: Sequence[str], room: int) -> tuple[list[Piece], list[Piece]]:
    """Return the notes that fit, and which key shows the others; nothing where there are none.

    Args:
        notes: Notes, the most important first.
        room: Cells for both.
    """
    every = join_pieces([[Piece(note)] for note in notes], SEPARATOR)
    if measure_pieces(every) <= room:
        return every, []
    count = "the note" if len(notes) == 1 else f"all {len(notes)} notes"
    key = [Piece("i", "accent", "screen.notes"), Piece(f" {count}", "muted", "screen.notes")]
    room -= measure_pieces(key) + 2
    if room < LEAST_CELLS:
        return [], key
    for shown in range(len(notes) - 1, 0, -1):
        pieces = join_pieces([[Piece(note)] for note in notes[:shown]], SEPARATOR)
        if measure_pieces(pieces) <= room:
            return pieces, key
    return cut_pieces([Piece(notes[0])], room), key
