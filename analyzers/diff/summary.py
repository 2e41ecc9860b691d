"""One run in bounded memory: the values of every rank and device by step and by time."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from ...engine.model import Finding, RankSample, Sample
from ...engine.unmeasured import larger, smaller
from ..findings.subjects import Subject, name_device, subjects_of

# Values of a run by step or time in a bounded number of bins: if there are too many, neighbours are joined.


@dataclass(slots=True)
class Cell:
    """Values within one bin; None is unmeasured."""

    # Seconds since the start of the run.
    start_s: float
    readings: int = 0
    peak_bytes: int | None = None
    floor_bytes: int | None = None
    reserved_bytes: int | None = None
    # The most.
    used_bytes: int | None = None
    allocated_sum: int = 0
    allocated_count: int = 0
    used_sum: int = 0
    used_count: int = 0
    duration_sum_s: float = 0.0
    duration_count: int = 0

    def join(self, other: "Cell") -> None:
        self.start_s = min(self.start_s, other.start_s)
        self.readings += other.readings
        self.peak_bytes = larger(self.peak_bytes, other.peak_bytes)
        self.floor_bytes = smaller(self.floor_bytes, other.floor_bytes)
        self.reserved_bytes = larger(self.reserved_bytes, other.reserved_bytes)
        self.used_bytes = larger(self.used_bytes, other.used_bytes)
        self.allocated_sum += other.allocated_sum
        self.allocated_count += other.allocated_count
        self.used_sum += other.used_sum
        self.used_count += other.used_count
        self.duration_sum_s += other.duration_sum_s
        self.duration_count += other.duration_count


class Bins:
    """Cells by number, at most `most`; a bin is `width` positions wide, a power of two."""

    def __init__(self, most: int) -> None:
        self.width = 1
        self.cells: dict[int, Cell] = {}
        self._most = most

    def __len__(self) -> int:
        return len(self.cells)

    def add(self, position: int, reading: Cell) -> None:
        cell = self.cells.get(position // self.width)
        if cell is not None:
            cell.join(reading)
            return
        self.cells[position // self.width] = reading
        if len(self.cells) > self._most:
            self.bound(self._most)

    def bound(self, most: int) -> None:
        """Keep no more cells than this from here on."""
        self._most = most
        while len(self.cells) > most:
            self.widen(2 * self.width)

    def widen(self, width: int) -> None:
        if width <= self.width:
            return
        cells = self.cells
        factor = width // self.width
        self.width = width
        self.cells = {}
        for number in sorted(cells):
            known = self.cells.setdefault(number // factor, cells[number])
            if known is not cells[number]:
                known.join(cells[number])

    def fill_gaps(self, other: "Bins") -> None:
        width = max(self.width, other.width)
        self.widen(width)
        other.widen(width)
        for number, cell in other.cells.items():
            self.cells.setdefault(number, cell)
        self.bound(self._most)


class StepLine:
    """The steps of one rank. A step that was done twice, after a restart, counts as in the longer life."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._settled: Bins | None = None
        self._living = Bins(most)
        self._newest: int | None = None
        # Times that the number of the step fell.
        self.restarts = 0

    def add(self, step: int, reading: Cell) -> None:
        if self._newest is not None and step < self._newest:
            self.restarts += 1
            self._settled = self._join()
            self._living = Bins(self._most)
        self._newest = step
        self._living.add(step, reading)

    def bound(self, most: int) -> None:
        """Keep no more cells than this of a life from here on."""
        self._most = most
        for bins in (self._settled, self._living):
            if bins is not None:
                bins.bound(most)

    def bins(self) -> Bins:
        """Return all lives as one; nothing can be added afterwards."""
        return self._join()

    def _join(self) -> Bins:
        settled = self._settled
        living = self._living
        if settled is None or settled is living:
            return living
        more, fewer = (living, settled) if _span_of(living) > _span_of(settled) else (settled, living)
        more.fill_gaps(fewer)
        return more


def _span_of(bins: Bins) -> int:
    return len(bins) * bins.width


def walk(one: Bins, other: Bins, width: int) -> Iterator[tuple[int, Cell | None, Cell | None]]:
    """Widen both to a width and yield the cells of each number that either has, ascending."""
    one.widen(width)
    other.widen(width)
    for number in sorted(one.cells.keys() | other.cells.keys()):
        yield number, one.cells.get(number), other.cells.get(number)


# By step, over all subjects of a run, and as many by time.
MOST_CELLS = 1 << 16
MOST_BINS = 2048
LEAST_BINS = 64
MOST_SUBJECTS = 4096
# Unit of positions in time; bins are powers of two of it.
TIME_UNIT_S = 0.001
MOST_FINDINGS = 4096
# Thirty thousand years: a damaged file may have impossible times.
MOST_TIME_S = 1e12

# Node, UUID of the device, rank, and place among processes of the device without a known rank; -1 for none.
TrackKey = tuple[str, str, int | None, int]


@dataclass
class Track:
    key: TrackKey
    name: str
    # Label of its device, or empty.
    label: str
    index: int
    steps: StepLine
    times: Bins
    first_step: int | None = None
    last_step: int | None = None
    readings: int = 0
    # Readings of allocated bytes without the most since the one before.
    sampled_allocated: int = 0
    sampled_used: int = 0
    # Whether steps reported their own floors.
    has_step_floors: bool = False
    ooms: int | None = None
    # Seconds since the start of the run at which the first out-of-memory error was seen.
    first_oom_s: float | None = None

    @property
    def rank(self) -> int | None:
        return self.key[2]


@dataclass
class RunSummary:
    tracks: list[Track]
    findings: list[Finding]
    # Time of the first sample, in the samples' own clock.
    start_s: float
    end_s: float
    samples: int
    subjects_left_out: int = 0
    notes: list[str] = field(default_factory=list)
    # Whether a device of it is modelled or of a simulation: its values are not measured.
    is_simulated: bool = False


class RunSummarizer:
    """Summarizes the samples of a run, in the order of recording."""

    def __init__(self) -> None:
        self._tracks: dict[TrackKey, Track] = {}
        self._findings: dict[str, Finding] = {}
        self._left_out: set[TrackKey] = set()
        self._start_s: float | None = None
        self._end_s = 0.0
        self.samples_read = 0
        self._is_simulated = False
        self._most_bins = MOST_BINS

    def observe(self, sample: Sample) -> None:
        if not abs(sample.time_s) < MOST_TIME_S:
            return
        self.samples_read += 1
        self._start_s = sample.time_s if self._start_s is None else min(self._start_s, sample.time_s)
        self._end_s = max(self._end_s, sample.time_s) if self.samples_read > 1 else sample.time_s
        self._is_simulated = self._is_simulated or any(it.is_simulated for it in sample.devices)
        places: dict[tuple[str, str], int] = {}
        for subject in subjects_of(sample):
            self._add_subject(subject, sample.time_s - self._start_s, places)
        for rank in sample.ranks:
            if rank.oom_s is not None:
                self._note_oom(sample, rank, sample.time_s - self._start_s)

    def note_finding(self, finding: Finding) -> None:
        """Store the newest state of a finding; past the first few thousand others are left out."""
        if finding.id in self._findings or len(self._findings) < MOST_FINDINGS:
            self._findings[finding.id] = finding

    def finish(self) -> RunSummary:
        """Return the run; nothing can be added afterwards."""
        tracks = _leave_best(list(self._tracks.values()))
        start_s = self._start_s or 0.0
        return RunSummary(
            tracks,
            sorted(self._findings.values(), key=lambda finding: finding.opened_s),
            start_s,
            max(start_s, self._end_s),
            self.samples_read,
            len(self._left_out),
            is_simulated=self._is_simulated,
        )

    def _add_subject(self, subject: Subject, since_s: float, places: dict[tuple[str, str], int]) -> None:
        track = self._find_track(subject, places)
        if track is None:
            return
        _note_errors(track, subject, since_s)
        track.readings += 1
        track.sampled_allocated += _is_allocated_sampled(subject)
        track.has_step_floors |= subject.rank is not None and subject.rank.floor_min_bytes is not None
        memory = None if subject.device is None else subject.device.memory
        if memory is not None and memory.used_bytes is not None:
            track.sampled_used += memory.used_max_bytes is None
        track.times.add(int(since_s / TIME_UNIT_S), _read(subject, since_s))
        step = subject.step
        if step is not None and step >= 0:
            track.steps.add(step, _read(subject, since_s))
            track.first_step = step if track.first_step is None else min(track.first_step, step)
            track.last_step = step if track.last_step is None else max(track.last_step, step)

    def _note_oom(self, sample: Sample, rank: RankSample, since_s: float) -> None:
        """Store an error of a rank, which may have ended with it."""
        number = None if rank.coordinates is None else rank.coordinates.rank
        place = (sample.node, rank.device_uuid or "", number)
        for key, track in self._tracks.items():
            if key[:3] == place and track.first_oom_s is None:
                track.first_oom_s = since_s

    def _find_track(self, subject: Subject, places: dict[tuple[str, str], int]) -> Track | None:
        node = subject.sample.node
        uuid = subject.device_uuid or ""
        number = _rank_of(subject)
        place = -1
        if number is None and subject.rank is not None:
            place = places[node, uuid] = places.get((node, uuid), -1) + 1
        key = (node, uuid, number, place)
        track = self._tracks.get(key)
        if track is None:
            if len(self._tracks) >= MOST_SUBJECTS:
                if len(self._left_out) < MOST_SUBJECTS:
                    self._left_out.add(key)
                return None
            track = self._tracks[key] = self._begin(key, subject)
        return track

    def _begin(self, key: TrackKey, subject: Subject) -> Track:
        # By powers of two: bins double too, and so thousands of tracks bound all others only a few times.
        most = max(LEAST_BINS, min(MOST_BINS, MOST_CELLS >> len(self._tracks).bit_length()))
        if most < self._most_bins:
            self._most_bins = most
            for other in self._tracks.values():
                other.steps.bound(most)
                other.times.bound(most)
        device = subject.device
        label, index = ("", 0) if device is None else (device.label, device.index)
        return Track(key, _name(subject), label, index, StepLine(most), Bins(most))


def _rank_of(subject: Subject) -> int | None:
    if subject.rank is not None:
        return None if subject.rank.coordinates is None else subject.rank.coordinates.rank
    device = subject.device
    return None if device is None or device.rank is None else device.rank.rank


def _name(subject: Subject) -> str:
    """Name it by its rank, else by its device, since process ids differ from run to run."""
    number = _rank_of(subject)
    if number is not None:
        return f"rank {number}"
    return subject.name if subject.device is None else name_device(subject.device)


def _is_allocated_sampled(subject: Subject) -> bool:
    """Return whether allocated bytes are a new reading, without the most since the reading before."""
    reading = subject.allocator
    owner = subject.rank or subject.device
    age_s = None if owner is None else owner.age_s
    is_held = age_s is not None and age_s > subject.sample.interval_s
    is_told = reading.allocated_max_bytes is not None
    if subject.rank is not None:
        is_told |= subject.rank.peak_max_bytes is not None
    return reading.allocated_bytes is not None and not is_told and not is_held


def _read(subject: Subject, since_s: float) -> Cell:
    reading = subject.allocator
    memory = None if subject.device is None else subject.device.memory
    peak = larger(reading.allocated_max_bytes, reading.allocated_bytes)
    floor = reading.allocated_bytes
    cell = Cell(since_s, 1, reserved_bytes=reading.reserved_bytes)
    if subject.rank is not None:
        peak, floor = _read_steps(subject.rank, peak, floor, cell)
    cell.peak_bytes = peak
    cell.floor_bytes = floor
    if reading.allocated_bytes is not None:
        cell.allocated_sum = reading.allocated_bytes
        cell.allocated_count = 1
    if memory is not None and memory.used_bytes is not None:
        cell.used_bytes = larger(memory.used_max_bytes, memory.used_bytes)
        cell.used_sum = memory.used_bytes
        cell.used_count = 1
    return cell


def _read_steps(
    rank: RankSample, peak: int | None, floor: int | None, cell: Cell
) -> tuple[int | None, int | None]:
    """Return peak and floor of the steps that ended within the tick, where they reported them."""
    if not rank.steps_within or rank.step is None:
        return peak, None if rank.step is not None and rank.step.floor_bytes is not None else floor
    if rank.step.duration_s is not None:
        cell.duration_sum_s = rank.step.duration_s
        cell.duration_count = 1
    return larger(peak, rank.peak_max_bytes), floor if rank.floor_min_bytes is None else rank.floor_min_bytes


def _note_errors(track: Track, subject: Subject, since_s: float) -> None:
    ooms = subject.allocator.ooms
    if ooms is None:
        return
    if track.first_oom_s is None and track.ooms is not None and ooms > track.ooms:
        track.first_oom_s = since_s
    track.ooms = ooms


def _leave_best(tracks: list[Track]) -> list[Track]:
    """Leave out a device as a whole where a process on it reports, and a process whose rank became known
    later.
    """
    best: dict[tuple[str, str], int] = {}
    for track in tracks:
        place = track.key[:2]
        best[place] = max(best.get(place, 0), _grade(track))
    return [track for track in tracks if _grade(track) == best[track.key[:2]]]


def _grade(track: Track) -> int:
    return 2 if track.rank is not None else 1 if track.key[3] >= 0 else 0
