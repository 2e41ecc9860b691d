"""Fragmentation of every allocator: measured at each sample, reported when it costs.

`docs/verdicts.md` has the definitions. The counters of the allocator decide, over a window
that holds the peaks of several steps; segment maps, which come on demand, enrich the readings.
"""

from collections.abc import Sequence
from typing import Literal

import msgspec

from ...engine.model import Finding, Sample, SegmentMap
from ..findings.evidence import read_subject_key
from ..findings.lifecycle import NodeClocks, Passage, Tracks
from ..findings.subjects import SubjectKey, subjects_of
from .segment_maps import MapFragmentation, measure_map
from .track import KIND, FragmentationReading, FragmentationTrack, FragmentationTrend, Measure, word_method

# Ticks after which a subject that is no longer there is forgotten, and its finding closed.
ABSENT_TICKS = 3.0


# A function, and no lambda, so that analyzers can be pickled.
def _make_track(_: SubjectKey) -> FragmentationTrack:
    return FragmentationTrack()


class FragmentationAnalyzer:
    """Opens one finding per allocator whose fragmentation costs, updates it, closes it when there is room."""

    name = KIND

    def __init__(self) -> None:
        self._clocks = NodeClocks()
        self._tracks = Tracks(_make_track)

    def observe(self, sample: Sample) -> Sequence[Finding]:
        """Observe one sample and return the findings it opened, updated or closed."""
        passage = self._clocks.note(sample)
        if passage is Passage.LATE:
            return ()
        if passage is not Passage.NEXT:
            for _, track in self._tracks.items(sample.node):
                track.restart()
                track.seen_s = min(track.seen_s, sample.time_s)
        found: list[Finding] = []
        for subject in subjects_of(sample):
            if subject.allocator.reserved_bytes is not None or subject.allocator.allocated_bytes is not None:
                found += self._tracks.see(subject.key, sample.time_s).observe(subject)
        for key, track in self._tracks.pop_absent(sample, _find_waiting, ABSENT_TICKS):
            because = "the device is no longer listed" if key[2] is None else "the process has ended"
            found += track.close(sample.time_s, because)
        return found

    def restore(self, findings: Sequence[Finding]) -> None:
        """Adopt open findings of this kind; samples up to their last update change nothing about them."""
        for finding in findings:
            if finding.kind == KIND and finding.is_open:
                self._tracks.adopt(read_subject_key(finding), finding)

    def take_map(self, segment_map: SegmentMap) -> None:
        """Add a segment map to the readings of its process; it decides no finding."""
        found = measure_map(segment_map)
        for key, track in self._tracks.items():
            if key[0] == segment_map.node and key[2] == segment_map.pid:
                track.take_map(found)

    def readings(self) -> tuple[FragmentationReading, ...]:
        """Return one reading of each allocator that was seen in the last seconds."""
        found = (read_track(key, track) for key, track in self._tracks.items())
        return tuple(reading for reading in found if reading is not None)

    def trend(self, key: SubjectKey, measure: Measure | None = None) -> FragmentationTrend | None:
        """Return how one measure of an allocator went; None where it was not measured.

        Args:
            measure: None for that of the reading's ratio, or the next best until it has 3 values.
        """
        track = self._tracks.get(key)
        trend = None if track is None else track.find_trend(measure)
        return None if trend is None else trend.describe()


def _find_waiting(sample: Sample) -> set[SubjectKey]:
    """Return the subjects with old values that may come back: stale processes and devices."""
    node = sample.node
    ranks = {
        (node, rank.device_uuid or "", rank.pid, rank.started_s)
        for rank in sample.ranks
        if rank.state == "stale"
    }
    return ranks | {(node, device.uuid, None, None) for device in sample.devices if device.state == "stale"}


def read_track(key: SubjectKey, track: FragmentationTrack) -> FragmentationReading | None:
    """Return the reading of one allocator; None where it was not seen yet."""
    subject = track.subject
    if subject is None:
        return None
    extremes = track.extremes or track.window.newest
    allocator = subject.allocator
    found = track.map
    stranded, source = _find_stranded(allocator.inactive_split_bytes, found)
    reserved = allocator.reserved_bytes
    allocated = allocator.allocated_bytes
    limit = subject.limit_bytes
    rank = subject.rank
    device = subject.device
    ratio, measure = _find_ratio(found, stranded, reserved, allocated)
    used_share = _divide(allocator.requested_bytes, allocated)
    reading = FragmentationReading(
        key=key,
        node=subject.sample.node,
        device_uuid=subject.device_uuid,
        device=None if device is None else device.label,
        device_index=None if device is None else device.index,
        pid=None if rank is None else rank.pid,
        rank=None if rank is None or rank.coordinates is None else rank.coordinates.rank,
        time_s=subject.sample.time_s,
        allocated_bytes=allocated,
        reserved_bytes=reserved,
        active_bytes=allocator.active_bytes,
        requested_bytes=allocator.requested_bytes,
        internal=None if used_share is None else 1 - used_share,
        stranded_bytes=stranded,
        stranded_source=source,
        persistent_bytes=extremes.stranded_bytes,
        cached_bytes=_subtract(reserved, allocator.active_bytes),
        unused_bytes=_subtract(reserved, allocated),
        unused_share=_divide(extremes.unused_bytes, extremes.reserved_bytes),
        utilization=_divide(track.peak_bytes, track.peak_reserved_bytes),
        limit_bytes=limit,
        headroom_bytes=_subtract(limit, extremes.peak_bytes),
        retries=allocator.retries,
        ratio=ratio,
        measure=measure,
        method=word_method(measure),
    )
    if found is None:
        return reading
    return msgspec.structs.replace(
        reading,
        external=found.external,
        free_blocks=found.free_blocks,
        largest_free_bytes=found.largest_free_bytes,
        map_s=found.time_s,
    )


def _find_stranded(
    counted: int | None, found: MapFragmentation | None
) -> tuple[int | None, Literal["counter", "map"] | None]:
    """Return the stranded bytes and their source: the counter, which is of this moment, before a map."""
    if counted is not None:
        return counted, "counter"
    return (None, None) if found is None else (found.stranded_bytes, "map")


def _find_ratio(
    found: MapFragmentation | None, stranded: int | None, reserved: int | None, allocated: int | None
) -> tuple[float | None, Measure | None]:
    if found is not None and found.external is not None:
        return found.external, "external"
    if stranded is not None and reserved:
        return stranded / reserved, "stranded"
    return None, "unused" if reserved is not None and allocated is not None else None


def _subtract(whole: int | None, part: int | None) -> int | None:
    return None if whole is None or part is None else max(0, whole - part)


def _divide(part: int | None, whole: int | None) -> float | None:
    return None if part is None or not whole else min(1.0, part / whole)
