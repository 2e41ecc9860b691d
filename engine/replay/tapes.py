"""Which tapes several recordings are: one a node, its files one after the other, all on one clock."""

import math
import sys
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from ..errors import InputFileError
from ..files.base.input_file import show_name, show_path
from ..files.base.series_record import WALL_CLOCK_FROM_S
from ..model import SEVERITIES, DeviceSample, Finding, Sample
from ..recording import EventKind, ImportedFile, Recording, Told
from ..viewer.replay_state import ReplayMark, ReplayOverview
from .overview import fold_minutes
from .tape import find_newest

WINDOW_TICKS = 3600
"""Ticks before a moment that graphs and analyzers are fed: as many as a hub's ring holds."""
MOST_WORDS = 20_000
"""Words of analyzers that are held for `--recorded-findings`."""
MOST_MARKS = 10_000
LONE_INTERVAL_S = 1.0
MOST_INTERVAL_S = 3600.0


class RecordingTape:
    """One node of a recording, and of those that continue it.

    A sample that is not newer than all before it, because a clock was set back, is left out. Whether one is
    does not depend on where reading begins: what stands in its way is at least as new, so it is read too.

    Args:
        path: The file.
        later: Files that hold what came after it, in order.
        node: Whose samples; of the first node of the file by default.
        name: What the node is called; as in the file by default.
        capacity_bytes: Capacity of devices of which none was recorded.

    Raises:
        InputFileError: A file is no recording, damaged beyond reading, or there are no samples.
    """

    comparison = None
    """A recording is not compared with a simulation."""

    def __init__(
        self,
        path: Path,
        *later: Path,
        node: str | None = None,
        name: str | None = None,
        capacity_bytes: int | None = None,
    ) -> None:
        self._recordings: list[Recording] = []
        self._capacity_bytes = capacity_bytes
        self._told: list[Told] | None = None
        try:
            for each in (path, *later):
                self._recordings.append(Recording(each))
            self._recorded_node = next(iter(self._recordings[0].nodes), "") if node is None else node
            self.node = self._recorded_node if name is None else name
            self._begin()
        except BaseException:
            self.close()
            raise

    def _begin(self) -> None:
        files = chain.from_iterable(it.identity.imported for it in self._recordings)
        self._notes = list_import_notes(list(files))
        walks = (it.samples(node=self._recorded_node) for it in self._recordings)
        first = next(chain.from_iterable(walks), None)
        spans = [it.span for it in self._recordings]
        self.end_s = max((span[1] for span in spans if span is not None), default=-math.inf)
        if first is None:
            why = self._recordings[0].damage.sentence or "expected at least one to play"
            raise InputFileError(f"{show_path(self._recordings[0].path)}: no samples in it; {why}")
        self.start_s = first.time_s
        self.clock: Literal["wall", "trace"] = "wall" if self.start_s >= WALL_CLOCK_FROM_S else "trace"
        known_s = first.interval_s if math.isfinite(first.interval_s) else 0.0
        self.interval_s = min(known_s, MOST_INTERVAL_S) if known_s > 0 else LONE_INTERVAL_S
        self.window_s = WINDOW_TICKS * self.interval_s
        # Another node, or a clock that was set back, may end later than what is played.
        newest = find_newest(self, self.end_s, 1)
        self.end_s = newest[0].time_s if newest else self.start_s

    def samples(self, start_s: float, end_s: float = math.inf) -> Iterator[Sample]:
        """Yield the samples of a span, ends included, in order of time; the last of all has `is_last`."""
        start_s = max(start_s, self.start_s)
        newest_s = -math.inf
        end_s = min(end_s, self.end_s)
        for recording in self._recordings:
            for sample in recording.samples(start_s, end_s, node=self._recorded_node):
                if sample.time_s > newest_s:
                    newest_s = sample.time_s
                    yield self._complete(sample)

    def marks(self) -> list[ReplayMark]:
        """Return the findings, at their gravest, and out-of-memory errors, in order of time."""
        gravest: dict[str, Finding] = {}
        kept = chain.from_iterable(it.findings() for it in self._recordings)
        for finding in chain(*(told.findings for told in self.told()), kept):
            known = gravest.get(finding.id)
            if known is None or SEVERITIES.index(finding.severity) > SEVERITIES.index(known.severity):
                gravest[finding.id] = finding
        found = [
            ReplayMark(finding.opened_s, "finding", finding.title, finding.severity, self.node)
            for finding in islice(gravest.values(), MOST_MARKS)
            if finding.node == self._recorded_node and self.start_s <= finding.opened_s <= self.end_s
        ]
        kinds: tuple[EventKind, ...] = ("oom",)
        events = chain.from_iterable(it.events(kinds=kinds) for it in self._recordings)
        errors = (it for it in events if it.node == self._recorded_node)
        found += [ReplayMark(it.time_s, "oom", it.text, None, self.node) for it in islice(errors, MOST_MARKS)]
        return sorted(found, key=lambda mark: mark.time_s)

    def told(self) -> list[Told]:
        """Return what analyzers said, in order of time; a bounded number of words."""
        if self._told is not None:
            return self._told
        kept: list[Told] = []
        words = 0
        for told in chain.from_iterable(it.told(node=self._recorded_node) for it in self._recordings):
            words += len(told.findings) + len(told.assessments or ())
            if words > MOST_WORDS:
                break
            kept.append(told)
        self._told = sorted(kept, key=lambda it: it.time_s)
        return self._told

    def overview(self) -> ReplayOverview | None:
        """Return memory over the whole of it, out of the minutes that are kept."""
        node = self._recorded_node
        minutes = [it for each in self._recordings for it in each.overview(node=node)]
        devices = [it for each in self._recordings for it in each.devices if it.node == node]
        return fold_minutes(minutes, {it.uuid: it.total_bytes or self._capacity_bytes for it in devices})

    def close(self) -> None:
        """Close the files."""
        for recording in self._recordings:
            recording.close()

    def _complete(self, sample: Sample) -> Sample:
        devices = tuple(map(self._add_capacity, sample.devices))
        is_last = sample.time_s >= self.end_s
        notes = sample.notes + tuple(it for it in self._notes if it not in sample.notes)
        return msgspec.structs.replace(sample, node=self.node, devices=devices, is_last=is_last, notes=notes)

    def _add_capacity(self, device: DeviceSample) -> DeviceSample:
        if self._capacity_bytes is None or device.memory.total_bytes is not None:
            return device
        memory = msgspec.structs.replace(device.memory, total_bytes=self._capacity_bytes)
        return msgspec.structs.replace(device, memory=memory)


def list_import_notes(files: Sequence[ImportedFile]) -> tuple[str, ...]:
    """Return what recordings say of the files that they were made of, each sentence once."""
    notes = [note for file in files for note in file.notes]
    if any(file.is_simulated for file in files):
        notes.insert(0, "these figures are of a simulation, not measured")
    return tuple(dict.fromkeys(notes))


MOST_NODES = 512


class _Part(NamedTuple):
    """What one file holds of one node."""

    start_s: float
    end_s: float
    number: int
    """Place of the file in its series."""
    series: str
    path: Path


def open_tapes(paths: Sequence[Path], *, capacity_bytes: int | None = None) -> list[RecordingTape]:
    """Return a tape for each node, in the order in which the files name them.

    The files of one `--rotate`, and recordings of one node that do not overlap in time, follow one another
    on its tape. Recordings of one node that do overlap are tapes of their own, called by their files as well.

    Args:
        paths: Recordings.
        capacity_bytes: Capacity of devices of which none was recorded.

    Raises:
        InputFileError: A file is no recording, damaged beyond reading or without samples; some count from
            1970 on and some from a start of their own; there are too many nodes.
    """
    parts: dict[str, list[_Part]] = {}
    for path in paths:
        for node, part in _list_parts(path):
            parts.setdefault(node, []).append(part)
    if len(parts) > MOST_NODES:
        raise InputFileError(f"{len(parts):,} nodes; expected at most {MOST_NODES}: name fewer files")
    _check_clock([part for each in parts.values() for part in each])
    tapes: list[RecordingTape] = []
    try:
        for node, found in parts.items():
            chains = _chain(found)
            for files in chains:
                name = node if len(chains) == 1 else f"{node} ({show_name(files[0])})"
                tapes.append(RecordingTape(*files, node=node, name=name, capacity_bytes=capacity_bytes))
    except BaseException:
        for tape in tapes:
            tape.close()
        raise
    return tapes


def _list_parts(path: Path) -> list[tuple[str, _Part]]:
    """Return what a file holds of each node that it has samples of.

    Raises:
        InputFileError: It holds none.
    """
    found = []
    with Recording(path) as recording:
        identity = recording.identity
        for node in recording.nodes:
            first = next(recording.samples(node=node), None)
            last = recording.sample_at(sys.float_info.max, node=node)
            if first is not None and last is not None:
                part = _Part(first.time_s, last.time_s, identity.number, identity.series, path)
                found.append((node, part))
        why = recording.damage.sentence or "expected at least one to play"
    if not found:
        raise InputFileError(f"{show_path(path)}: no samples in it; {why}")
    return found


def _chain(parts: Sequence[_Part]) -> list[list[Path]]:
    """Return files in runs of those that follow one another."""
    runs: list[list[_Part]] = []
    for part in sorted(parts):
        run = next((run for run in runs if _follows(part, run[-1])), None)
        if run is None:
            runs.append([part])
        else:
            run.append(part)
    return [[part.path for part in run] for run in runs]


def _follows(part: _Part, before: _Part) -> bool:
    is_continued = bool(part.series) and part.series == before.series and part.number != before.number
    return is_continued or part.start_s >= before.end_s


def _check_clock(parts: Sequence[_Part]) -> None:
    wall = next((part for part in parts if part.start_s >= WALL_CLOCK_FROM_S), None)
    trace = next((part for part in parts if part.start_s < WALL_CLOCK_FROM_S), None)
    if wall is not None and trace is not None:
        raise InputFileError(
            f"{show_path(trace.path)}: counts from a start of its own, {show_path(wall.path)} from 1970; "
            "expected one clock: replay each by itself"
        )
