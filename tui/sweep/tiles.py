"""What stands in a cell of a sweep's grid: a figure or the word of its state, in six terminal cells."""

from typing import Literal, NamedTuple, get_args

from ...analyzers.planning.sweep import CellState, SweepCell
from ...engine.units import GIB
from ..draw.glyphs import Glyphs
from ..draw.spans import Role
from .looks import CellLook, look_of_error, look_of_share

SweepMode = Literal["memory", "error", "theory", "difference"]
MODES: tuple[SweepMode, ...] = get_args(SweepMode)
MODE_WORDS: dict[SweepMode, str] = {
    "memory": "measured GiB",
    "error": "error of theory, %",
    "theory": "theory, GiB",
    "difference": "the second less the first, GiB",
}
TILE_CELLS = 6
STATE_WORDS: dict[CellState, str] = {
    "ok": "ran",
    "oom": "OOM",
    "failed": "fail",
    "not_run": "",
    "invalid": "n/a",
    "running": "…",
}
STATE_ROLES: dict[CellState, Role] = {
    "ok": "text",
    "oom": "critical",
    "failed": "medium",
    "not_run": "faint",
    "invalid": "muted",
    "running": "accent",
}
_STATE_RISKS: dict[CellState, str] = {"oom": "critical", "failed": "medium"}
"""The glyphs of these levels of risk stand for what did not run."""


class Tile(NamedTuple):
    """What stands in one cell."""

    text: str
    look: CellLook | Role


def make_tile(
    cell: SweepCell, mode: SweepMode, capacity_bytes: int, glyphs: Glyphs, first: SweepCell | None = None
) -> Tile:
    """Return what stands in a cell.

    Args:
        cell: Of the grid that is drawn.
        mode: What is shown of it.
        capacity_bytes: Of a device.
        glyphs: Characters to draw with.
        first: The same layout in the sweep that `difference` is taken from; None where it has none.
    """
    if mode == "difference":
        return _make_difference(cell, first, capacity_bytes, glyphs)
    if mode == "error" and cell.error_percent is not None:
        return Tile(_sign(cell.error_percent, 0), look_of_error(cell.error_percent))
    value_bytes = cell.theory_bytes if mode == "theory" else cell.actual_bytes
    if mode == "error" or value_bytes is None:
        return say_state(cell, glyphs)
    mark = "!" if cell.is_mispredicted else " "
    return Tile(f"{_show(value_bytes)}{mark}", look_of_share(value_bytes / capacity_bytes))


def say_state(cell: SweepCell, glyphs: Glyphs) -> Tile:
    """Return the state of a cell as its glyph and its word."""
    risk = _STATE_RISKS.get(cell.state)
    word = STATE_WORDS[cell.state]
    if cell.state == "ok":
        word = f"{word} {glyphs.unmeasured}"
    return Tile(
        f"{glyphs.risk(risk)} {word}" if risk else word or glyphs.risk("low"), STATE_ROLES[cell.state]
    )


def mark_best(text: str) -> str:
    """Return the text of a tile with the arrows of the best one, as far as they fit."""
    bare = text.rstrip()
    return f"▸{bare}◂" if len(bare) + 2 <= TILE_CELLS else f"▸{bare}"[:TILE_CELLS]


def _make_difference(cell: SweepCell, first: SweepCell | None, capacity_bytes: int, glyphs: Glyphs) -> Tile:
    """Return how much more a layout holds than in the first sweep, or what became of it."""
    if first is None:
        return Tile("only 2", "faint")
    if cell.actual_bytes is not None and first.actual_bytes is not None:
        apart_bytes = cell.actual_bytes - first.actual_bytes
        percent = 100 * apart_bytes / first.actual_bytes if first.actual_bytes else 0.0
        return Tile(_sign(apart_bytes / GIB, 1), look_of_error(-percent))
    if cell.state == first.state:
        return say_state(cell, glyphs)._replace(look="faint")
    before, after = (_shorten(it.state, glyphs) for it in (first, cell))
    return Tile(f"{before}→{after}", "strong")


def _shorten(state: CellState, glyphs: Glyphs) -> str:
    """Return a state in two terminal cells at most; what was not tried, or cannot be, is a dot."""
    if state == "ok":
        return "ok"
    return glyphs.risk(_STATE_RISKS.get(state, "low")) if state != "running" else STATE_WORDS[state]


def _show(value_bytes: int) -> str:
    value = value_bytes / GIB
    return f"{value:.1f}" if value < 999.95 else f"{value:,.0f}"[:5]


def _sign(value: float, places: int) -> str:
    text = f"{value:+.{places}f}"
    text = text if len(text) < TILE_CELLS else f"{value:+.0f}"
    return f"{text} " if len(text) < TILE_CELLS else f"{text[0]}>999 "
