"""The last steps of a training process as a small table, the newest at the right; and their named parts."""

from collections.abc import Sequence

from ...engine.model import PhaseReading, RankSample, StepReading
from ...engine.units import GIB, MIB
from ..draw.glyphs import Glyphs
from ..draw.numbers import duration_text
from ..draw.spans import Line, Span, fit_line

HEADING_CELLS = 10
WORDY_HEADING_CELLS = 24
WORDY_FROM_CELLS = 72
"""Cells of headings that say where a floor is taken, and the width from which they do."""
COLUMN_CELLS = 9
MOST_COLUMNS = 16
SMALL_BYTES = 4 * GIB
"""Below this, figures are told in MiB."""
PHASE_LEAST_CELLS = 12
"""Cells of the names of phases, at least."""


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


def draw_phases(rank: RankSample, width: int, glyphs: Glyphs) -> list[Line]:
    """Return a heading and a line for each `vramscope.phase`; nothing where the program names none.

    Before and after are of the newest call that was measured, the peak is the most of all calls. Its share is
    of the highest peak known: that of the newest step, or of any phase.

    Args:
        rank: The training process.
        width: Cells across.
        glyphs: Characters to draw with.
    """
    if not rank.phases:
        return []
    highest = max(phase.most_bytes or 0 for phase in rank.phases)
    if rank.step is not None and rank.step.peak_bytes is not None:
        highest = max(highest, rank.step.peak_bytes)
    unit, name = (MIB, "MiB") if highest < SMALL_BYTES else (GIB, "GiB")
    rows = [(f"phase, {name}", ["calls", "before", "after", "peak", "of peak"])]
    rows += [(phase.name, _phase_figures(phase, unit, highest, glyphs)) for phase in rank.phases]
    is_narrow = width < PHASE_LEAST_CELLS + 5 * COLUMN_CELLS
    shown = slice(1, 4) if is_narrow else slice(0, 5)
    most = max(PHASE_LEAST_CELLS, width - COLUMN_CELLS * (3 if is_narrow else 5))
    cells = min(most, max(PHASE_LEAST_CELLS, *(len(heading) + 2 for heading, _ in rows)))
    is_ascii = glyphs.unmeasured.isascii()
    lines: list[Line] = []
    for heading, figures in rows:
        named = fit_line([Span(f" {heading}", "muted")], cells, is_ascii=is_ascii, ellipsis=glyphs.ellipsis)
        text = "".join(figure.rjust(COLUMN_CELLS) for figure in figures[shown])
        lines.append([*named, Span(text, "text" if lines else "muted")])
    return lines


def _phase_figures(phase: PhaseReading, unit: int, highest: int, glyphs: Glyphs) -> list[str]:
    most = _figure(phase.most_bytes, unit, glyphs)
    is_bound = phase.most_bytes is not None and not phase.is_most_exact
    share = glyphs.unmeasured if not phase.most_bytes else f"{100 * phase.most_bytes / highest:.0f} %"
    return [
        f"{phase.calls:,}",
        _figure(phase.allocated_before_bytes, unit, glyphs),
        _figure(phase.allocated_after_bytes, unit, glyphs),
        f"{glyphs.at_least}{most}" if is_bound else most,
        f"{glyphs.at_least}{share}" if is_bound else share,
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
