"""How findings about a sweep name layouts and amounts."""

from collections.abc import Iterable, Sequence

from ....engine.units import GIB
from .model import Place, SweepCell

_MOST_NAMED = 6


def name_cell(cell: SweepCell) -> str:
    """Return a layout as people say it; a real run and its simulation are told apart."""
    kind = "" if cell.kind_word is None else f" ({cell.kind_word})"
    return f"TP {cell.tp} × PP {cell.pp}{kind}"


def name_cells(cells: Sequence[SweepCell]) -> str:
    """Return layouts, the first of them by name."""
    shown = ", ".join(name_cell(cell) for cell in cells[:_MOST_NAMED])
    return shown if len(cells) <= _MOST_NAMED else f"{shown} and {len(cells) - _MOST_NAMED:,} more"


def show_gib(value_bytes: float | None) -> str:
    """Return bytes in GiB."""
    return "—" if value_bytes is None else f"{value_bytes / GIB:.1f} GiB"


def list_places(cells: Iterable[SweepCell]) -> tuple[Place, ...]:
    """Return TP and PP of some cells."""
    return tuple(dict.fromkeys(cell.place for cell in cells))


def count(number: int, noun: str) -> str:
    """Return a number of things."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
