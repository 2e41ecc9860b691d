"""Allocated and reserved bytes of a file over time, from 0 to a scale; time, steps and errors below it."""

from collections.abc import Iterator, Sequence

from ...analyzers.level_history import LevelHistory, cut_columns, locate_moment
from ...engine.units import format_bytes
from .glyphs import Glyphs
from .graphs import Layers, draw_layers
from .numbers import span_text
from .spans import Line, Role, Span, right_text

# Cells at the right for the scale.
SCALE_CELLS = 10
LEAST_STEP_CELLS = 10
_PITCHES = tuple(factor * 10**power for power in range(9) for factor in (1, 2, 5))


def draw_level_graph(
    history: LevelHistory,
    scale_bytes: int,
    size: tuple[int, int],
    glyphs: Glyphs,
    *,
    failed_at: Sequence[float] = (),
    steps: Sequence[tuple[float, int]] = (),
    cursors: Sequence[float] = (),
    ends: tuple[str, str] | None = None,
) -> list[Line]:
    """Return the graph with its axis below and its scale at the right, in `size` (cells, rows).

    `failed_at` are moments of out-of-memory errors; `steps` are moments at which steps began, and their
    numbers. `cursors` are moments that are marked in the graph and on the axis, the first one most clearly.
    `ends` says when a part of a history begins and ends; None for a whole one.
    """
    cells = max(1, size[0] - SCALE_CELLS - 2)
    marks = list(_place_steps(history, steps, cells))
    rows = max(1, size[1] - (2 if marks else 1))
    buckets = [Layers(*column, None, None) for column in cut_columns(history, cells)]
    graph = draw_layers(buckets, float(scale_bytes), rows, glyphs)
    labels = {rows - 1: "0", 0: format_bytes(scale_bytes)}
    columns = [place for moment in cursors if (place := locate_moment(history, moment, cells)) is not None]
    graph = [_mark_columns(row, columns, glyphs) for row in graph]
    lines = [
        [Span(" "), *row, Span(right_text(labels.get(number, ""), SCALE_CELLS, glyphs.ellipsis), "faint")]
        for number, row in enumerate(graph)
    ]
    places = {place for moment in failed_at if (place := locate_moment(history, moment, cells)) is not None}
    axis = list(_draw_axis(history, cells, glyphs, {place for place, _ in marks}, places, columns, ends))
    for place in reversed(columns):
        axis[place] = Span(glyphs.pointer, "accent" if place == columns[0] else "strong")
    return [*lines, [Span(" "), *axis], *([[Span(" "), *_name_steps(marks)]] if marks else [])][: size[1]]


def _mark_columns(row: Line, columns: Sequence[int], glyphs: Glyphs) -> Line:
    """Return a row in which the empty cells of some columns have a line."""
    if not columns:
        return row
    cells = [Span(character, span.role) for span in row for character in span.text]
    for place in columns:
        if cells[place].text == " ":
            cells[place] = Span(glyphs.limit, "muted")
    return cells


def _draw_axis(
    history: LevelHistory,
    cells: int,
    glyphs: Glyphs,
    ticks: set[int],
    failures: set[int],
    cursors: Sequence[int],
    ends: tuple[str, str] | None,
) -> Iterator[Span]:
    """Yield the axis: how far back it goes or its ends, ticks for steps, and marks for out-of-memory errors.

    A word in which a cursor stands is left out.
    """
    left = f"{_describe_start(history) if ends is None else ends[0]} "
    if min(cursors, default=cells) < len(left):
        left = ""
    right = " end" if max(failures, default=0) < cells - len(" end") else " out of memory "
    if ends is not None:
        right = f" {ends[1]}"
    if max(cursors, default=0) >= cells - len(right):
        right = ""
    text = (left.ljust(max(0, cells - len(right)), glyphs.rule) + right)[-cells:]
    for place, character in enumerate(text):
        role: Role = "faint" if character == glyphs.rule else "muted"
        if place in failures:
            yield Span(glyphs.risk("critical"), "critical")
        elif place in ticks and character == glyphs.rule:
            yield Span(glyphs.tick, "muted")
        else:
            yield Span(character, role)


def _describe_start(history: LevelHistory) -> str:
    if not history.has_times:
        return f"{history.duration:,.0f} events"
    return f"{history.duration:.1f} s" if history.duration < 20 else span_text(history.duration)


def _place_steps(
    history: LevelHistory, steps: Sequence[tuple[float, int]], cells: int
) -> Iterator[tuple[int, int]]:
    """Yield the cells of steps with round numbers, as many as have room for them."""
    found = [
        (place, number)
        for moment, number in steps
        if (place := locate_moment(history, moment, cells)) is not None
    ]
    if not found:
        return
    cells_a_step = (found[-1][0] - found[0][0]) / max(1, found[-1][1] - found[0][1])
    pitch = next(pitch for pitch in _PITCHES if pitch * max(cells_a_step, 1e-6) >= LEAST_STEP_CELLS)
    end = -1
    for place, number in found:
        if number % pitch == 0 and place > end:
            yield place, number
            end = place + len(f"{number:,}") + (len("step ") if end < 0 else 0)


def _name_steps(marks: Sequence[tuple[int, int]]) -> Iterator[Span]:
    text = ""
    for place, number in marks:
        text = f"{text.ljust(place)}{'' if text else 'step '}{number:,}"
    yield Span(text, "muted")
