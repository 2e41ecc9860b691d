"""What a server has scraped since the last question, and how often it scrapes; waits for nothing."""

import math
from collections.abc import Callable, Iterator
from contextlib import suppress
from statistics import median

from ..clock import Clock, SystemClock
from ..errors import ServerUnreachableError, SourceUnavailableError
from ..model import Assessment, Finding, Sample
from .assembly import Assembler
from .readings import LOOKED_FOR, SELECTOR
from .server import PrometheusServer, Series

# How far back scrapes are searched at first: a server that scrapes once a minute needs the second.
FIRST_WINDOWS_S = (120, 900)
# How much of the past a view begins with.
PAST_S = 1800.0
# Values in one answer; of many devices a shorter past is shown.
MOST_POINTS = 500_000
LEAST_INTERVAL_S = 0.1
MOST_INTERVAL_S = 300.0
# Until something was scraped twice.
UNKNOWN_INTERVAL_S = 5.0
MOST_WINDOW_S = 900.0
SILENT_INTERVALS = 3.0
# A node that was not scraped for so many intervals, and so long, is silent.
LEAST_SILENT_S = 5.0
LATEST_AHEAD_S = 300.0
# How far a scrape may be ahead of the date of the answer, and of our clock if there is no date.
UNKNOWN_AHEAD_S = 86_400.0
# A clock that differs by less counts as ours: the date of an answer has whole seconds.
TRUSTED_SKEW_S = 2.0


class PrometheusFollower:
    """Asks a server again and again; use from one thread.

    Args:
        has_past: Begin with recent scrapes, not with the newest alone.
    """

    def __init__(
        self, server: PrometheusServer, *, has_past: bool = True, clock: Clock | None = None
    ) -> None:
        self._server = server
        self._has_past = has_past
        self._clock = clock or SystemClock()
        self._assembler: Assembler | None = None
        self._is_measured = False
        self._asked_s = 0.0
        self._skew_s = 0.0

    @property
    def url(self) -> str:
        """Without a password."""
        return self._server.url

    @property
    def interval_s(self) -> float:
        """Seconds from one scrape to the next; undefined before the first answer."""
        return 1.0 if self._assembler is None else self._assembler.interval_s

    def poll(self) -> list[Sample]:
        """Return the samples of what was scraped since the last call, in order of time."""
        if self._assembler is None:
            return self._begin()
        now_s = self._clock.monotonic_s()
        window_s = min(now_s - self._asked_s + 2 * self.interval_s, MOST_WINDOW_S)
        series = self._ask(window_s if self._is_measured else FIRST_WINDOWS_S[0])
        self._asked_s = now_s
        if not self._is_measured and (measured_s := measure_interval(series)) is not None:
            self._is_measured = True
            self._assembler.interval_s = measured_s
        return list(self._assembler.add(series, latest_s=self._latest_s))

    @property
    def notes(self) -> tuple[str, ...]:
        """What was left out of the newest answer, in sentences."""
        count = self._server.series_left_out
        unread = f"left out of Prometheus's answer: {count:,} series beyond the limit for one answer"
        return (*((unread,) if count else ()), *(() if self._assembler is None else self._assembler.notes))

    def is_followed(self, node: str) -> bool:
        """Return whether a node is still known: those that are long gone make room for new ones."""
        return self._assembler is not None and node in self._assembler.nodes

    @property
    def _latest_s(self) -> float:
        """The latest moment at which anything can have been scraped."""
        date_s = self._server.answered_wall_s
        return self._clock.wall_s() + UNKNOWN_AHEAD_S if date_s is None else date_s + LATEST_AHEAD_S

    def age_s(self, node: str) -> float | None:
        """Seconds since a node was last scraped, by the clock of the server; None for never."""
        newest_s = None if self._assembler is None else self._assembler.newest_s.get(node)
        return None if newest_s is None else max(0.0, self._clock.wall_s() + self._skew_s - newest_s)

    def list_assessments(self, sample: Sample) -> tuple[Assessment, ...]:
        """The risks that the agent of a node reports, as of its newest sample."""
        return () if self._assembler is None else self._assembler.list_assessments(sample)

    def list_findings(self, sample: Sample) -> tuple[Finding, ...]:
        """The findings that the agent of a node counts, as of its newest sample."""
        return () if self._assembler is None else self._assembler.list_findings(sample)

    def silent_s(self, node: str) -> float | None:
        """Seconds since a node was last scraped, if that is longer than it should be."""
        age_s = self.age_s(node)
        longest_s = max(SILENT_INTERVALS * self.interval_s, LEAST_SILENT_S)
        return age_s if age_s is not None and age_s > longest_s else None

    def _begin(self) -> list[Sample]:
        self._asked_s = self._clock.monotonic_s()
        series = find_scrapes(self._server)
        self._note_skew()
        measured_s = measure_interval(series)
        self._is_measured = measured_s is not None
        self._assembler = Assembler(UNKNOWN_INTERVAL_S if measured_s is None else measured_s)
        past_s = min(PAST_S, MOST_POINTS / len(series) * self.interval_s) if self._has_past else 0.0
        if past_s > FIRST_WINDOWS_S[0]:
            series = self._ask(past_s)
        samples = list(self._assembler.add(series, latest_s=self._latest_s))
        if not samples:
            count = self._assembler.figures
            self._assembler = None
            raise ServerUnreachableError(
                f"{self._server.url} answered with {len(series):,} series and {count:,} values, but no "
                "value is a valid number with a device and a possible time"
            )
        return samples

    def _ask(self, window_s: float) -> list[Series]:
        series = self._server.query(f"{SELECTOR}[{max(1, round(1000 * window_s))}ms]")
        self._note_skew()
        return series

    def _note_skew(self) -> None:
        date_s = self._server.answered_wall_s
        skew_s = 0.0 if date_s is None else date_s - self._clock.wall_s()
        self._skew_s = skew_s if abs(skew_s) > TRUSTED_SKEW_S else 0.0


def find_scrapes(server: PrometheusServer, *, at_s: float | None = None) -> list[Series]:
    """Return what was scraped of devices shortly before a moment."""
    found: list[Series] = []
    for window_s in FIRST_WINDOWS_S:
        found = server.query(f"{SELECTOR}[{window_s}s]", at_s=at_s)
        if any(len(series.values) > 1 for series in found):
            return found
    if not found:
        raise SourceUnavailableError(
            f"{server.url} answers, but has scraped no GPU within {FIRST_WINDOWS_S[-1] // 60} minutes; "
            f"looked for {LOOKED_FOR}, from vramscope agents, dcgm-exporter and nvidia_gpu_exporter"
        )
    return found


def measure_interval(series: list[Series]) -> float | None:
    """Return the seconds from one scrape to the next; None if nothing was scraped twice.

    If there are several, that of most series.
    """
    gaps = [
        after[0] - before[0]
        for each in series[:1000]
        for before, after in zip(each.values, each.values[1:], strict=False)
        if 0.0 < after[0] - before[0] < math.inf
    ]
    return round(min(max(median(gaps), LEAST_INTERVAL_S), MOST_INTERVAL_S), 2) if gaps else None


# Moments of a whole span by default; a server answers with 11,000 at most.
MOST_MOMENTS = 10_000
FIRST_MOMENTS = 60
# Values in one answer.
MOST_PAST_POINTS = 400_000


class PastRange:
    """Asks a server for a span, piece by piece; use from one thread.

    Args:
        interval_s: Seconds from one moment to the next; by default those of a scrape, more of a long span.
    """

    def __init__(
        self, server: PrometheusServer, start_s: float, end_s: float, *, interval_s: float | None = None
    ) -> None:
        self._server = server
        self._start_s = start_s
        self._end_s = end_s
        scrape_s = self._measure()
        least_s = (end_s - start_s) / MOST_MOMENTS
        usual_s = scrape_s or UNKNOWN_INTERVAL_S
        self.interval_s = interval_s or (usual_s if least_s <= usual_s else _round_up(least_s))
        # What of the past is lost.
        self.notes: tuple[str, ...] = ()
        if scrape_s is not None and self.interval_s > 1.5 * scrape_s:
            self.notes = (
                f"one moment every {self.interval_s:g} s is shown, with {scrape_s:g} s between "
                "scrapes: peaks in between are not seen; choose a shorter span, or --interval",
            )

    def samples(self, on_read: Callable[[float], None] = lambda _: None) -> Iterator[Sample]:
        assembler = Assembler(self.interval_s)
        moments = FIRST_MOMENTS
        at_s = self._start_s
        is_empty = True
        while at_s <= self._end_s:
            last_s = min(self._end_s, at_s + (moments - 1) * self.interval_s)
            series = self._server.query_range(SELECTOR, at_s, last_s, self.interval_s)
            end_of_answer_s = last_s + self.interval_s
            for sample in assembler.add(series, latest_s=end_of_answer_s):
                is_empty = False
                yield sample
            on_read((last_s - self._start_s) / max(self._end_s - self._start_s, self.interval_s))
            at_s += moments * self.interval_s
            moments = max(FIRST_MOMENTS, min(MOST_MOMENTS, MOST_PAST_POINTS // max(1, len(series))))
        if is_empty:
            raise SourceUnavailableError(
                f"{self._server.url} answers, but has no GPU in this span; looked for {LOOKED_FOR}"
            )

    def _measure(self) -> float | None:
        """Return the seconds between scrapes at the end of the span, or in its middle if it ends empty."""
        for at_s in (self._end_s, self._start_s + (self._end_s - self._start_s) / 2):
            with suppress(SourceUnavailableError):
                return measure_interval(find_scrapes(self._server, at_s=at_s))
        return None


def _round_up(seconds: float) -> float:
    """Return a round number of seconds that is not less: of 13 s it makes 15 s."""
    for unit in (1.0, 5.0, 15.0, 60.0):
        if seconds <= 4 * unit:
            return max(unit, math.ceil(seconds / unit) * unit)
    return math.ceil(seconds / 300.0) * 300.0
