"""The segment map of a training process with what it comes to, its age, and its largest live stacks."""

from typing import NamedTuple

from ...analyzers.segments import SegmentSummary, summarize_segments
from ...engine.model import LiveStack, RankSample, SegmentMap
from ...engine.units import format_age, format_bytes
from ..draw.glyphs import Glyphs
from ..draw.segment_map import draw_segment_map
from ..draw.spans import Line, Span, right_text
from ..draw.stacked_bar import wrap_pieces

MOST_STACKS = 10
ON_PROCESSORS = "No segment map: tensors in host memory have no caching allocator."
NO_BACKEND = "No segment map yet: the process has not used a device so far."


class SegmentQuestion(NamedTuple):
    """What became of the question for the map of a process."""

    segment_map: SegmentMap | None = None
    """The newest map, or None."""
    refused: str | None = None
    """Why the newest question was not answered, in one sentence."""
    asked_s: float | None = None
    """Seconds since it was first asked without an answer; None where nothing was asked."""


class SegmentSection:
    """Draws the map of one process; keeps what it drew for as long as the map is the same."""

    def __init__(self, glyphs: Glyphs) -> None:
        self._glyphs = glyphs
        self._drawn_for: tuple[object, ...] = ()
        self._summary: SegmentSummary | None = None
        self._map_lines: list[Line] = []
        self._cell_bytes = 0

    def draw(
        self, rank: RankSample, question: SegmentQuestion, now_s: float, width: int, rows: int
    ) -> list[Line]:
        """Return the heading and the map, or why there is none.

        Args:
            rank: The training process.
            question: What became of the question for its map.
            now_s: Time of the newest sample.
            width: Cells across.
            rows: Rows that the map should fill if it can.
        """
        segment_map = question.segment_map
        if segment_map is None:
            return [[Span(f" {explain_absence(rank, question)}", "muted")]]
        key = (segment_map, width, rows)
        if len(self._drawn_for) != 3 or self._drawn_for[0] is not segment_map or self._drawn_for != key:
            self._drawn_for = key
            self._summary = summarize_segments(segment_map)
            self._map_lines, self._cell_bytes = draw_segment_map(segment_map, width, rows, self._glyphs)
        heading = self._heading(segment_map, question, now_s, width)
        return [*heading, *self._map_lines]

    def _heading(
        self, segment_map: SegmentMap, question: SegmentQuestion, now_s: float, width: int
    ) -> list[Line]:
        """Return what the segments come to, and how old that is."""
        summary = self._summary
        if summary is None:
            return []
        age = f"{format_age(max(0.0, now_s - segment_map.time_s))} old"
        scale = f"{format_bytes(self._cell_bytes)} a cell"
        pieces = describe_summary(summary, segment_map.segments_left_out)
        pieces.append([Span(f"{scale}, {age}", "muted")])
        if question.refused:
            pieces.append([Span(question.refused, "medium")])
        lines = wrap_pieces([[*piece, Span(" ")] for piece in pieces], max(1, width - 1))
        return [[Span(" "), *line] for line in lines]


def describe_summary(summary: SegmentSummary, left_out: int = 0) -> list[Line]:
    """Return what segments come to, in pieces: how many, how much is stranded, the largest free block.

    Args:
        summary: The segments, added up.
        left_out: Segments that are not among them.
    """
    pieces: list[Line] = [[Span("segments", "strong")]]
    pieces.append([Span("large ", "muted"), Span(f"{summary.large:,}")])
    pieces.append([Span("small ", "muted"), Span(f"{summary.small:,}")])
    if summary.private:
        pieces.append([Span("private ", "muted"), Span(f"{summary.private:,}")])
    if summary.stranded_bytes:
        held = f"{summary.stranded_segments:,} of them hold {format_bytes(summary.stranded_bytes)} stranded"
        pieces.append([Span(held, "medium")])
    if summary.awaiting_bytes:
        pieces.append([Span("awaiting a stream ", "muted"), Span(format_bytes(summary.awaiting_bytes))])
    pieces.append([Span("largest free block ", "muted"), Span(format_bytes(summary.largest_free_bytes))])
    if left_out:
        pieces.append([Span(f"{left_out:,} segments left out", "medium")])
    return pieces


def explain_absence(rank: RankSample, question: SegmentQuestion) -> str:
    """Return why there is no map of a process, in one sentence."""
    if rank.backend == "cpu" and not rank.is_simulated:
        return ON_PROCESSORS
    if rank.backend is None:
        return NO_BACKEND
    if question.refused:
        return f"No segment map: {question.refused}"
    if rank.state != "ok":
        return f"No segment map: the process {'has ended' if rank.state == 'ended' else 'is silent'}."
    if question.asked_s is None:
        return "No segment map: the connection is not live."
    waiting = f" for {format_age(question.asked_s)}" if question.asked_s >= 2.0 else ""
    return f"Segment map asked for, waiting{waiting}."


def draw_stacks(stacks: tuple[LiveStack, ...], width: int, glyphs: Glyphs) -> list[Line]:
    """Return the largest live blocks by the place that allocated them, a line each; nothing without any."""
    if not stacks:
        return []
    lines: list[Line] = [[Span(" largest live memory by the line that allocated it", "strong")]]
    for stack in stacks[:MOST_STACKS]:
        figure = right_text(format_bytes(stack.size_bytes), 10, glyphs.ellipsis)
        count = right_text(f"{stack.count:,} ×", 9, glyphs.ellipsis)
        lines.append([Span(f" {figure}", "strong"), Span(f"{count}  ", "muted"), Span(name_place(stack))])
    return lines


def name_place(stack: LiveStack) -> str:
    """Return the innermost line of the program that is not PyTorch's own, with its function."""
    from ...analyzers.segments import is_of_torch  # loads nothing heavy

    found = next((frame for frame in stack.stack if not is_of_torch(frame[0])), None)
    found = found or (stack.stack[0] if stack.stack else None)
    if found is None:
        return "unknown line"
    file, line, function = found
    return f"{file}:{line} {function}"
