"""History of a node: an hour of ticks, a week of minutes, and bucketed columns of both for drawing.

Bounded: 3,600 ticks and 10,080 minutes; about 0.5 MiB when full for a device and the process on it.
"""

import copy
import math
import threading
from array import array
from collections.abc import Callable, Iterator, Sequence
from math import isnan, nan
from typing import Literal, NamedTuple

from ..errors import WireError
from ..model import RankSample, Sample
from .block import (
    HOST_KEY,
    MAX_RANKS,
    DeviceHeader,
    HistoryBlock,
    RankHeader,
    header_of,
    host_values_of,
    rank_header_of,
    rank_key,
    rank_values_of,
    samples_of,
    values_of,
)
from .ring import UNMEASURED, ColumnRing, Row

# Most buckets of a view: no screen is wider.
MAX_BUCKETS = 4096


class HistoryColumns(NamedTuple):
    """One entry a time bucket, oldest first; None if nothing was measured."""

    minimum: list[float | None]
    maximum: list[float | None]
    last: list[float | None]


class BucketView:
    """One field of one device in buckets of one length, aligned to multiples of that length.

    Args:
        bucket_s: Length of a bucket in seconds.
        capacity: How many of the newest buckets are kept.
    """

    def __init__(self, bucket_s: float, capacity: int) -> None:
        self.bucket_s = bucket_s
        self._capacity = max(1, capacity)
        # Index of the oldest bucket.
        self._first = 0
        # Tuples would take ten times as much, and each device has a view for each field and width.
        # Minimum, maximum and last of each bucket; NaN where nothing was measured.
        self._cells = (array("d"), array("d"), array("d"))
        # Index of the newest bucket dropped for its age; None while none was.
        self._newest_dropped: int | None = None

    def add(self, time_s: float, low: float, high: float, last: float) -> None:
        lows, highs, lasts = self._cells
        index = int(time_s // self.bucket_s)
        if not 0 <= index - self._first < len(lasts):
            self._make_room(index)
        at = index - self._first
        is_first = isnan(lasts[at])
        lows[at] = low if is_first else min(lows[at], low)
        highs[at] = high if is_first else max(highs[at], high)
        lasts[at] = last

    def has(self, end_s: float, count: int) -> bool:
        """Return whether no bucket of these was dropped; no other view has more than the most."""
        first = int(end_s // self.bucket_s) - count + 1
        return self._newest_dropped is None or first > self._newest_dropped or self._capacity >= MAX_BUCKETS

    def columns(self, end_s: float, count: int) -> HistoryColumns:
        """Return `count` buckets; `end_s` is in the last."""
        start = int(end_s // self.bucket_s) - count + 1 - self._first
        return HistoryColumns(*(_read(cells, start, count) for cells in self._cells))

    def _make_room(self, index: int) -> None:
        """Begin a bucket; the oldest are dropped if there are too many."""
        count = len(self._cells[0])
        before = self._first - index
        after = index - self._first - count + 1
        if not count or max(before + count, after) > self._capacity:
            # Nothing yet, or the clock was set so far that nothing of what is here can stay.
            self._newest_dropped = self._first + count - 1 if count and after > 0 else None
            self._first = index
            for cells in self._cells:
                cells[:] = array("d", [nan])
            return
        for cells in self._cells:
            if before > 0:
                cells[:0] = array("d", [nan]) * before
            cells.extend([nan] * after)
        over = max(0, len(self._cells[0]) - self._capacity)
        self._first = min(self._first, index) + over
        for cells in self._cells:
            del cells[:over]
        if over:
            self._newest_dropped = self._first - 1


def _read(cells: "array[float]", start: int, count: int) -> list[float | None]:
    """Return cells from a position on, None for missing and unmeasured ones."""
    head = min(max(0, -start), count)
    tail = max(0, start)
    # NaN alone differs from itself; a call for each would take longer than all the rest.
    found = [value if value == value else None for value in cells[tail : max(0, start + count)]]  # noqa: PLR0124
    return [*[None] * head, *found, *[None] * (count - head - len(found))]


# What can be drawn over time: device used, allocated and reserved bytes, utilisation in percent, and the
# number of the training step, which changes where a step begins.
Field = Literal["used", "allocated", "reserved", "utilization", "step"]

FINE_TICKS = 3600
COARSE_TICKS = 7 * 24 * 60
COARSE_S = 60.0
# Simulated devices in memory, or as many as there are at once: a script may make one after another.
MAX_MODELLED = 16
# Bucket lengths kept up to date per device and field; a resize makes a new one, the oldest is dropped.
MAX_VIEWS = 3

_BOUNDS = {
    "used": ("used_min", "used_max"),
    "allocated": ("allocated", "allocated_max"),
    "reserved": ("reserved", "reserved"),
    "utilization": ("utilization", "utilization"),
    "step": ("step", "step"),
}


class History:
    """Everything seen of one node, bounded; safe to use from several threads.

    Args:
        keeps_ranks: Keep columns of training processes, for analyzers that start later. Screens draw those of
            devices only.
    """

    def __init__(
        self, fine_ticks: int = FINE_TICKS, coarse_ticks: int = COARSE_TICKS, *, keeps_ranks: bool = True
    ) -> None:
        self.keeps_ranks = keeps_ranks
        self._lock = threading.RLock()
        # Grows whenever it becomes another history: drawings of an earlier one are void then.
        self.generation = 0
        self._fine = ColumnRing(fine_ticks)
        self._coarse = ColumnRing(coarse_ticks)
        self._minute: dict[str, dict[str, int]] = {}
        self._minute_index: int | None = None
        self._headers: dict[str, DeviceHeader] = {}
        self._ranks: dict[str, RankHeader] = {}
        self._modelled: dict[str, None] = {}
        self._node = ""
        self._clock = "wall"
        self._views: dict[tuple[str, str], dict[float, BucketView]] = {}
        self._peaks: dict[str, tuple[int, float]] = {}

    @property
    def last_seq(self) -> int | None:
        with self._lock:
            return self._fine.last.seq if self._fine.last else None

    @property
    def first_seq(self) -> int | None:
        """The oldest sample that is still kept tick by tick."""
        with self._lock:
            return self._fine.first.seq if self._fine.first else None

    def add(self, sample: Sample) -> None:
        with self._lock:
            self._node = sample.node
            self._clock = sample.clock
            devices: dict[str, dict[str, int]] = {}
            for device in sample.devices:
                self._headers[device.uuid] = header_of(device, sample.servers)
                devices[device.uuid] = values_of(device)
            self._bound_modelled([device.uuid for device in sample.devices if device.kind == "simulated"])
            if sample.host is not None:
                devices[HOST_KEY] = host_values_of(sample.host)
            if sample.ranks and self.keeps_ranks:
                devices.update(self._note_ranks(sample.ranks, sample.time_s))
            self._fine.append(Row(sample.seq, sample.time_s, sample.interval_s), devices)
            for uuid, values in devices.items():
                self._fold(uuid, sample.time_s, values)
            self._fold_minute(sample.time_s, devices)

    def extend(self, block: HistoryBlock) -> None:
        """Add a hub's history; samples that are already here stay as they are.

        What follows our newest sample there is new, whatever its clock says, which may have been set back. If
        that sample is not there, as after a restart of the hub, later samples are new.

        Raises:
            WireError: The block's columns do not fit together.
        """
        fine = ColumnRing(self._fine.capacity)
        coarse = ColumnRing(self._coarse.capacity)
        ranks = block.ranks if self.keeps_ranks else {}
        kept = (
            block.fine
            if self.keeps_ranks
            else {k: it for k, it in block.fine.items() if k not in block.ranks}
        )
        try:
            fine.load(block.fine_ticks, kept)
            coarse.load(block.coarse_ticks, block.coarse)
        except (ValueError, KeyError) as error:
            raise WireError(f"the hub's history cannot be read: {error}") from error
        if not (fine.has_times and coarse.has_times):
            raise WireError("the hub's history cannot be read: impossible times")
        with self._lock:
            self._node = block.node
            self._clock = block.clock
            self._headers.update(block.devices)
            self._ranks.update(ranks)
            if self._fine.last is None:
                self._fine = fine
                self._coarse = coarse
                self._recount_peaks()
                self._merge_peaks(block)
                self._views.clear()
                return
            newest = self._fine.last
            known = fine.count_to(newest.seq) if fine.has(newest) else None
            samples = samples_of(fine, block.devices, ranks, block.node, block.clock)
            for at, sample in enumerate(samples):
                if sample.time_s > newest.time_s if known is None else at >= known:
                    self.add(sample)
            self._merge_peaks(block)

    def take_over(self, other: "History") -> None:
        """Become what another history is, which must not be used any more; for going back in time."""
        with self._lock, other._lock:
            own = self._lock
            generation = self.generation + 1
            self.__dict__.update(other.__dict__)
            self._lock = own
            self.generation = generation

    def copy(self) -> "History":
        """Return an independent copy; its views for drawing are built again."""
        other = History()
        with self._lock:
            kept = {name: it for name, it in self.__dict__.items() if name not in ("_lock", "_views")}
            other.__dict__.update(copy.deepcopy(kept))
        return other

    def block(self, since_seq: int | None = None) -> HistoryBlock:
        """Return everything, for a late viewer.

        Args:
            since_seq: The newest sample that is known there already: only ticks from that one on. None for
                all, with the minutes.
        """
        with self._lock:
            skip = 0 if since_seq is None else self._fine.count_to(since_seq - 1)
            fine_ticks, fine = self._fine.dump(skip)
            coarse_ticks, coarse = (self._coarse if since_seq is None else ColumnRing(0)).dump()
            kept = set(fine) | set(coarse)
            headers = {uuid: header for uuid, header in self._headers.items() if uuid in kept}
            ranks = {key: header for key, header in self._ranks.items() if key in fine}
            peaks = {uuid: peak for uuid, peak in self._peaks.items() if uuid in headers}
            return HistoryBlock(
                self._node, self._clock, headers, fine_ticks, fine, coarse_ticks, coarse, ranks, peaks
            )

    def samples(self, *, skipped: Callable[[Row], bool] | None = None) -> Iterator[Sample]:
        """Yield the samples still kept, oldest first, with the ring's fields; skipped ones are not built."""
        with self._lock:
            yield from samples_of(
                self._fine, self._headers, self._ranks, self._node, self._clock, skipped=skipped
            )

    def columns(self, uuid: str, field: Field, end_s: float, bucket_s: float, count: int) -> HistoryColumns:
        """Return `count` buckets of `bucket_s` seconds; `end_s` is in the last bucket.

        Buckets are aligned to multiples of `bucket_s`, so a bucket keeps its content as time goes on. The key
        of the host's own memory is `HOST_KEY`.
        """
        with self._lock:
            views = self._views.setdefault((uuid, field), {})
            view = views.get(bucket_s)
            if view is None or not view.has(end_s, count):
                view = self._build_view(uuid, field, bucket_s, self._choose_capacity(end_s, bucket_s, count))
                views.pop(bucket_s, None)
                views[bucket_s] = view
                while len(views) > MAX_VIEWS:
                    del views[next(iter(views))]
            return view.columns(end_s, count)

    def peak(self, uuid: str) -> tuple[int, float] | None:
        """Return the most device-used bytes seen and when (`Sample.time_s`), or None."""
        with self._lock:
            return self._peaks.get(uuid)

    def span_s(self, uuid: str) -> float:
        """Seconds from the oldest to the newest sample of a device."""
        with self._lock:
            rings = [ring for ring in (self._coarse, self._fine) if uuid in ring.uuids]
            times = [row.time_s for ring in rings for row in (ring.first, ring.last) if row is not None]
            if not times:
                return 0.0
            fine = self._fine.first
            oldest_s = min(times)
            if fine is not None and self._fine in rings and fine.time_s - oldest_s < COARSE_S:
                oldest_s = fine.time_s  # the first minute had begun before the first tick
            return max(times) - oldest_s

    def _note_ranks(self, ranks: Sequence[RankSample], time_s: float) -> dict[str, dict[str, int]]:
        """Return the columns of the processes that have reported, and remember their headers."""
        values = {}
        for rank in ranks:
            if rank.allocator is not None:
                key = rank_key(rank)
                self._ranks.pop(key, None)  # the one seen last stands last
                self._ranks[key] = rank_header_of(rank)
                values[key] = rank_values_of(rank, time_s)
        while len(self._ranks) > max(MAX_RANKS, len(values)):
            oldest = next(iter(self._ranks))
            del self._ranks[oldest]
            self._fine.forget(oldest)
        return values

    def _bound_modelled(self, uuids: Sequence[str]) -> None:
        """Forget simulated devices that are gone, if there are too many."""
        for uuid in uuids:
            self._modelled.pop(uuid, None)  # the one seen last stands last
            self._modelled[uuid] = None
        while len(self._modelled) > max(MAX_MODELLED, len(uuids)):
            uuid = next(iter(self._modelled))
            del self._modelled[uuid]
            self._headers.pop(uuid, None)
            self._peaks.pop(uuid, None)
            self._minute.pop(uuid, None)
            for key in [key for key in self._views if key[0] == uuid]:
                del self._views[key]
            for ring in (self._fine, self._coarse):
                ring.forget(uuid)

    def _fold(self, uuid: str, time_s: float, values: dict[str, int]) -> None:
        """Update peaks and views with one device's row."""
        used = values.get("used_max", values.get("used", UNMEASURED))
        peak = self._peaks.get(uuid)
        if used != UNMEASURED and (peak is None or used > peak[0]):
            self._peaks[uuid] = (used, time_s)
        if not self._views:  # a hub draws nothing
            return
        for field, (low_name, high_name) in _BOUNDS.items():
            views = self._views.get((uuid, field))
            last = values.get(field)
            if not views or last is None:
                continue
            low = values.get(low_name, last)
            high = values.get(high_name, last)
            for view in views.values():
                view.add(time_s, low, high, last)

    def _fold_minute(self, time_s: float, devices: dict[str, dict[str, int]]) -> None:
        """Fold a tick into the running minute; a finished minute becomes a row of the coarse ring."""
        index = int(time_s // COARSE_S)
        if self._minute_index is not None and index != self._minute_index and self._minute:
            self._coarse.append(
                Row(self._minute_index, self._minute_index * COARSE_S, COARSE_S), self._minute
            )
            self._minute = {}
        self._minute_index = index
        for uuid, values in devices.items():
            used = values.get("used")
            if used is None:
                continue
            low = values.get("used_min", used)
            high = values.get("used_max", used)
            minute = self._minute.setdefault(uuid, {"state": 0, "used_min": low, "used_max": high})
            minute["used_min"] = min(minute["used_min"], low)
            minute["used_max"] = max(minute["used_max"], high)

    def _choose_capacity(self, end_s: float, bucket_s: float, count: int) -> int:
        """Return how many buckets a view needs: from the oldest that is asked for to the newest, and more.

        What a paused picture shows gets older: a view without spare would be built at every look.
        """
        newest_s = max(end_s, self._fine.last.time_s if self._fine.last else end_s)
        asked = int(newest_s // bucket_s) - int(end_s // bucket_s) + count
        return min(asked + asked // 4 + 1, max(count, MAX_BUCKETS))

    def _build_view(self, uuid: str, field: Field, bucket_s: float, capacity: int) -> BucketView:
        view = BucketView(bucket_s, capacity)
        fine_from_s = self._fine.first.time_s if self._fine.first else 0.0
        low_name, high_name = _BOUNDS[field]
        for ring, is_fine in ((self._coarse, False), (self._fine, True)):
            lows = ring.column(uuid, low_name)
            highs = ring.column(uuid, high_name)
            lasts = ring.column(uuid, field) if is_fine else highs
            if lasts is None:
                continue
            lows = lows if lows is not None else lasts
            highs = highs if highs is not None else lasts
            for time_s, low, high, last in zip(ring.times(), lows, highs, lasts, strict=True):
                if last != UNMEASURED and (is_fine or time_s + COARSE_S <= fine_from_s):
                    known_low, known_high = (v if v != UNMEASURED else last for v in (low, high))
                    view.add(time_s, known_low, known_high, last)
        return view

    def _merge_peaks(self, block: HistoryBlock) -> None:
        """Merge the peaks that a hub has seen, which may be of ticks that it keeps no longer."""
        for uuid, (used, time_s) in block.peaks.items():
            own = self._peaks.get(uuid)
            if uuid in self._headers and math.isfinite(time_s) and (own is None or used >= own[0]):
                self._peaks[uuid] = used, time_s

    def _recount_peaks(self) -> None:
        """Find the peaks in the rings: in the ticks first, which know to the second when they were."""
        self._peaks.clear()
        for ring in (self._fine, self._coarse):
            times = ring.times()
            for uuid in ring.uuids:
                column = ring.column(uuid, "used_max") or ring.column(uuid, "used")
                if column is None or not len(column):
                    continue
                position = max(range(len(column)), key=column.__getitem__)
                old = self._peaks.get(uuid)
                if column[position] != UNMEASURED and (old is None or column[position] > old[0]):
                    self._peaks[uuid] = (column[position], times[position])
