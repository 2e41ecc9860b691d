"""Reader of one memory trace, as a Megatron fork's tracker thread writes it for one rank.

The file is a JSON object of iterations (`"0"`, `"1"`, …); each has `samples` of seconds, device memory and
allocated memory, and peaks. `MB` there means MiB, and -1 means never logged. Its `reserved_memory_MB` is not
the allocator's reserved memory: NVML reported it as used on a whole device, and if the ordinals of CUDA and
NVML differed, on the wrong one.
"""

import re
from array import array
from collections.abc import Iterable, Iterator
from itertools import islice, pairwise
from operator import lt
from pathlib import Path
from typing import Annotated, NoReturn

import msgspec

from ...errors import InputFileError
from ...model import RankCoordinates
from ...units import MIB
from ..base.input_file import locate_byte, lower_first, read_input_file, show_path

NAME_EXAMPLE = "memory_trace_rank0_wd8_tp2_pp4_l40_bs1.json"
_KEYS = "wd|tp|pp|dp|ep|expNum|exp|l|mbs|nmbs|gbs|bs|ts"
_LAYOUT = {
    "wd": ("wd",),
    "tp": ("tp",),
    "pp": ("pp",),
    "dp": ("dp",),
    "ep": ("ep", "exp"),
    "experts": ("expNum",),
    "layers": ("l",),
    "micro-batch": ("mbs", "bs"),
}
_NAME = re.compile(rf"memory_trace_rank([0-9]{{1,9}})((?:_(?:{_KEYS})(?:[0-9]{{1,9}}|None))*)\.json")
_TOKEN = re.compile(rf"_({_KEYS})([0-9]+|None)(?=_|$)")


class TraceName(msgspec.Struct, frozen=True):
    """The name of a trace file, parsed: a rank, and the numbers of its run by their key."""

    rank: int
    # Keys as in the name (`wd` world size, `tp`, `l` layers, …); those of value None are absent.
    numbers: tuple[tuple[str, int], ...] = ()

    def number(self, *keys: str) -> int | None:
        """Return the first of these keys that the name has."""
        for key in keys:
            for known, value in self.numbers:
                if known == key:
                    return value
        return None

    @property
    def run(self) -> tuple[tuple[str, int], ...]:
        """The numbers that all ranks of one run share, sorted by key."""
        return tuple(sorted((key, value) for key, value in self.numbers if key != "ts"))

    @property
    def is_simulated(self) -> bool | None:
        """Whether one GPU played the rank, by how the simulation's tracker names its files; None if unknown.

        It writes the expert degree as `exp`; a real run writes `ep`, or nothing if it is 1.
        """
        return self.number("exp", "dp") is not None if self.numbers else None

    @property
    def layout(self) -> dict[str, int]:
        """What a real run and its simulation must have in common, under one name for each."""
        found = {key: self.number(*keys) for key, keys in _LAYOUT.items()}
        return {key: value for key, value in found.items() if value is not None}

    @property
    def coordinates(self) -> RankCoordinates:
        """In Megatron's default order: tensor fastest, then data, then pipeline."""
        world_size = self.number("wd")
        tp = self.number("tp")
        pp = self.number("pp")
        dp = self.number("dp")
        if dp is None and world_size and tp and pp and world_size % (tp * pp) == 0:
            dp = world_size // (tp * pp)
        if not tp:
            return RankCoordinates(self.rank, world_size)
        if not dp:
            return RankCoordinates(self.rank, world_size, tp=self.rank % tp)
        return RankCoordinates(
            self.rank, world_size, tp=self.rank % tp, dp=self.rank // tp % dp, pp=self.rank // (tp * dp)
        )


def parse_trace_name(file_name: str) -> TraceName | None:
    """Parse a file name; None if it is not that of a memory trace.

    Keys may come in any order; a key that comes twice makes the name unreadable.
    """
    match = _NAME.fullmatch(file_name)
    if match is None:
        return None
    tokens = _TOKEN.findall(match.group(2))
    if len({key for key, _ in tokens}) < len(tokens):
        return None
    return TraceName(int(match.group(1)), tuple((key, int(text)) for key, text in tokens if text != "None"))


# `MB` in the files means MiB, and -1 means never logged.

# A clock that goes back by more is not one clock.
CLOCK_STEP_LIMIT_S = 1.0

_Seconds = Annotated[float, msgspec.Meta(ge=0, le=365 * 86400)]
_Mebibytes = Annotated[float, msgspec.Meta(ge=0, le=2**30)]
_LoggedMebibytes = Annotated[float, msgspec.Meta(ge=-1, le=2**30)]


class SampleRecord(msgspec.Struct, gc=False):
    timestamp_s: _Seconds
    reserved_memory_MB: _Mebibytes  # noqa: N815 - the file's own key
    allocated_memory_MB: _Mebibytes  # noqa: N815 - the file's own key


class LoggedRecord(msgspec.Struct, gc=False):
    """Logged once an iteration; -1 is never."""

    peak_allocated_MB: _LoggedMebibytes = -1  # noqa: N815 - the file's own key
    theoretical_memory_MB: _LoggedMebibytes = -1  # noqa: N815 - the file's own key
    static_memory_MB: _LoggedMebibytes = -1  # noqa: N815 - the file's own key


class IterationRecord(LoggedRecord, gc=False, kw_only=True):
    samples: list[SampleRecord]


class TraceBatch(msgspec.Struct, gc=False):
    """Consecutive samples of one iteration."""

    key: str
    index: int
    # Position of the first sample within its iteration.
    position: int
    samples: list[SampleRecord]
    # With the last batch of an iteration.
    logged: LoggedRecord | None


class LoggedBytes(msgspec.Struct, frozen=True):
    # Since the iteration began (`torch.cuda.max_memory_allocated`).
    peak_allocated_bytes: int | None = None
    theoretical_bytes: int | None = None
    static_bytes: int | None = None


class ClockError(ValueError):
    """A sample is much older than one before it; caught where the place in the file is known."""

    def __init__(self, position: int, time_s: float, newest_s: float) -> None:
        super().__init__(f"{time_s:g} s comes after {newest_s:g} s; expected times that never go back")
        # Among the samples that were passed.
        self.position = position


class TraceClock:
    """Checks the times of one file; one that steps back a little gets the time of the one before."""

    def __init__(self) -> None:
        self._newest_s = 0.0
        self._late_count = 0
        self._late_most_s = 0.0

    def follow(self, times_s: list[float]) -> list[float]:
        """Return the next times in an order that never goes back.

        Raises:
            ClockError: One goes back by more than `CLOCK_STEP_LIMIT_S`.
        """
        if not times_s:
            return times_s
        if times_s[0] < self._newest_s or any(map(lt, islice(times_s, 1, None), times_s)):
            times_s = [self._follow_one(time_s, position) for position, time_s in enumerate(times_s)]
        self._newest_s = times_s[-1]
        return times_s

    def describe(self, rank: int) -> tuple[str, ...]:
        """A note about the steps back, if there were any."""
        if not self._late_count:
            return ()
        return (
            f"rank {rank}: the clock went back {self._late_count:,} times, at most by "
            f"{self._late_most_s:.3f} s; those samples have the time of the one before",
        )

    def _follow_one(self, time_s: float, position: int) -> float:
        late_s = self._newest_s - time_s
        if late_s > CLOCK_STEP_LIMIT_S:
            raise ClockError(position, time_s, self._newest_s)
        if late_s > 0:
            self._late_count += 1
            self._late_most_s = max(self._late_most_s, late_s)
        self._newest_s = max(self._newest_s, time_s)
        return self._newest_s


def mebibytes(value_mib: float) -> int:
    return round(value_mib * MIB)


def logged_bytes(value_mib: float) -> int | None:
    """Convert; None if never logged.

    Raises:
        ValueError: It is below zero and not -1.
    """
    if value_mib == -1:
        return None
    if value_mib < 0:
        raise ValueError(f"{value_mib:g}; expected -1 (never logged) or at least 0")
    return mebibytes(value_mib)


class TraceSpan(msgspec.Struct, gc=False):
    """Consecutive samples of one iteration, in columns and in time order."""

    index: int
    times_s: list[float]
    device_used_mib: list[float]
    allocated_mib: list[float]
    # With the last span of an iteration.
    logged: LoggedBytes | None


class TraceSpans:
    """The spans of one file, in order; iterate once."""

    def __init__(self, path: Path, batches: Iterable[TraceBatch]) -> None:
        self._path = path
        self._batches = batches
        self._clock = TraceClock()

    def __iter__(self) -> Iterator[TraceSpan]:
        for batch in self._batches:
            samples = batch.samples
            yield TraceSpan(
                batch.index,
                self._follow(batch),
                [sample.reserved_memory_MB for sample in samples],
                [sample.allocated_memory_MB for sample in samples],
                None if batch.logged is None else self._read_logged(batch.key, batch.logged),
            )

    def describe(self, rank: int) -> tuple[str, ...]:
        """Notes about the clock; complete after the last span."""
        return self._clock.describe(rank)

    def _follow(self, batch: TraceBatch) -> list[float]:
        try:
            return self._clock.follow([sample.timestamp_s for sample in batch.samples])
        except ClockError as error:
            position = batch.position + error.position
            self._fail(f'at $["{batch.key}"].samples[{position}].timestamp_s', str(error))

    def _read_logged(self, key: str, record: LoggedRecord) -> LoggedBytes:
        return LoggedBytes(
            self._read(key, "peak_allocated_MB", record.peak_allocated_MB),
            self._read(key, "theoretical_memory_MB", record.theoretical_memory_MB),
            self._read(key, "static_memory_MB", record.static_memory_MB),
        )

    def _read(self, key: str, field: str, value_mib: float) -> int | None:
        try:
            return logged_bytes(value_mib)
        except ValueError as error:
            self._fail(f'at $["{key}"].{field}', str(error))

    def _fail(self, position: str, text: str) -> NoReturn:
        raise InputFileError(f"{show_path(self._path)}: {position}: {text}")


# A larger file is not read whole.
SIZE_LIMIT_BYTES = 512 * MIB
EXPECTATION = 'expected a memory trace: {"0": {"samples": [...], "peak_allocated_MB": ...}, "1": ...}'
_FILE_DECODER = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ITERATION_DECODER = msgspec.json.Decoder(IterationRecord)


def read_whole(path: Path) -> Iterator[TraceBatch]:
    """Yield the iterations of a file in order of their numbers."""
    yield from _WholeFile(path).batches(read_input_file(path, SIZE_LIMIT_BYTES))


class _WholeFile:
    def __init__(self, path: Path) -> None:
        self._path = path

    def batches(self, data: bytes) -> Iterator[TraceBatch]:
        records = self._decode_file(data)
        for index, key in self._order(records):
            record = self._decode_iteration(data, key, records[key])
            yield TraceBatch(key, index, 0, record.samples, record)

    def _decode_file(self, data: bytes) -> dict[str, msgspec.Raw]:
        try:
            return _FILE_DECODER.decode(data)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            self._refuse(data, 0, "$", error)

    def _decode_iteration(self, data: bytes, key: str, raw: msgspec.Raw) -> IterationRecord:
        try:
            return _ITERATION_DECODER.decode(raw)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            self._refuse(data, data.find(bytes(raw)), f'$["{key}"]', error)

    def _refuse(self, data: bytes, offset: int, prefix: str, error: Exception) -> NoReturn:
        """Raise what the decoder found, with the place in the whole file."""
        message, _, place = str(error).partition(" - at `$")
        byte = re.search(r"\s*\(byte (\d+)\)", message)
        expectation = "" if place else f"; {EXPECTATION}"
        if byte is not None:
            position = locate_byte(data, offset + int(byte.group(1)))
            message = message.replace(byte.group(0), "")
        elif "truncated" in message:
            position = locate_byte(data, len(data))
            message = "the file is cut short"
        else:
            position = f"at {prefix}{place.rstrip('`')}"
        raise InputFileError(
            f"{show_path(self._path)}: {position}: {lower_first(message)}{expectation}"
        ) from error

    def _order(self, records: dict[str, msgspec.Raw]) -> list[tuple[int, str]]:
        for key in records:
            if re.fullmatch(r"[0-9]{1,9}", key) is None:
                self._fail(
                    f"at $[{msgspec.json.encode(key).decode()}]", "expected the number of an iteration as key"
                )
        ordered = sorted((int(key), key) for key in records)
        if not ordered:
            self._fail("at $", "no iterations; expected at least one")
        for (index, key), (following, _) in pairwise(ordered):
            if index == following:
                self._fail(f'at $["{key}"]', f"iteration {index} appears twice; expected it once")
        return ordered

    def _fail(self, position: str, text: str) -> NoReturn:
        raise InputFileError(f"{show_path(self._path)}: {position}: {text}")


class TraceIteration(msgspec.Struct, frozen=True):
    """One training iteration: which samples are its own, and what was logged once for all."""

    index: int
    # Position of its first sample in the columns; `stop` is the one after its last.
    start: int
    stop: int
    # Since the iteration began (`torch.cuda.max_memory_allocated`).
    peak_allocated_bytes: int | None = None
    theoretical_bytes: int | None = None
    static_bytes: int | None = None


class MemoryTrace(msgspec.Struct, frozen=True):
    """The trace of one rank, in columns: one entry a sample, in time order."""

    path: Path
    name: TraceName
    iterations: tuple[TraceIteration, ...]
    # Seconds since the rank's tracker started.
    times_s: "array[float]"
    # By NVML, everything on that device included; see `is_device_foreign`.
    device_used_bytes: "array[int]"
    # Bytes of the rank's live tensors.
    allocated_bytes: "array[int]"
    notes: tuple[str, ...] = ()

    @property
    def coordinates(self) -> RankCoordinates:
        return self.name.coordinates

    @property
    def is_device_foreign(self) -> bool:
        """Less was used than was allocated, so this is not the memory of the rank's own device."""
        return bool(self.times_s) and max(self.device_used_bytes) < max(self.allocated_bytes)


def read_memory_trace(path: Path) -> MemoryTrace:
    name = read_trace_name(path)
    return _TraceBuilder(path, name).build(TraceSpans(path, read_whole(path)))


def read_trace_name(path: Path) -> TraceName:
    name = parse_trace_name(path.name)
    if name is None:
        raise InputFileError(
            f"{show_path(path)}: not the name of a memory trace; only the name has rank and layout, so "
            f"rename it to, for example, {NAME_EXAMPLE}"
        )
    zero = next((key for key, value in name.numbers if key in {"wd", "tp", "pp", "dp"} and not value), None)
    if zero is not None:
        raise InputFileError(f"{show_path(path)}: the name says {zero}0; expected {zero} of at least 1")
    world_size = name.number("wd")
    if world_size is not None and name.rank >= world_size:
        raise InputFileError(
            f"{show_path(path)}: the name says rank {name.rank} of a world of {world_size}; "
            f"expected a rank from 0 to {world_size - 1}"
        )
    return name


class _TraceBuilder:
    def __init__(self, path: Path, name: TraceName) -> None:
        self._path = path
        self._name = name
        self._times_s = array("d")
        self._device_used_bytes = array("q")
        self._allocated_bytes = array("q")

    def build(self, spans: TraceSpans) -> MemoryTrace:
        iterations = tuple(self._add(span) for span in spans)
        return MemoryTrace(
            path=self._path,
            name=self._name,
            iterations=iterations,
            times_s=self._times_s,
            device_used_bytes=self._device_used_bytes,
            allocated_bytes=self._allocated_bytes,
            notes=spans.describe(self._name.rank),
        )

    def _add(self, span: TraceSpan) -> TraceIteration:
        start = len(self._times_s)
        self._times_s.extend(span.times_s)
        self._device_used_bytes.extend(map(mebibytes, span.device_used_mib))
        self._allocated_bytes.extend(map(mebibytes, span.allocated_mib))
        logged = span.logged or LoggedBytes()
        return TraceIteration(
            index=span.index,
            start=start,
            stop=len(self._times_s),
            peak_allocated_bytes=logged.peak_allocated_bytes,
            theoretical_bytes=logged.theoretical_bytes,
            static_bytes=logged.static_bytes,
        )
