"""Base of every screen that draws snapshots: title, verdict, keys, and the age of the values."""

from collections import deque
from collections.abc import Callable, Iterator

from textual.reactive import reactive
from textual.timer import Timer

from ...analyzers.sentence import Sentence
from ...analyzers.verdict import Remedy, Verdict, summarize
from ...engine.clock import Clock
from ...engine.history import History
from ...engine.viewer.snapshot import Snapshot
from ..frame.known_nodes import NodePlace
from ..terminal.compositor import ThriftyScreen
from ..widgets.one_line import KeyLine
from ..widgets.replay_words import judge_comparison, judge_part
from ..widgets.time_bar import OverviewLine, TimeBar
from ..widgets.title_line import TitleLine
from ..widgets.verdict_line import VerdictLine
from ..widgets.verdict_words import describe_silence, describe_trouble

WINDOW_S = 60.0


class RecentCount:
    """Keeps a running total for a minute."""

    def __init__(self, window_s: float = WINDOW_S) -> None:
        self._window_s = window_s
        self._totals: deque[tuple[float, int]] = deque([(float("-inf"), 0)])

    def grow(self, total: int, now_s: float) -> int:
        """Add a total (it never decreases) at a monotonic time, and return its growth within the window."""
        if total != self._totals[-1][1]:
            self._totals.append((now_s, total))
        before = self._totals[0][1]
        while len(self._totals) > 1 and self._totals[1][0] <= now_s - self._window_s:
            self._totals.popleft()
            before = self._totals[0][1]
        return total - before


AGE_TICK_S = 1.0
TIME_BAR_FROM_ROWS = 8
OVERVIEW_FROM_ROWS = 24
# Length of a replay from which the graphs show a part of it only.
OVERVIEW_FROM_S = 1800.0
WORKING_OUT = Verdict("unknown", Sentence((("Computing the verdict of this moment…", "Computing…"),)))


class SnapshotScreen(ThriftyScreen[None]):
    """Base of the screens that draw the snapshots of a node."""

    snapshot: reactive[Snapshot] = reactive(Snapshot, repaint=False)
    # Snapshots that a newer one replaced before they were drawn.
    frames_skipped: reactive[int] = reactive(0, repaint=False)
    # Position of the node among others; None where it is the only one.
    place: reactive[NodePlace | None] = reactive(None, repaint=False)
    # Time of the sample at which the view was frozen, or None.
    paused_since_s: reactive[float | None] = reactive(None, repaint=False)

    def __init__(self, history: History, clock: Clock) -> None:
        super().__init__()
        # What the verdict names where the risk is unknown for want of a probe.
        self.remedy: Remedy | None = None
        self._history = history
        self._clock = clock
        self._arrived_s = clock.monotonic_s()
        self._skips = RecentCount()
        self._age_timer: Timer | None = None
        self._title = TitleLine(id="title")
        self._verdict = VerdictLine(id="verdict")
        self._time_bar = TimeBar(id="time-bar")
        self._keys = KeyLine(id="keys")
        self._overview = OverviewLine(id="overview")
        self._time_bar.display = self._overview.display = False

    def watch_snapshot(self) -> None:
        self._arrived_s = self._clock.monotonic_s()
        if self.is_mounted:
            self._show()

    def watch_paused_since_s(self) -> None:
        if self.is_mounted:
            self._show_title()

    def watch_place(self) -> None:
        if self.is_mounted:
            self._show_title()

    def follow(self, history: History) -> None:
        """Draw from the history of another node from the next snapshot on."""
        self._history = history

    def _show(self) -> None:
        raise NotImplementedError

    @property
    def _rows(self) -> int:
        """Rows without the time bar and the overview."""
        return self.size.height - self._time_bar.display - self._overview.display

    def _show_head(self) -> None:
        """Show the title and the verdict, and of a replay the time bar."""
        self._fit_time_bar()
        self._time_bar.show(self.snapshot.replay)
        self._overview.show(self.snapshot.replay)
        self._show_title()
        self._show_verdict()
        is_ageing = self.snapshot.connection == "lost" and self.snapshot.replay is None
        self._schedule_age(is_needed=is_ageing)

    def _fit_time_bar(self) -> None:
        """Show the bar of a replay, and of a long one its overview, where there is a row for each."""
        replay = self.snapshot.replay
        height = self.size.height
        self._time_bar.display = replay is not None and height >= TIME_BAR_FROM_ROWS
        is_long = replay is not None and replay.end_s - replay.start_s >= OVERVIEW_FROM_S
        has_overview = replay is not None and replay.overview is not None
        self._overview.display = is_long and has_overview and height >= OVERVIEW_FROM_ROWS

    def _show_title(self) -> None:
        skipped = self._skips.grow(self.frames_skipped, self._clock.monotonic_s())
        self._title.show(
            self.snapshot, frames_skipped=skipped, paused_since_s=self.paused_since_s, place=self.place
        )

    def _show_verdict(self) -> None:
        """Show the verdict, with the age of old values before it."""
        snapshot = self.snapshot
        replay = self.snapshot.replay
        silent_s = snapshot.silent_s
        if silent_s is not None and replay is None:
            silent_s += self._clock.monotonic_s() - self._arrived_s
        describe = describe_trouble if replay is None else describe_silence
        trouble = describe(snapshot.connection, silent_s, snapshot.reason)
        self.set_class(snapshot.connection == "lost", "-stale")
        if replay is not None and replay.is_catching_up:
            self._verdict.show(WORKING_OUT, trouble)
            return
        verdict = summarize(
            snapshot.sample,
            snapshot.findings,
            self._history.peak,
            snapshot.assessments,
            is_recorded=replay is not None,
            remedy=self.remedy,
        )
        if replay is not None:
            verdict = judge_part(judge_comparison(verdict, replay.comparison), replay.part)
        self._verdict.show(verdict, trouble)

    def _schedule_age(self, *, is_needed: bool) -> None:
        """Update the age while nothing arrives; no timer runs otherwise."""
        if is_needed and self._age_timer is None:
            self._age_timer = self.set_interval(AGE_TICK_S, self._show_verdict, name="age of the figures")
        elif not is_needed and self._age_timer is not None:
            self._age_timer.stop()
            self._age_timer = None

    def list_sorts(self) -> Iterator[tuple[str, str, Callable[[], None]]]:
        """Yield every order in which the screen can sort, for the palette: name, sentence, function."""
        yield from ()

    def action_notes(self) -> None:
        from .dialogs import NotesScreen

        self.app.push_screen(NotesScreen(self.snapshot.sample.notes if self.snapshot.sample else ()))
