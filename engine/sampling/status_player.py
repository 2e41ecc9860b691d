"""Plays what `vramscope --json` printed: whole samples, ranks and steps included, as they were measured."""

import math
from collections.abc import Iterator
from itertools import chain, islice, pairwise
from pathlib import Path
from statistics import median
from typing import Literal

import msgspec

from ..errors import InputFileError
from ..files.base.series_record import WALL_CLOCK_FROM_S, SeriesFormat
from ..files.series.status_lines import KeptStatus, StatusLines
from ..model import Sample
from .played_devices import PlayedDevices
from .series_player import LONE_INTERVAL_S

HEAD_STATUSES = 64
"""Statuses at the beginning from which the length of a tick is told."""


class StatusPlayer:
    """Yields the samples of the first node of a kept stream, each as it was; findings are to be found again.

    Args:
        path: The file.
        capacity_bytes: Capacity of devices whose status does not tell it.
        interval_s: Length of one tick, where it shall not be told from the times.

    Raises:
        InputFileError: The file cannot be read, or there is no status in it that can be used.
    """

    format: SeriesFormat = "status stream"

    def __init__(self, path: Path, *, capacity_bytes: int | None, interval_s: float | None) -> None:
        self.path = path
        self._lines = StatusLines(path)
        self._statuses = self._lines.statuses()
        self._head = list(islice(self._statuses, HEAD_STATUSES))
        if not self._head:
            self._lines.close()
            raise InputFileError(self._lines.explain_absence())
        first = self._head[0]
        self.node = first.node
        self.has_all_nodes = False
        """Whether the samples of all nodes are yielded, and not of the first alone."""
        self.clock: Literal["wall", "trace"] = "wall" if first.time >= WALL_CLOCK_FROM_S else "trace"
        self.interval_s = interval_s or _tell_interval(self._head) or LONE_INTERVAL_S
        self._devices = PlayedDevices(capacity_bytes)
        self._late_count = 0
        self._other_count = 0

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences about what was left out; complete after the last sample."""
        late = self._late_count
        other = self._other_count
        return (
            *((f"statuses not newer than the one before were left out: {late:,}",) if late else ()),
            *((f"statuses of other nodes than {self.node} were left out: {other:,}",) if other else ()),
            *self._devices.notes,
            *self._lines.notes,
        )

    @property
    def read_share(self) -> float:
        """Share of the file that was read so far, from 0 to 1."""
        return self._lines.read_share

    def close(self) -> None:
        """Stop before the end."""
        self._lines.close()

    def label(self, uuid: str) -> str:
        """Return a device as people call it."""
        return self._devices.label(uuid)

    def real_uuid(self, uuid: str) -> str | None:
        """Return the UUID of a device of the driver, None where it was made up for a modelled one."""
        return self._devices.real_uuid(uuid)

    def samples(self) -> Iterator[Sample]:
        """Yield the samples in order of time; to be called once.

        Raises:
            InputFileError: The file is damaged so that it cannot be read on, or of a newer version.
        """
        head = self._head
        self._head = []
        held: Sample | None = None
        for status in self._in_order(chain(head, self._statuses)):
            if held is not None:
                yield held
            held = self._convert(status, 0 if held is None else held.seq + 1)
        if held is not None:
            yield msgspec.structs.replace(held, is_last=True)

    def _in_order(self, statuses: Iterator[KeptStatus]) -> Iterator[KeptStatus]:
        newest_s: dict[str, float] = {}
        for status in statuses:
            if status.node != self.node and not self.has_all_nodes:
                self._other_count += 1
            elif status.time <= newest_s.get(status.node, -math.inf):
                self._late_count += 1
            else:
                newest_s[status.node] = status.time
                yield status

    def _convert(self, status: KeptStatus, seq: int) -> Sample:
        devices = self._devices.complete(status.devices)
        return Sample(
            status.node,
            seq,
            status.time,
            self.interval_s,
            devices,
            host=status.host,
            ranks=status.ranks,
            notes=status.notes,
            clock=self.clock,
        )


def _tell_interval(head: list[KeptStatus]) -> float | None:
    own = [status for status in head if status.node == head[0].node]
    between = [later.time - earlier.time for earlier, later in pairwise(own) if later.time > earlier.time]
    return median(between) if between else None
