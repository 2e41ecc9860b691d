"""A small terminal for the tests: escape sequences in, rows of cells out."""

from typing import NamedTuple

import pyte


class Cell(NamedTuple):
    """What one cell of the terminal shows; an empty text is the right half of a wide character."""

    text: str
    foreground: str
    background: str
    is_bold: bool
    is_reverse: bool
    is_underlined: bool


class Emulator:
    """A terminal that does not wrap lines; Textual switches wrapping off too."""

    def __init__(self, width: int, height: int) -> None:
        self._screen = pyte.Screen(width, height)
        self._screen.reset_mode(7, private=True)
        self._stream = pyte.Stream(self._screen)

    def feed(self, data: str) -> None:
        """Write to the terminal."""
        self._stream.feed(data)

    def cells(self) -> list[list[Cell]]:
        """Return every cell, row by row."""
        screen = self._screen
        rows = ([screen.buffer[y][x] for x in range(screen.columns)] for y in range(screen.lines))
        return [[Cell(c.data, c.fg, c.bg, c.bold, c.reverse, c.underscore) for c in row] for row in rows]

    def text(self) -> list[str]:
        """Return the text of every row."""
        return ["".join(cell.text for cell in row) for row in self.cells()]
