"""The last steps of a training process as a small table, the newest at the right."""

from collections.abc import Sequence

from ...engine.model import StepReading
from ...engine.units import GIB, MIB
from ..drawing.glyphs import Glyphs
from ..drawing.numbers import duration_text
from ..drawing.spans import Line, Span

HEADING_CELLS = 10
WORDY_HEADING_CELLS, WORDY_FROM_CELLS = 24, 72
"""Cells of headings that say where a floor is taken, and the width from which they do."""
COLUMN_CELLS = 9
MOST_COLUMNS = 16
SMALL_BYTES = 4 * GIB
"""Below this, figures are told in MiB."""


def draw_steps(steps: Sequence[StepReading], width: int, glyphs: Glyphs) -> list[Line]:
    """Return a heading, durations, floors and peaks of as many steps as fit; nothing without any.

    Args:
        steps: Oldest first.
        width: Cells across.
        glyphs: Characters to draw with.
    """
    is_wordy = width >= WORDY_FROM_CELLS
    cells = WORDY_HEADING_CELLS if is_wordy else HEADING_CELLS
    count = min(MOST_COLUMNS, max(1, (width - cells) // COLUMN_CELLS))
    shown = steps[-count:]
    if not shown:
        return []
    unit, name = (MIB, "MiB") if _most(shown) < SMALL_BYTES else (GIB, "GiB")
    floors = [_figure(step.floor_bytes, unit, glyphs) for step in shown]
    return [
        _row("step", [f"{step.index:,}" for step in shown], cells, is_heading=True),
        _row("took", [duration_text(step.duration_s, glyphs) for step in shown], cells),
        _row(f"floor{' at step ends' if is_wordy else ''} {name}", floors, cells),
        _row(f"peak {name}", [_peak(step, unit, glyphs) for step in shown], cells),
    ]


def _row(heading: str, figures: Sequence[str], cells: int, *, is_heading: bool = False) -> Line:
    text = "".join(figure.rjust(COLUMN_CELLS) for figure in figures)
    return [Span(f" {heading}".ljust(cells), "muted"), Span(text, "muted" if is_heading else "text")]


def _most(steps: Sequence[StepReading]) -> int:
    return max((step.peak_bytes or step.floor_bytes or 0 for step in steps), default=0)


def _figure(value_bytes: int | None, unit: int, glyphs: Glyphs) -> str:
    if value_bytes is None:
        return glyphs.unmeasured
    return f"{value_bytes / unit:,.{0 if unit == MIB else 1}f}"


def _peak(step: StepReading, unit: int, glyphs: Glyphs) -> str:
    """Return the peak; one that was only sampled is the least that it can have been."""
    figure = _figure(step.peak_bytes, unit, glyphs)
    return figure if step.is_peak_exact or step.peak_bytes is None else f"{glyphs.at_least}{figure}"
