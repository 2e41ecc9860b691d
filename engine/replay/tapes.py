"""What can be replayed, as tapes: recordings, traces, sweeps."""

import copy
import math
import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

import msgspec

from ..errors import InputFileError
from ..files.base.input_file import show_name, show_path
from ..files.base.series_reader import WALL_CLOCK_FROM_S
from ..files.memory_trace.run import TraceFiles
from ..model import SEVERITIES, DeviceSample, Finding, Sample
from ..recording import EventKind, ImportedFile, OverviewMinute, Recording, RecordingEvent, Told
from ..sampling.trace_player import TracePlayer
from ..viewer.snapshot import ReplayMark, ReplayOverview
from .simulated_run import compare_runs

if TYPE_CHECKING:
    from .simulated_run import TraceComparison


# First reach of the search for the sample before a moment; then eight times as far, and so on.
LOOK_BACK_TICKS = 8


class Tape(Protocol):
    """Samples that can be read from any moment on, the same whichever way it was reached."""

    node: str
    clock: Literal["wall", "trace"]
    # Time of the first sample, in the samples' own clock.
    start_s: float
    end_s: float
    # Nominal seconds from one sample to the next.
    interval_s: float
    # How much before a moment is fed to graphs and analyzers after a jump.
    window_s: float

    @property
    def comparison(self) -> "TraceComparison | None": ...

    def samples(self, start_s: float, end_s: float = math.inf) -> Iterator[Sample]:
        """Yield the samples of a span, ends included, in order of time; the last of all has `is_last`."""
        ...

    def marks(self) -> list[ReplayMark]:
        """Return the recorded findings, out-of-memory errors and errors of devices, in order of time."""
        ...

    def told(self) -> list[Told]:
        """Return what analyzers reported, in order of time; bounded."""
        ...

    def overview(self) -> ReplayOverview | None:
        """Memory over the whole tape; None if that needs reading all samples."""
        ...

    def close(self) -> None: ...


def find_newest(tape: Tape, time_s: float, count: int) -> list[Sample]:
    """Return the newest samples that are not after a moment, oldest first; fewer if there are no more."""
    reach_s = (LOOK_BACK_TICKS + count) * tape.interval_s
    while True:
        found = list(deque(tape.samples(time_s - reach_s, time_s), maxlen=count))
        if len(found) == count or time_s - reach_s <= tape.start_s:
            return found
        reach_s *= 8


MINUTE_S = 60.0
MOST_SPANS = 2000


def fold_minutes(
    minutes: Sequence[OverviewMinute], totals: Mapping[str, int | None]
) -> ReplayOverview | None:
    """Return an overview of one node; None if no memory was measured."""
    used = [
        (minute, minute.allocated_max_bytes if minute.used_max_bytes is None else minute.used_max_bytes)
        for minute in minutes
    ]
    peak_bytes = max((most for _, most in used if most is not None), default=0)
    if not peak_bytes:
        return None
    is_of_capacity = all(totals.get(minute.device_uuid) for minute, most in used if most is not None)
    start_s = min(it.start_s for it in minutes)
    end_s = max(it.start_s for it in minutes)
    step_s = MINUTE_S * max(1, math.ceil((end_s - start_s + MINUTE_S) / MINUTE_S / MOST_SPANS))
    shares: list[float | None] = [None] * (math.floor((end_s - start_s) / step_s) + 1)
    for minute, most in used:
        if most is not None:
            whole = totals.get(minute.device_uuid) if is_of_capacity else peak_bytes
            at = math.floor((minute.start_s - start_s) / step_s)
            shares[at] = max(shares[at] or 0.0, most / (whole or peak_bytes))
    return ReplayOverview(start_s, step_s, tuple(shares), is_of_capacity)


# For a run of at most this length, everything before a moment is fed to graphs and analyzers.
MOST_WHOLE_TICKS = 9000
# For a longer one, and for a recording, this many ticks.
WINDOW_TICKS = 3600


class TraceTape:
    """Plays a run tick by tick, from any tick on; a trace has no recorded findings.

    Args:
        path: Folder of the run, the file of one rank, or the files of one run.
        simulated: The run that simulates this one, to be compared with it.
        notes: Shown with those of the files.
    """

    clock: Literal["wall", "trace"] = "trace"

    def __init__(
        self,
        path: Path | TraceFiles,
        *,
        interval_s: float = 0.1,
        capacity_bytes: int | None = None,
        simulated: Path | None = None,
        node: str | None = None,
        notes: Sequence[str] = (),
        on_read: Callable[[float], None] | None = None,
    ) -> None:
        self._player = TracePlayer(
            path, interval_s=interval_s, capacity_bytes=capacity_bytes, node=node, on_read=on_read
        )
        for note in notes:
            self._player.add_note(note)
        self.node = self._player.node
        self.interval_s = interval_s
        self.start_s, self.end_s = self._player.span_s
        # A run is short, and what does not fit is reported once for all; a long one cannot be fed whole.
        is_long = self.end_s - self.start_s > MOST_WHOLE_TICKS * interval_s
        self.window_s = WINDOW_TICKS * interval_s if is_long else math.inf
        # The simulated run that is shown next to this one.
        self.comparison = None if simulated is None else compare_runs(self._player, simulated)
        if self.comparison is not None:
            self._player.add_note(f"simulated values are from {self.comparison.simulated_name}")

    def samples(self, start_s: float, end_s: float = math.inf) -> Iterator[Sample]:
        player = copy.copy(self._player)  # a cursor of its own on the same run
        player.seek(start_s)
        for sample in player.play_at_once():
            if sample.time_s > end_s:
                return
            if sample.time_s >= start_s:
                yield sample

    def marks(self) -> list[ReplayMark]:
        return []

    def told(self) -> list[Told]:
        return []

    def overview(self) -> None:
        """None: a run is short enough for the graphs themselves."""

    def close(self) -> None:
        """Do nothing: no file stays open under its name."""


# Findings and assessments of analyzers kept in memory for `--recorded-findings`.
MOST_WORDS = 20_000
MOST_MARKS = 10_000
LONE_INTERVAL_S = 1.0
MOST_INTERVAL_S = 3600.0


class RecordingTape:
    """One node of a recording, and of those that continue it.

    A sample that is not newer than all before it, because a clock was set back, is left out. Whether one is
    does not depend on where reading begins: the sample in its way is at least as new, so it is read too.

    Args:
        later: Files that continue it, in order.
        node: By default the first node of the file.
        name: What the node is called; as in the file by default.
    """

    comparison = None

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
            empty = self._recordings[0]
            raise InputFileError(f"{show_path(empty.path)}: no samples in it; {empty.why_empty}")
        self.start_s = first.time_s
        self.clock: Literal["wall", "trace"] = "wall" if self.start_s >= WALL_CLOCK_FROM_S else "trace"
        known_s = first.interval_s if math.isfinite(first.interval_s) else 0.0
        self.interval_s = min(known_s, MOST_INTERVAL_S) if known_s > 0 else LONE_INTERVAL_S
        self.window_s = WINDOW_TICKS * self.interval_s
        # Another node, or a clock that was set back, may end later than what is played.
        newest = find_newest(self, self.end_s, 1)
        self.end_s = newest[0].time_s if newest else self.start_s

    def samples(self, start_s: float, end_s: float = math.inf) -> Iterator[Sample]:
        start_s = max(start_s, self.start_s)
        newest_s = -math.inf
        end_s = min(end_s, self.end_s)
        for recording in self._recordings:
            for sample in recording.samples(start_s, end_s, node=self._recorded_node):
                if sample.time_s > newest_s:
                    newest_s = sample.time_s
                    yield self._complete(sample)

    def marks(self) -> list[ReplayMark]:
        """Findings count with their highest severity."""
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
        kinds: tuple[EventKind, ...] = ("oom", "device_error", "device_state")
        events = chain.from_iterable(it.events(kinds=kinds) for it in self._recordings)
        errors = (it for it in events if it.node == self._recorded_node and _is_error(it))
        found += [
            # An error may be from before the first sample, which carries those of a minute.
            ReplayMark(
                max(it.time_s, self.start_s), "oom" if it.kind == "oom" else "error", it.text, None, self.node
            )
            for it in islice(errors, MOST_MARKS)
        ]
        return sorted(found, key=lambda mark: mark.time_s)

    def told(self) -> list[Told]:
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
        node = self._recorded_node
        minutes = [it for each in self._recordings for it in each.overview(node=node)]
        devices = [it for each in self._recordings for it in each.devices if it.node == node]
        return fold_minutes(minutes, {it.uuid: it.total_bytes or self._capacity_bytes for it in devices})

    def close(self) -> None:
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


def _is_error(event: RecordingEvent) -> bool:
    """Return whether an event of a recording is worth a mark."""
    return event.kind != "device_state" or event.state == "lost"


def list_import_notes(files: Sequence[ImportedFile]) -> tuple[str, ...]:
    """Return the notes of imported files, each sentence once."""
    notes = [note for file in files for note in file.notes]
    if any(file.is_simulated for file in files):
        notes.insert(0, "these values are simulated, not measured")
    return tuple(dict.fromkeys(notes))


MOST_NODES = 512


class _Part(NamedTuple):
    start_s: float
    end_s: float
    # Number of the file in its series.
    number: int
    series: str
    path: Path


def open_tapes(paths: Sequence[Path], *, capacity_bytes: int | None = None) -> list[RecordingTape]:
    """Return a tape for each node, in the order in which the files name them.

    The files of one `--rotate`, and recordings of one node that do not overlap in time, follow one another on
    its tape. Recordings of one node that do overlap are separate tapes, whose names include their files.

    Args:
        capacity_bytes: Of devices whose own was not recorded.

    Raises:
        InputFileError: A file is no recording, damaged beyond reading or without samples; some count from
            1970 on and some from a start of their own; there are too many nodes.
    """
    parts: dict[str, list[_Part]] = {}
    for path in paths:
        for node, part in _list_parts(path):
            parts.setdefault(node, []).append(part)
    if len(parts) > MOST_NODES:
        raise InputFileError(f"{len(parts):,} nodes; expected at most {MOST_NODES}: give fewer files")
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
    found = []
    with Recording(path) as recording:
        identity = recording.identity
        for node in recording.nodes:
            first = next(recording.samples(node=node), None)
            last = recording.sample_at(sys.float_info.max, node=node)
            if first is not None and last is not None:
                part = _Part(first.time_s, last.time_s, identity.number, identity.series, path)
                found.append((node, part))
        why = recording.why_empty
    if not found:
        raise InputFileError(f"{show_path(path)}: no samples in it; {why}")
    return found


def _chain(parts: Sequence[_Part]) -> list[list[Path]]:
    """Group files that follow one another."""
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
            f"{show_path(trace.path)}: its times count from its own start, those of "
            f"{show_path(wall.path)} from 1970; expected one clock: replay them separately"
        )
