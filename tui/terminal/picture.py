"""What a terminal shows, cell by cell, and the fewest bytes that make it show something else."""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

from rich.cells import cell_len, split_graphemes
from rich.color import ColorSystem
from rich.segment import Segment
from rich.style import Style

# Codes are those of ECMA-48, section 8.3.117 (SGR). Links are not written: none is ours.
_ON = ("1", "2", "3", "4", "5", "6", "7", "8", "9", "21", "51", "52", "53")
_OFF = ("22", "22", "23", "24", "25", "25", "27", "28", "29", "24", "54", "54", "55")


class Pen(NamedTuple):
    """How cells are written; equal pens are one and the same object."""

    attributes: tuple[int, ...] = ()
    """Indexes into the table of attributes, in Rich's order."""
    foreground: str = ""
    background: str = ""


PLAIN = Pen()
"""The terminal's own colours, no attribute."""

_known: dict[Pen, Pen] = {PLAIN: PLAIN}


@lru_cache(maxsize=4096)
def pen_of(style: Style, color_system: ColorSystem) -> Pen:
    """Return the pen that writes a style on a terminal of so many colours."""
    attributes = style._attributes & style._set_attributes
    pen = Pen(
        tuple(bit for bit in range(len(_ON)) if attributes & (1 << bit)),
        ";".join(style.color.downgrade(color_system).get_ansi_codes()) if style.color else "",
        ";".join(style.bgcolor.downgrade(color_system).get_ansi_codes(False)) if style.bgcolor else "",
    )
    return _known.setdefault(pen, pen)


@lru_cache(maxsize=16384)
def change_pen(old: Pen, new: Pen) -> str:
    """Return the shortest escape sequence that makes the terminal write with `new` after `old`."""
    return f"\x1b[{min(_difference(old, new), _from_scratch(new), key=len)}m" if old != new else ""


def _from_scratch(new: Pen) -> str:
    """Return the codes that reset everything and set the pen."""
    parts = ["", *(_ON[index] for index in new.attributes), new.foreground, new.background]
    return ";".join(part for number, part in enumerate(parts) if part or number == 0)


def _difference(old: Pen, new: Pen) -> str:
    """Return the codes that change only what differs."""
    gone = {_OFF[index] for index in old.attributes if index not in new.attributes}
    kept = [index for index in new.attributes if index in old.attributes and _OFF[index] not in gone]
    parts = sorted(gone) + [_ON[index] for index in new.attributes if index not in kept]
    if old.foreground != new.foreground:
        parts.append(new.foreground or "39")
    if old.background != new.background:
        parts.append(new.background or "49")
    return ";".join(parts)


_PLAIN_CELLS = frozenset(
    map(chr, (*range(0x20, 0x7F), *range(0xA0, 0xAD), *range(0xAE, 0x300), *range(0x2500, 0x25FD)))
) | frozenset(map(chr, range(0x2800, 0x2900)))
"""Characters that every terminal draws one cell wide: after any other the cursor may be elsewhere."""


_BLOCK = 16
"""Cells that are compared together."""
_BAND_BITS = 4
_BRIDGE = 3
"""Bytes of the shortest step to the right."""


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
        start = max(x, x1)
        stop = min(x + len(texts), x2, len(self.texts))
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


class _Run:
    """Cells side by side that are written with one pen."""

    __slots__ = ("end", "is_plain", "pen", "texts", "x", "y")

    def __init__(self, x: int, y: int, pen: Pen) -> None:
        self.x = x
        self.y = y
        self.pen = pen
        self.texts: list[str] = []
        self.end = x
        self.is_plain = True
        """Whether the cursor is surely at `end` once the run is written."""


class CellWriter:
    """Collects what differs and puts it into escape sequences.

    A pen in true colour takes some twenty bytes and a move six, so everything of one pen is written
    before the next pen is taken up.

    Args:
        width: Cells of a row.
    """

    def __init__(self, width: int) -> None:
        self._parts: list[str] = []
        self._width = width
        self._x = -1
        self._y = -1
        self._runs: dict[Pen, list[_Run]] = {}

    def paint(self, y: int, x1: int, x2: int, old: CellRow, new: CellRow) -> None:
        """Note the cells of row `y` from column `x1` up to `x2` that differ from what is shown."""
        old_texts = old.texts
        new_texts = new.texts
        old_pens = old.pens
        new_pens = new.pens
        x = x1
        while x < x2:
            block = min(x2, x + _BLOCK)
            if old_texts[x:block] == new_texts[x:block] and old_pens[x:block] == new_pens[x:block]:
                x = block
                continue
            while x < x2 and old_texts[x] == new_texts[x] and old_pens[x] is new_pens[x]:
                x += 1
            if x >= x2:
                return
            while x > 0 and (new_texts[x] == "" or old_texts[x] == ""):
                x -= 1
            x = self._collect(x, y, x2, old, new)

    def finish(self) -> str:
        """Return everything that was collected, with the pen put back."""
        pen = PLAIN
        for wanted, runs in self._runs.items():
            self._parts.append(change_pen(pen, wanted))
            pen = wanted
            for run in sorted(runs, key=_place):
                self._write(run)
        self._parts.append(change_pen(pen, PLAIN))
        return "".join(self._parts)

    def _collect(self, x: int, y: int, x2: int, old: CellRow, new: CellRow) -> int:
        """Note cells from column `x` on while they differ; return the column after the last one."""
        start = x
        while x < self._width:
            text = new.texts[x]
            pen = new.pens[x]
            shown = old.texts[x]
            is_half = text == "" or shown == ""
            if x > start and not is_half and (x >= x2 or (shown == text and old.pens[x] is pen)):
                break
            if text:
                run = self._run_at(x, y, pen, new)
                run.texts.append(text)
                run.end = x + 1
                run.is_plain = text in _PLAIN_CELLS
            x += 1
        return x

    def _run_at(self, x: int, y: int, pen: Pen, new: CellRow) -> _Run:
        """Return the run that goes on at a cell; few cells between are written again, cheaper than a move."""
        runs = self._runs.setdefault(pen, [])
        last = runs[-1] if runs else None
        if last is not None and last.y == y and last.is_plain and 0 <= x - last.end <= _BRIDGE:
            between = new.texts[last.end : x]
            is_same = all(other is pen for other in new.pens[last.end : x])
            if is_same and _PLAIN_CELLS.issuperset(between):
                known = [text or " " for text in between]
                if len("".join(known).encode()) <= _BRIDGE:
                    last.texts += known
                    return last
        runs.append(_Run(x, y, pen))
        return runs[-1]

    def _write(self, run: _Run) -> None:
        """Write a run where it stands."""
        if self._x != run.x or self._y != run.y:
            self._parts.append(self._move_to(run.x, run.y))
        self._parts += run.texts
        self._x = run.end if run.is_plain and run.end < self._width else -1
        self._y = run.y

    def _move_to(self, x: int, y: int) -> str:
        """Return the move of the fewest bytes from where the cursor is to a cell."""
        move = f"\x1b[{y + 1};{x + 1}H" if x else f"\x1b[{y + 1}H"
        if self._x < 0 or y < self._y:
            return move
        across = "\r" if x == 0 and self._x else _step(x - self._x, "C", "D")
        return min(move, _step(y - self._y, "B", "A") + across, key=len)


def _step(count: int, forward: str, back: str) -> str:
    """Return a step of the cursor by so many cells (ECMA-48, CUU to CUB; BS for short ones to the left)."""
    if count == 0:
        return ""
    if back == "D" and -_BRIDGE <= count < 0:
        return "\b" * -count
    number = abs(count)
    return f"\x1b[{number if number > 1 else ''}{forward if count > 0 else back}"


def _place(run: _Run) -> tuple[int, int]:
    """Return by what runs are sorted: downwards in bands, because a step down is shorter than a move."""
    return run.x >> _BAND_BITS, run.y
