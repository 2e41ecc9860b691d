"""The time bar of a replay: where it is, how it plays, and the marks to jump to."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import groupby
from math import ceil, floor

from textual import events
from textual.message import Message

from ...engine.model import SEVERITIES, Severity
from ...engine.units import format_seconds
from ...engine.unmeasured import most_known
from ...engine.viewer.snapshot import ReplayMark, ReplayOverview, ReplayState
from ..draw.glyphs import Glyphs
from ..draw.numbers import span_text
from ..draw.pieces import Piece, measure_pieces
from ..draw.spans import Role
from ..draw.time_window import TimeWindow
from ..frame import keys
from .one_line import OneLine

LEAST_BAR_CELLS = 16
DAY_S = 86_400.0


class SpanLine(OneLine):
    """A line over the span of a replay; a click in it goes to that moment."""

    class MomentAsked(Message):
        def __init__(self, time_s: float) -> None:
            super().__init__()
            self.time_s = time_s

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._replay: ReplayState | None = None
        # The first cell of the bar, from the left of the text.
        self._bar_start = 0
        self._bar_cells = 0

    def on_click(self, event: events.Click) -> None:
        place = event.get_content_offset(self)
        cell = -1 if place is None else place.x - self._bar_start
        if self._replay is not None and 0 <= cell < self._bar_cells:
            event.stop()
            shown = window_of(self._replay)
            share = cell / max(1, self._bar_cells - 1)
            self.post_message(self.MomentAsked(shown.start + share * shown.length))


class TimeBar(SpanLine, can_focus=True, can_focus_children=False):
    """One line: state, moment, the span with its marks, its end; what has no room is left out."""

    BINDINGS = [*keys.TIME_BAR]
    DEFAULT_CSS = "TimeBar:focus { text-style: bold; }"

    def show(self, replay: ReplayState | None) -> None:
        self._replay = replay
        self._arrange()

    def on_resize(self) -> None:
        self._arrange()

    def _arrange(self) -> None:
        if self._replay is None or self.size.width <= 0:
            return
        left, right, room = fit_bar(self._replay, self.size.width)
        self._bar_start = measure_pieces(left) + 1
        self._bar_cells = room
        bar = [Piece(" "), *draw_bar(self._replay, room, self.glyphs), Piece(" ")] if room else []
        self.set_pieces([*left, *bar, *right])


def window_of(replay: ReplayState) -> TimeWindow:
    """Return the part of the time that the bar shows."""
    return TimeWindow(*(replay.window or (replay.start_s, replay.end_s)))


def fit_chart_s(replay: ReplayState | None, usual_s: float) -> float:
    """Return how many seconds charts show: those of the bar where it shows less than is usual."""
    return usual_s if replay is None or replay.window is None else min(usual_s, window_of(replay).length)


def fit_bar(replay: ReplayState, width: int) -> tuple[list[Piece], list[Piece], int]:
    """Return the texts left and right of the bar, with a blank between, and the cells of the bar.

    Without enough width there is no bar.
    """
    for left, right in _list_forms(replay):
        room = width - measure_pieces([*left, *right]) - 2
        if room >= LEAST_BAR_CELLS:
            return left, right, room
    return _describe_state(replay), [], 0


# Of marks that are no findings.
_SEVERITIES: dict[str, Severity] = {"oom": "critical", "error": "high"}


def draw_bar(replay: ReplayState, width: int, glyphs: Glyphs) -> list[Piece]:
    """Return the span as a line: a mark for each finding and error, and where the replay is.

    What is outside of a part that is zoomed into is not drawn.
    """
    shown = window_of(replay)
    at = _cell_of(replay.position_s, shown, width)
    is_past = replay.position_s > shown.end
    cells = [Piece(glyphs.rule, "accent" if cell < at or is_past else "faint") for cell in range(width)]
    for mark in sorted(replay.marks, key=_gravity):
        if replay.window is not None and not shown.holds(mark.time_s):
            continue
        severity = _SEVERITIES.get(mark.kind) or mark.severity or "low"
        sign = glyphs.tick if severity == "low" else glyphs.risk(severity)
        cells[_cell_of(mark.time_s, shown, width)] = Piece(sign, severity)
    if replay.window is None or shown.holds(replay.position_s):
        cells[at] = Piece(glyphs.full, "accent")
    return list(_join_equal(cells))


def _join_equal(cells: Sequence[Piece]) -> Iterator[Piece]:
    """Yield neighbours of one role as one piece."""
    run = cells[0]
    for cell in cells[1:]:
        if cell.role == run.role:
            run = run._replace(text=run.text + cell.text)
        else:
            yield run
            run = cell
    yield run


def _gravity(mark: ReplayMark) -> int:
    return len(SEVERITIES) if mark.severity is None else SEVERITIES.index(mark.severity)


def _cell_of(time_s: float, shown: TimeWindow, width: int) -> int:
    share = (time_s - shown.start) / shown.length if shown.length > 0 else 1.0
    return round(min(1.0, max(0.0, share)) * (width - 1))


def _list_forms(replay: ReplayState) -> Iterator[tuple[list[Piece], list[Piece]]]:
    """Yield the texts left and right of the bar, from the complete form to the shortest."""
    state = _describe_state(replay)
    extras = _describe_extras(replay)
    shown = window_of(replay)
    start = [Piece("  "), Piece(_format(shown.start, replay), "muted")]
    end = [Piece(_format(shown.end, replay), "muted")]
    yield [*state, *start], [*end, *extras]
    if replay.window is not None:
        yield [*state, *start], [*end, *_describe_zoom(replay)]
        yield state, _describe_zoom(replay)
    yield [*state, *start], end
    yield state, end
    yield state, []


def _describe_state(replay: ReplayState) -> list[Piece]:
    """Return whether it plays, how fast, and the moment; at the end, that it has ended."""
    role: Role = "medium" if replay.is_paused else "accent"
    word = "paused" if replay.is_paused else "playing"
    has_ended = replay.position_s >= replay.end_s and not replay.is_looping
    return [
        Piece("ended" if has_ended else f"{word} {replay.speed:g}×", role),
        Piece("  "),
        Piece(_format(replay.position_s, replay), "strong"),
    ]


def _describe_extras(replay: ReplayState) -> list[Piece]:
    words = ["loop"] if replay.is_looping else []
    words += ["as recorded"] if replay.is_as_recorded else []
    return [*_describe_zoom(replay), *(Piece(f"  {word}", "accent") for word in words)]


def _describe_zoom(replay: ReplayState) -> list[Piece]:
    """Return how much of the time the bar shows; nothing where that is all."""
    if replay.window is None:
        return []
    whole_s = replay.end_s - replay.start_s
    return [Piece(f"  {span_text(window_of(replay).length)} of {span_text(whole_s)}", "accent")]


def _format(time_s: float, replay: ReplayState) -> str:
    """Format a moment of the span; with its day where the span has several."""
    if replay.clock == "trace":
        return format_seconds(time_s)
    moment = datetime.fromtimestamp(time_s)
    days = {datetime.fromtimestamp(end_s).date() for end_s in (replay.start_s, replay.end_s)}
    if len(days) == 1:
        return f"{moment:%H:%M:%S}"
    is_long = window_of(replay).length > 3 * DAY_S
    return f"{moment:%d %b %H:%M}" if is_long else f"{moment:%d %b %H:%M:%S}"


# Share of the capacity from which a cell stands out.
FULL_SHARE = 0.95


class OverviewLine(SpanLine):
    """Shows most of the fullest device over the cells of the time bar below."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._drawn_for: tuple[object, ...] = ()
        self._drawn: list[Piece] = []

    def show(self, replay: ReplayState | None) -> None:
        self._replay = replay
        self._arrange()

    def on_resize(self) -> None:
        self._arrange()

    def _arrange(self) -> None:
        replay = self._replay
        if replay is None or replay.overview is None or self.size.width <= 0:
            return
        left, right, room = fit_bar(replay, self.size.width)
        self._bar_start = measure_pieces(left) + 1
        self._bar_cells = room
        key = replay.overview, window_of(replay), room
        if key != self._drawn_for:
            self._drawn_for = key
            self._drawn = list(draw_overview(replay.overview, replay, room, self.glyphs))
        name = _fit_name(measure_pieces(left), is_whole=replay.window is None)
        most = _describe_most(replay.overview, window_of(replay), measure_pieces(right))
        self.set_pieces([Piece(name, "muted"), Piece(" "), *self._drawn, Piece(" "), Piece(most, "muted")])


def draw_overview(
    overview: ReplayOverview, replay: ReplayState, width: int, glyphs: Glyphs
) -> Iterator[Piece]:
    """Yield the most of each cell's time as a level; blank where unmeasured.

    The bar spans the replay, or the part that is zoomed into; the node may cover only a part.
    """
    cells = [
        _draw_cell(_most_within(overview, window_of(replay), cell, width), overview, glyphs)
        for cell in range(width)
    ]
    for role, run in groupby(cells, key=lambda cell: cell.role):
        yield Piece("".join(cell.text for cell in run), role)


def _most_within(overview: ReplayOverview, shown: TimeWindow, cell: int, width: int) -> float | None:
    """Return the most in the time of a cell; its neighbours overlap, so that no minute is left out."""
    length_s = shown.length / max(1, width - 1)
    middle_s = shown.start + cell * length_s
    return _most_between(overview, TimeWindow(middle_s - length_s / 2, middle_s + length_s / 2))


def _most_between(overview: ReplayOverview, part: TimeWindow) -> float | None:
    first = floor((part.start - overview.start_s) / overview.step_s)
    last = ceil((part.end - overview.start_s) / overview.step_s)
    return most_known(overview.shares[max(0, first) : max(0, last)])


def _draw_cell(share: float | None, overview: ReplayOverview, glyphs: Glyphs) -> Piece:
    if share is None:
        return Piece(" ")
    level = min(len(glyphs.levels) - 1, int(share * len(glyphs.levels)))
    role: Role = "high" if overview.is_of_capacity and share >= FULL_SHARE else "muted"
    return Piece(glyphs.levels[level], role)


def _fit_name(width: int, *, is_whole: bool) -> str:
    """Return what the line shows, in as many cells as the text before the bar has."""
    longest = "fullest device, whole recording" if is_whole else "fullest device, this part"
    names = (longest, "fullest device", "memory", "")
    return next(name for name in names if len(name) <= width).rjust(width)


def _describe_most(overview: ReplayOverview, shown: TimeWindow, width: int) -> str:
    """Return the most of the time shown where it is known in percent and there is room."""
    most = _most_between(overview, shown)
    text = f"peak {100 * most:.0f} %" if overview.is_of_capacity and most is not None else ""
    return text if len(text) <= width else ""
