"""Turns the records of a series into samples, as fast as they can be read and in constant memory."""

import math
from collections.abc import Iterator
from itertools import chain, islice, pairwise
from pathlib import Path
from statistics import median
from typing import Literal

from ..errors import InputFileError
from ..model import Sample
from ..readers.input_file import show_name
from ..readers.series_record import WALL_CLOCK_FROM_S, SeriesReader, SeriesRecord
from .series_order import RecordOrder
from .series_tick import SeriesTick
from .series_track import SeriesTrack

HEAD_RECORDS = 4096
"""Records at the beginning from which the length of a tick is told."""
LONE_INTERVAL_S = 1.0
"""Length of a tick where no device was seen twice."""

_LEAST_INTERVAL_S = 1e-6


class SeriesPlayer:
    """Yields the samples of one input; records of several devices at about one time are one sample.

    Args:
        reader: Whose records are played.
        path: Of the input.
        capacity_bytes: Capacity of devices whose input does not tell it.
        interval_s: Length of one tick, where it shall not be told from the times.

    Raises:
        InputFileError: There is no record that can be used.
    """

    def __init__(
        self,
        reader: SeriesReader,
        path: Path,
        *,
        capacity_bytes: int | None = None,
        interval_s: float | None = None,
    ) -> None:
        self.path = path
        self.format = reader.format
        self.node = show_name(path.resolve())
        self._reader = reader
        self._order = RecordOrder()
        self._records = self._order.sort(reader.records())
        self._head = list(islice(self._records, HEAD_RECORDS))
        if not self._head:
            reader.close()
            raise InputFileError(reader.explain_absence())
        self.clock: Literal["wall", "trace"] = (
            "wall" if self._head[len(self._head) // 2].time_s >= WALL_CLOCK_FROM_S else "trace"
        )
        self._is_interval_given = interval_s is not None
        self.interval_s = interval_s or _tell_interval(self._head) or LONE_INTERVAL_S
        self._tick = SeriesTick(capacity_bytes, has_allocator=reader.has_allocator)
        self._track = SeriesTrack(capacity_bytes)

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences about what was left out, repeated or reinterpreted; complete after the last sample."""
        return (*self._reader.notes, *self._order.notes, *self._track.notes)

    @property
    def read_share(self) -> float:
        """Share of the input that was read so far, from 0 to 1."""
        return self._reader.read_share

    def close(self) -> None:
        """Stop before the end."""
        self._reader.close()

    def label(self, uuid: str) -> str:
        """Return a device as the input writes it."""
        return self._track.devices[uuid].label

    def real_uuid(self, uuid: str) -> str | None:
        """Return the UUID of a device where the input tells it, None where it was made up."""
        return uuid if self._track.devices[uuid].is_uuid_real else None

    def samples(self) -> Iterator[Sample]:
        """Yield the samples in order of time, without waiting; to be called once.

        Raises:
            InputFileError: The file is damaged so that it cannot be read on.
        """
        tick, track, held = self._tick, self._track, None
        head, self._head = self._head, []
        for record in chain(head, self._records):
            if not tick.take(record, self.interval_s / 2):
                if held is not None:
                    yield held
                held = self._make_sample(track.tick_count, record.time_s)
                tick.take(record, self.interval_s / 2)
            track.observe(record, self.interval_s)
        if held is not None:
            yield held
        yield self._make_sample(track.tick_count, is_last=True)

    def _make_sample(self, seq: int, until_s: float = math.inf, *, is_last: bool = False) -> Sample:
        end_s, devices = self._tick.read(until_s)
        sample = Sample(self.node, seq, end_s, self.interval_s, devices, clock=self.clock, is_last=is_last)
        pace_s = self._track.end_tick()
        if pace_s is not None and not self._is_interval_given and _is_other_pace(pace_s, self.interval_s):
            self.interval_s = pace_s
        return sample


def _tell_interval(head: list[SeriesRecord]) -> float | None:
    """Return the median time between two records of one device, or None where no device came twice."""
    times_s: dict[str, list[float]] = {}
    for record in head:
        times_s.setdefault(record.device.uuid, []).append(record.time_s)
    between = [later - earlier for times in times_s.values() for earlier, later in pairwise(times)]
    positive = [each for each in between if each > 0]
    # Times of today leave less than a microsecond of a second to a float.
    return max(round(median(positive), 6), _LEAST_INTERVAL_S) if positive else None


def _is_other_pace(pace_s: float, interval_s: float) -> bool:
    """Tell a new pace from the unsteadiness of one."""
    return not interval_s / 1.5 <= pace_s <= interval_s * 1.5
