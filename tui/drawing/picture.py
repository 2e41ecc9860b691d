"""What a terminal shows, cell by cell, and the fewest bytes that make it show something else."""

from collections.abc import Iterable, Sequence

from rich.cells import cell_len, split_graphemes
from rich.color import ColorSystem
from rich.segment import Segment

from .pens import PLAIN, Pen, change_pen, pen_of

_PLAIN_CELLS = frozenset(
    map(chr, (*range(0x20, 0x7F), *range(0xA0, 0xAD), *range(0xAE, 0x300), *range(0x2500, 0x25FD)))
) | frozenset(map(chr, range(0x2800, 0x2900)))
"""Characters that every terminal draws one cell wide: after any other the cursor may be elsewhere."""


class CellRow:
    """One row: the text and the pen of each cell; the right half of a wide character is an empty text."""

    __slots__ = ("pens", "texts")

    def __init__(self, width: int) -> None:
        self.texts: list[str | None] = [None] * width
        """None where it is not known what the terminal shows."""
        self.pens: list[Pen] = [PLAIN] * width

    def copy(self) -> "CellRow":
        """Return another row that shows the same."""
        row = CellRow(0)
        row.texts, row.pens = self.texts.copy(), self.pens.copy()
        return row

    def put(self, segments: Iterable[Segment], x: int, x1: int, x2: int, color_system: ColorSystem) -> None:
        """Lay segments that begin at column `x`, as far as they fall into columns `x1` up to `x2`."""
        texts: list[str | None] = []
        pens: list[Pen] = []
        for text, style, control in segments:
            if control:
                continue
            cells = _cells_of(text)
            pen = PLAIN if style is None else pen_of(style, color_system)
            texts.extend(cells)
            pens.extend([pen] * len(cells))
        start, stop = max(x, x1), min(x + len(texts), x2, len(self.texts))
        if start < stop:
            self.texts[start:stop] = texts[start - x : stop - x]
            self.pens[start:stop] = pens[start - x : stop - x]

    def mend(self, x: int) -> None:
        """Blank the half of a wide character that was cut at the left edge of column `x`."""
        texts = self.texts
        if not 0 < x < len(texts):
            return
        left = texts[x - 1]
        is_wide = left is not None and left not in _PLAIN_CELLS and cell_len(left) == 2
        if texts[x] == "" and not is_wide:
            texts[x] = " "
        elif is_wide and texts[x] != "":
            texts[x - 1] = " "


def _cells_of(text: str) -> Sequence[str]:
    """Return one text for each cell that `text` takes."""
    if _PLAIN_CELLS.issuperset(text):
        return text
    cells: list[str] = []
    for start, end, width in split_graphemes(text)[0]:
        if width == 0 and cells:
            cells[-1] += text[start:end]
        elif width:
            cells.append(text[start:end])
            cells.extend([""] * (width - 1))
    return cells


class CellWriter:
    """Collects escape sequences and text; knows where the cursor is and how it writes."""

    def __init__(self, width: int) -> None:
        self._parts: list[str] = []
        self._width = width
        self._x = -1
        self._y = -1
        self._pen = PLAIN

    def paint(self, y: int, x1: int, x2: int, old: CellRow, new: CellRow) -> None:
        """Write the cells of row `y` from column `x1` up to `x2` that differ from what is shown."""
        old_texts, new_texts, old_pens, new_pens = old.texts, new.texts, old.pens, new.pens
        if old_texts[x1:x2] == new_texts[x1:x2] and old_pens[x1:x2] == new_pens[x1:x2]:
            return
        x = x1
        while x < x2:
            if old_texts[x] == new_texts[x] and old_pens[x] is new_pens[x]:
                x += 1
                continue
            while x > 0 and (new_texts[x] == "" or old_texts[x] == ""):
                x -= 1
            x = self._write(x, y, x2, old, new)

    def finish(self) -> str:
        """Return everything that was collected, with the pen put back."""
        self._parts.append(change_pen(self._pen, PLAIN))
        return "".join(self._parts)

    def _write(self, x: int, y: int, x2: int, old: CellRow, new: CellRow) -> int:
        """Write from column `x` on while cells differ; return the column after the last one."""
        start = x
        while x < self._width:
            text, pen, shown = new.texts[x], new.pens[x], old.texts[x]
            is_half = text == "" or shown == ""
            is_same = shown == text and old.pens[x] is pen
            if x > start and not is_half and (x >= x2 or is_same):
                break
            if text:
                self._move_to(x, y, new)
                self._put(text, pen)
            x += 1
        return x

    def _put(self, text: str, pen: Pen) -> None:
        """Write one character where the cursor is."""
        if pen is not self._pen:
            self._parts.append(change_pen(self._pen, pen))
            self._pen = pen
        self._parts.append(text)
        self._x = self._x + 1 if text in _PLAIN_CELLS and self._x + 1 < self._width else -1

    def _move_to(self, x: int, y: int, new: CellRow) -> None:
        """Bring the cursor to a cell with the fewest bytes."""
        if self._x == x and self._y == y:
            return
        move = f"\x1b[{y + 1};{x + 1}H" if x else f"\x1b[{y + 1}H"
        if self._x >= 0 and self._y == y:
            if x > self._x:
                move = self._move_forward(x - self._x, x, new)
            elif x == 0:
                move = "\r"
        elif self._x == x and y == self._y + 1:
            move = "\x1b[B"
        self._parts.append(move)
        self._x, self._y = x, y

    def _move_forward(self, count: int, x: int, new: CellRow) -> str:
        """Return a step to the right, or the cells between written again where that is shorter."""
        step = f"\x1b[{count}C" if count > 1 else "\x1b[C"
        if count > len(step):
            return step
        texts = new.texts[x - count : x]
        if all(pen is self._pen for pen in new.pens[x - count : x]) and _PLAIN_CELLS.issuperset(texts):
            between = "".join(text or "" for text in texts)
            if len(between.encode()) <= len(step):
                return between
        return step
