"""Sweeps over TP and PP: the state of every layout, and what the sweep as a whole says."""

from .findings import find_all
from .model import STATE_WORDS, STATES, CellState, Place, SweepCell, SweepFinding, SweepGrid, make_grid

__all__ = [
    "STATES",
    "STATE_WORDS",
    "CellState",
    "Place",
    "SweepCell",
    "SweepFinding",
    "SweepGrid",
    "find_all",
    "make_grid",
]
