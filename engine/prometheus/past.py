"""A span of the past of a Prometheus server, as samples in order of time."""

import math
from collections.abc import Callable, Iterator
from contextlib import suppress

from ..errors import SourceUnavailableError
from ..model import Sample
from .assembly import Assembler
from .follower import UNKNOWN_INTERVAL_S, find_scrapes, measure_interval
from .metrics import LOOKED_FOR, SELECTOR
from .server import PrometheusServer

MOST_MOMENTS = 10_000
"""Moments of a whole span where none is asked for; a server answers with 11,000 at most."""
FIRST_MOMENTS = 60
MOST_POINTS = 400_000
"""Figures that are asked for at once."""


class PastRange:
    """Asks a server of a span, piece by piece; use from one thread.

    Args:
        server: Which.
        start_s: Begin of the span, in seconds since the epoch.
        end_s: End of it.
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
        """Seconds from one moment to the next."""
        self.notes: tuple[str, ...] = ()
        """What is lost of the past."""
        if scrape_s is not None and self.interval_s > 1.5 * scrape_s:
            self.notes = (
                f"one moment in {self.interval_s:g} s is shown, and {scrape_s:g} s lie between two scrapes: "
                "peaks between are not seen; choose a shorter span, or --interval",
            )

    def samples(self, on_read: Callable[[float], None] = lambda _: None) -> Iterator[Sample]:
        """Yield the samples of all nodes.

        Args:
            on_read: Told which share of the span was read.

        Raises:
            ServerUnreachableError: The server did not answer, or not as Prometheus does.
            SourceUnavailableError: It has no figure of a device in the span.
        """
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
            moments = max(FIRST_MOMENTS, min(MOST_MOMENTS, MOST_POINTS // max(1, len(series))))
        if is_empty:
            raise SourceUnavailableError(
                f"{self._server.url} answers, and has no GPU in this span; looked for {LOOKED_FOR}"
            )

    def _measure(self) -> float | None:
        """Return the seconds between scrapes at the end of the span, or in its middle where it ends empty."""
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
