"""Two runs over steps or time: A as a solid line, B as a dotted one, and where they diverge.

With many bins the line is the median of those on two cells: the difference between neighbouring
steps is noise here. The scale need not begin at zero: what matters is how far the runs are apart, and both of
its ends are labelled.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from statistics import median
from typing import NamedTuple

from ...engine.units import format_bytes
from .glyphs import Glyphs
from .spans import Line, Role, Span, right_text

SCALE_CELLS = 12
# Share of the highest value: where all values lie within it, the scale begins near the lowest.
ZOOM_SHARE = 0.5
MARGIN_SHARE = 0.08
ROLES: dict[str, Role] = {"": "text", "A": "fill", "B": "fill-high", "AB": "strong"}
# Braille dots of a cell's two columns from the top (Unicode, chapter 21.1).
_DOTS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
# A line bridges gaps of up to this many times the usual distance of two bins.
_FAR = 4


class Runs(NamedTuple):
    """What is drawn: values by position, None where unmeasured."""

    positions: Sequence[float]
    a: Sequence[float | None]
    b: Sequence[float | None]
    parts_at: float | None
    # What the axis says at its left end.
    start: str
    end: str
    # What the axis says where the runs diverge.
    parting: str


class Scale(NamedTuple):
    """Bytes at both ends of the axis."""

    low: float
    high: float


def draw_runs(runs: Runs, size: tuple[int, int], glyphs: Glyphs) -> list[Line]:
    """Return the graph with its scale at the right and its axis below, in `size` (cells, rows)."""
    cells = max(2, size[0] - SCALE_CELLS - 2)
    rows = max(1, size[1] - 1)
    across, up = (2, 4) if glyphs.is_braille else (1, 1)
    places = _place(runs.positions, cells * across)
    a, b = (_fill(places, values, 2 * across) for values in (runs.a, runs.b))
    scale = _choose_scale([*a.values(), *b.values()])
    dots_a, dots_b = (_level(values, scale, rows * up) for values in (a, b))
    cut = _find_column(runs, cells)
    drawn = {"A": set(_join(dots_a)), "B": set(_join(dots_b))}
    if glyphs.is_braille:
        first = sum(next(iter(dots_b.items()), (0, 0)))
        drawn["B"] = {(x, y) for x, y in drawn["B"] if (x + y - first) % 2 == 0}
    tags = {0: format_bytes(round(scale.high)), rows - 1: format_bytes(round(scale.low))}
    tags |= _tag_ends({"A": (a, dots_a), "B": (b, dots_b)}, up)
    lines = [
        [
            Span(" "),
            *_draw_row(row, cells, drawn, cut, glyphs),
            Span(right_text(tags.get(row, ""), SCALE_CELLS, glyphs.ellipsis), "muted"),
        ]
        for row in range(rows)
    ]
    return [*lines, [Span(" "), *_draw_axis(runs, cells, cut, glyphs)]]


def _place(positions: Sequence[float], columns: int) -> list[int]:
    if not positions or positions[-1] <= positions[0]:
        return [0] * len(positions)
    factor = (columns - 1) / (positions[-1] - positions[0])
    return [round((position - positions[0]) * factor) for position in positions]


def _fill(places: Sequence[int], values: Sequence[float | None], bucket: int) -> dict[int, float]:
    """Return the value of each column: the median of a bucket's bins in its middle, a straight line between.

    `places` are the columns of the bins; `bucket` is in columns.
    """
    usual = (places[-1] - places[0]) / max(1, len(places) - 1) if places else 1.0
    width = bucket if usual < bucket / 2 else 1
    found: dict[int, list[float]] = {}
    for place, value in zip(places, values, strict=True):
        if value is not None:
            found.setdefault(place // width * width + width // 2, []).append(value)
    filled = {place: median(known) for place, known in found.items()}
    for left, right in pairwise(sorted(filled)):
        if right - left <= max(_FAR * usual, width):
            step = (filled[right] - filled[left]) / (right - left)
            filled.update({at: filled[left] + step * (at - left) for at in range(left + 1, right)})
    return dict(sorted(filled.items()))


def _choose_scale(values: Sequence[float]) -> Scale:
    low = min(values, default=0.0)
    high = max(values, default=1.0)
    if high - low >= ZOOM_SHARE * high:
        return Scale(0.0, high or 1.0)
    margin = max(MARGIN_SHARE * (high - low), 0.005 * high)
    return Scale(max(0.0, low - margin), high + margin)


def _level(values: dict[int, float], scale: Scale, dots: int) -> dict[int, int]:
    span = scale.high - scale.low
    return {
        place: dots - 1 - round((value - scale.low) / span * (dots - 1)) for place, value in values.items()
    }


def _join(dots: dict[int, int]) -> Iterator[tuple[int, int]]:
    for x, y in dots.items():
        ends = [y, *((y + dots[near]) // 2 for near in (x - 1, x + 1) if near in dots)]
        yield from ((x, at) for at in range(min(ends), max(ends) + 1))


def _find_column(runs: Runs, cells: int) -> int | None:
    if runs.parts_at is None or not runs.positions:
        return None
    length = runs.positions[-1] - runs.positions[0]
    share = (runs.parts_at - runs.positions[0]) / length if length > 0 else 0.0
    return min(cells - 1, max(0, round(share * (cells - 1))))


def _draw_row(
    row: int, cells: int, drawn: dict[str, set[tuple[int, int]]], cut: int | None, glyphs: Glyphs
) -> Line:
    line: Line = []
    for cell in range(cells):
        text, who = (_draw_braille if glyphs.is_braille else _draw_letter)(cell, row, drawn)
        role = ROLES[who]
        if not who and cell == cut:
            text = "│" if glyphs.name == "unicode" else "|"
            role = "muted"
        if line and line[-1].role == role:
            line[-1] = Span(line[-1].text + text, role)
        else:
            line.append(Span(text, role))
    return line


def _draw_braille(cell: int, row: int, drawn: dict[str, set[tuple[int, int]]]) -> tuple[str, str]:
    bits = 0
    who = ""
    for name, dots in drawn.items():
        own = sum(_DOTS[x][y] for x in range(2) for y in range(4) if (2 * cell + x, 4 * row + y) in dots)
        bits = bits | own
        who = who + (name if own else "")
    return (chr(0x2800 + bits), who) if bits else (" ", "")


def _draw_letter(cell: int, row: int, drawn: dict[str, set[tuple[int, int]]]) -> tuple[str, str]:
    who = "".join(name for name, dots in drawn.items() if (cell, row) in dots)
    return ("*" if len(who) > 1 else who or " "), who


def _tag_ends(ends: dict[str, tuple[dict[int, float], dict[int, int]]], up: int) -> dict[int, str]:
    """Return the labels at the right, by row, where the runs end."""
    labels: dict[int, list[str]] = {}
    for name, (values, dots) in ends.items():
        if dots:
            place = max(dots)
            labels.setdefault(dots[place] // up, []).append(f"{name} {format_bytes(round(values[place]))}")
    return {row: names[0] if len(names) == 1 else "A B" for row, names in labels.items()}


def _draw_axis(runs: Runs, cells: int, cut: int | None, glyphs: Glyphs) -> Iterator[Span]:
    left = f"{runs.start} "
    right = f" {runs.end}"
    if cut is None:
        yield Span(_label_axis(left, "", right, cells, -1, glyphs.rule), "muted")
        return
    text = _label_axis(left, f" {runs.parting} ", right, cells, cut, glyphs.rule)
    yield Span(text[:cut], "muted")
    yield Span(glyphs.tick, "fill-high")
    yield Span(text[cut + 1 :], "muted")


def _label_axis(left: str, words: str, right: str, cells: int, cut: int, rule: str) -> str:
    """Return the axis with words next to the cut (-1: none); an end that would be touched is left out
    whole.
    """
    at = cut + 1 if cut + 1 + len(words) <= cells - len(right) else cut - len(words)
    if at < len(left) and at <= cut and cut + 1 + len(words) <= cells:
        at = cut + 1
    if at < 0:
        at = cut + 1
        words = ""
    first = min(at, cut)
    last = max(at + len(words), cut + 1)
    axis = list(rule * cells)
    for place, label in ((0, left), (cells - len(right), right)):
        if label == right and place < len(left):
            continue
        if place >= last or place + len(label) <= first:
            axis[place : place + len(label)] = label
    axis[at : at + len(words)] = words
    return "".join(axis)[:cells]
