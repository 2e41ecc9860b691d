"""The grid of a sweep line by line: how cells look, their text, the border of what ran."""

from collections.abc import Mapping
from typing import Literal, NamedTuple, get_args

from ...analyzers.planning.sweep import STATE_WORDS, CellState, Place, SweepCell, SweepGrid
from ...analyzers.planning.sweep.model import find_best
from ...engine.units import GIB
from ...exporters.sweep.figure_cells import DrawnGrid, choose_cells, find_borders
from ..draw.glyphs import Glyphs
from ..draw.spans import ROLES, Role

CellLook = Literal[
    "share-0",
    "share-1",
    "share-2",
    "share-3",
    "share-4",
    "fair",
    "over-1",
    "over-2",
    "over-3",
    "under-1",
    "under-2",
    "under-3",
]
CELL_LOOKS: tuple[CellLook, ...] = get_args(CellLook)
# Shares of the capacity from which the next look is used.
SHARES = (0.25, 0.5, 0.75, 0.9)
# Errors of the prediction, either way, from which the next look is used.
ERRORS_PERCENT = (5.0, 20.0, 50.0)


class CellColours(NamedTuple):
    ground: str
    ink: str


DARK: dict[CellLook, CellColours] = {
    "share-0": CellColours("#10243a", "#cfe4f7"),
    "share-1": CellColours("#174a7c", "#eaf4fd"),
    "share-2": CellColours("#4f9fe0", "#00101f"),
    "share-3": CellColours("#a9d3f7", "#00101f"),
    "share-4": CellColours("#f2a33a", "#1a0f00"),
    "fair": CellColours("#1c2530", "#e4ebf2"),
    "over-1": CellColours("#17324d", "#d5e8fa"),
    "over-2": CellColours("#24609a", "#ffffff"),
    "over-3": CellColours("#8cc2f0", "#00101f"),
    "under-1": CellColours("#4a2e0b", "#fbe3c0"),
    "under-2": CellColours("#95540a", "#ffffff"),
    "under-3": CellColours("#f5b556", "#1a0f00"),
}
LIGHT: dict[CellLook, CellColours] = {
    "share-0": CellColours("#deebf7", "#08203a"),
    "share-1": CellColours("#9ecae1", "#08203a"),
    "share-2": CellColours("#5a9fd4", "#000000"),
    "share-3": CellColours("#08519c", "#ffffff"),
    "share-4": CellColours("#9a3c0a", "#ffffff"),
    "fair": CellColours("#eef1f4", "#1a222a"),
    "over-1": CellColours("#d6e6f4", "#08203a"),
    "over-2": CellColours("#7fb2dd", "#000000"),
    "over-3": CellColours("#0b559f", "#ffffff"),
    "under-1": CellColours("#fde3c4", "#3a1f00"),
    "under-2": CellColours("#f0a04b", "#000000"),
    "under-3": CellColours("#8a3b00", "#ffffff"),
}


def look_of_share(share: float) -> CellLook:
    """Return the look of a share of the capacity, from 0 to 1 and beyond."""
    return CELL_LOOKS[sum(share >= step for step in SHARES)]


def look_of_error(percent: float) -> CellLook:
    """Return the look of a difference: positive where the first value is larger."""
    step = sum(abs(percent) >= least for least in ERRORS_PERCENT)
    if step == 0:
        return "fair"
    first: CellLook = "over-1" if percent > 0 else "under-1"
    return CELL_LOOKS[CELL_LOOKS.index(first) + step - 1]


def cell_rules(prefix: str) -> str:
    """Return CSS rules for component classes `PREFIX--LOOK` of cells, to put inside a widget's own.

    Cells have no colours where a terminal has only its own two; their text is complete without them.
    """
    rules = []
    for parent, colours in (("&", DARK), ("&:light", LIGHT)):
        rules += [
            f"{parent} > .{prefix}--{look} {{ background: {ground}; color: {ink}; }}"
            for look, (ground, ink) in colours.items()
        ]
    plain = "background: ansi_default; color: ansi_default;"
    rules += [f"&:ansi > .{prefix}--{look} {{ {plain} }}" for look in CELL_LOOKS]
    return "\n".join(rules)


def look_classes(prefix: str) -> set[str]:
    """Return the component classes of roles and cells."""
    return {f"{prefix}--{look}" for look in (*ROLES, *CELL_LOOKS)}


SweepMode = Literal["memory", "error", "theory", "difference"]
MODES: tuple[SweepMode, ...] = get_args(SweepMode)
MODE_WORDS: dict[SweepMode, str] = {
    "memory": "measured GiB",
    "error": "error of theory, %",
    "theory": "theory, GiB",
    "difference": "second minus first, GiB",
}
TILE_CELLS = 6
STATE_ROLES: dict[CellState, Role] = {
    "ok": "text",
    "oom": "critical",
    "failed": "medium",
    "not_run": "faint",
    "invalid": "muted",
    "running": "accent",
}
# States with the glyph of a level of risk: those that did not run.
_STATE_RISKS: dict[CellState, str] = {"oom": "critical", "failed": "medium"}


class Tile(NamedTuple):
    """The content of one cell."""

    text: str
    look: CellLook | Role


def make_tile(
    cell: SweepCell, mode: SweepMode, capacity_bytes: int, glyphs: Glyphs, first: SweepCell | None = None
) -> Tile:
    """Return the content of a cell; `capacity_bytes` is that of a device.

    `first` is the same layout in the sweep that `difference` subtracts; None where it has none.
    """
    if mode == "difference":
        return _make_difference(cell, first, capacity_bytes, glyphs)
    if mode == "error" and cell.error_percent is not None:
        return Tile(_sign(cell.error_percent, 0), look_of_error(cell.error_percent))
    value_bytes = cell.theory_bytes if mode == "theory" else cell.actual_bytes
    if mode == "error" or value_bytes is None:
        return describe_state(cell, glyphs)
    mark = "!" if cell.is_mispredicted else " "
    return Tile(f"{_format_gib(value_bytes)}{mark}", look_of_share(value_bytes / capacity_bytes))


def describe_state(cell: SweepCell, glyphs: Glyphs) -> Tile:
    risk = _STATE_RISKS.get(cell.state)
    word = STATE_WORDS[cell.state].cell
    if cell.state == "ok":
        word = f"{word} {glyphs.unmeasured}"
    elif cell.state == "not_run":
        word = glyphs.risk("low")
    return Tile(f"{glyphs.risk(risk)} {word}" if risk else word, STATE_ROLES[cell.state])


def mark_best(text: str) -> str:
    """Return the text of a tile with the arrows of the best one, as far as they fit."""
    bare = text.rstrip()
    return f"▸{bare}◂" if len(bare) + 2 <= TILE_CELLS else f"▸{bare}"[:TILE_CELLS]


def _make_difference(cell: SweepCell, first: SweepCell | None, capacity_bytes: int, glyphs: Glyphs) -> Tile:
    """Return how much more a layout holds than in the first sweep, or how their states differ."""
    if first is None:
        return Tile("only 2", "faint")
    if cell.actual_bytes is not None and first.actual_bytes is not None:
        apart_bytes = cell.actual_bytes - first.actual_bytes
        percent = 100 * apart_bytes / first.actual_bytes if first.actual_bytes else 0.0
        return Tile(_sign(apart_bytes / GIB, 1), look_of_error(-percent))
    if cell.state == first.state:
        return describe_state(cell, glyphs)._replace(look="faint")
    before, after = (_shorten(it.state, glyphs) for it in (first, cell))
    return Tile(f"{before}→{after}", "strong")


def _shorten(state: CellState, glyphs: Glyphs) -> str:
    """Return a state in at most two terminal cells; a dot where it was not tried, or is not possible."""
    if state == "ok":
        return "ok"
    return glyphs.risk(_STATE_RISKS.get(state, "low")) if state != "running" else STATE_WORDS[state].cell


def _format_gib(value_bytes: int) -> str:
    value = value_bytes / GIB
    return f"{value:.1f}" if value < 999.95 else f"{value:,.0f}"[:5]


def _sign(value: float, places: int) -> str:
    text = f"{value:+.{places}f}"
    text = text if len(text) < TILE_CELLS else f"{value:+.0f}"
    return f"{text} " if len(text) < TILE_CELLS else f"{text[0]}>999 "


# Row and column of the cell below, or to the right of, an edge.
Edge = tuple[int, int]


class Borders(NamedTuple):
    """Edges, each with whether memory is known to have ended there."""

    # Along the upper side of a cell.
    above: dict[Edge, bool]
    # Along the left side of a cell.
    before: dict[Edge, bool]


def trace_borders(drawn: DrawnGrid) -> Borders:
    borders = Borders({}, {})
    for is_known in (False, True):
        for (left, top), (right, bottom) in find_borders(drawn, is_known=is_known):
            edges = borders.before if left == right else borders.above
            edges[min(top, bottom), min(left, right)] = is_known
    return borders


def draw_edge(is_known: bool | None, glyphs: Glyphs, *, is_upright: bool) -> str:
    """Return the character of an edge: dashed where the cause is unknown, a blank without an edge."""
    if is_known is None:
        return " "
    if glyphs.name == "ascii":
        return ("|" if is_known else ":") if is_upright else ("=" if is_known else "-")
    return ("┃" if is_known else "╏") if is_upright else ("━" if is_known else "╍")


def draw_joint(borders: Borders, row: int, column: int, glyphs: Glyphs) -> str:
    """Return the character where the edges around the upper left corner of a cell meet."""
    up = (row - 1, column) in borders.before
    down = (row, column) in borders.before
    left = (row, column - 1) in borders.above
    right = (row, column) in borders.above
    if not (up or down or left or right):
        return " "
    if glyphs.name == "ascii":
        return "+"
    return _JOINTS[up, down, left, right]


_JOINTS = {
    (up, down, left, right): character
    for character, sides in {
        "━": "lr l r",
        "┃": "ud u d",
        "┏": "dr",
        "┓": "dl",
        "┗": "ur",
        "┛": "ul",
        "┣": "udr",
        "┫": "udl",
        "┳": "dlr",
        "┻": "ulr",
        "╋": "udlr",
    }.items()
    for side in sides.split()
    for up, down, left, right in [tuple(letter in side for letter in "udlr")]
}


# A cell with the edge before it and the bracket after it.
COLUMN_CELLS = TILE_CELLS + 2
Look = CellLook | Role


class Part(NamedTuple):
    """A run of text in one look."""

    text: str
    look: Look
    is_chosen: bool = False
    is_underlined: bool = False


class ShownGrid(NamedTuple):
    grid: SweepGrid
    drawn: DrawnGrid
    borders: Borders
    best: SweepCell | None
    # Width of the row names.
    label_cells: int

    @property
    def rows(self) -> tuple[int, ...]:
        """TP of each row."""
        return self.drawn.rows

    @property
    def columns(self) -> tuple[int, ...]:
        """PP of each column."""
        return self.drawn.columns


class Window(NamedTuple):
    """The visible part of a grid, and what its cells show."""

    top: int
    left: int
    # Rows.
    down: int
    # Columns.
    across: int
    # Two where the staircase has a line of its own.
    lines_a_row: int
    # Place of the mark.
    row: int
    column: int
    mode: SweepMode = "memory"
    # The cells that `difference` subtracts.
    first: Mapping[Place, SweepCell] | None = None


def prepare_grid(grid: SweepGrid) -> ShownGrid:
    drawn = choose_cells(grid)
    label_cells = len("  TP  ") + len(str(max(drawn.rows, default=1)))
    return ShownGrid(grid, drawn, trace_borders(drawn), find_best(grid), label_cells)


def draw_lines(shown: ShownGrid, window: Window, glyphs: Glyphs) -> list[list[Part]]:
    columns = range(window.left, min(window.left + window.across, len(shown.columns)))
    lines = [_draw_head(shown, window, columns)]
    for row in range(window.top, min(window.top + window.down, len(shown.rows))):
        if window.lines_a_row == 2:
            lines.append(_draw_rule(shown, row, columns, glyphs))
        label = f"  TP {shown.rows[row]}".ljust(shown.label_cells)
        parts = [Part(label, "strong" if row == window.row else "muted")]
        for column in columns:
            parts += _draw_cell(shown, window, row, column, glyphs)
        lines.append(parts)
    return lines


def _draw_head(shown: ShownGrid, window: Window, columns: range) -> list[Part]:
    parts = [Part(" " * shown.label_cells, "muted")]
    for column in columns:
        value = shown.columns[column]
        text = f"PP {value}" if column == columns.start else str(value)
        parts.append(Part(f"{text:>{COLUMN_CELLS - 1}} ", "strong" if column == window.column else "muted"))
    return parts


def _draw_rule(shown: ShownGrid, row: int, columns: range, glyphs: Glyphs) -> list[Part]:
    """Return the line above a row, which has the staircase."""
    text = " " * shown.label_cells
    for column in columns:
        edge = draw_edge(shown.borders.above.get((row, column)), glyphs, is_upright=False)
        text += draw_joint(shown.borders, row, column, glyphs) + edge * (COLUMN_CELLS - 1)
    return [Part(text, "strong")]


def _draw_cell(shown: ShownGrid, window: Window, row: int, column: int, glyphs: Glyphs) -> list[Part]:
    place = shown.rows[row], shown.columns[column]
    cell = shown.drawn.cells[place]
    first = None if window.first is None else window.first.get(place)
    tile = make_tile(cell, window.mode, shown.grid.capacity_bytes, glyphs, first)
    text = mark_best(tile.text) if cell is shown.best and window.mode != "difference" else tile.text
    is_chosen = (row, column) == (window.row, window.column)
    edge = draw_edge(shown.borders.before.get((row, column)), glyphs, is_upright=True)
    is_underlined = window.lines_a_row == 1 and (row + 1, column) in shown.borders.above
    body = f"{text:>{TILE_CELLS}}{']' if is_chosen else ' '}"
    return [Part("[" if is_chosen else edge, "strong"), Part(body, tile.look, is_chosen, is_underlined)]
