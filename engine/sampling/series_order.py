"""Puts the records of a series in order of time, as far as a small window reaches."""

from bisect import insort
from collections import deque
from collections.abc import Iterable, Iterator

from ..readers.series_record import SeriesRecord

WINDOW_RECORDS = 256
"""Records that are held back, so that one that comes late can still be put in its place."""


class RecordOrder:
    """Yields records in order of time; counts those that it moved, and those that came too late for it."""

    def __init__(self) -> None:
        self.moved_count = 0
        self.late_count = 0
        self._first_late: tuple[int, float] | None = None

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences about the records that were not in order."""
        notes = []
        if self.moved_count:
            notes.append(f"{_count(self.moved_count)} not in order of time and put in place")
        if self._first_late is not None:
            line, back_s = self._first_late
            notes.append(
                f"{_count(self.late_count)} too far out of order and left out: from line {line} on the clock "
                f"goes back by {back_s:,.6g} s; what follows is read again once it has caught up, so split "
                "the file there to see all of it"
            )
        return tuple(notes)

    def sort(self, records: Iterable[SeriesRecord]) -> Iterator[SeriesRecord]:
        """Yield records in order of time, each a window later than it came."""
        window: deque[SeriesRecord] = deque()
        newest_s = released_s = float("-inf")
        for record in records:
            time_s = record.time_s
            if time_s >= newest_s:
                newest_s = time_s
                window.append(record)
            elif time_s >= released_s:
                self.moved_count += 1
                insort(window, record, key=_time_of)
            else:
                self._leave_out(record, released_s - time_s)
                continue
            if len(window) > WINDOW_RECORDS:
                oldest = window.popleft()
                released_s = oldest.time_s
                yield oldest
        yield from window

    def _leave_out(self, record: SeriesRecord, back_s: float) -> None:
        self.late_count += 1
        if self._first_late is None:
            self._first_late = (record.line, back_s)


def _time_of(record: SeriesRecord) -> float:
    return record.time_s


def _count(count: int) -> str:
    return "1 record was" if count == 1 else f"{count:,} records were"
