"""Reader of one memory trace, as a Megatron fork's tracker thread writes it for one rank.

The file is a JSON object of iterations (`"0"`, `"1"`, …); each has `samples` of seconds, device memory and
allocated memory, and peaks. `MB` there means MiB, and -1 means never logged. What it calls
`reserved_memory_MB` is not the allocator's reserved memory: it is what NVML said was used on a whole device,
and where the ordinals of CUDA and NVML differed, on another one.
"""

import re
from array import array
from itertools import pairwise
from pathlib import Path
from typing import Annotated, NoReturn

import msgspec

from ..errors import InputFileError
from ..model import RankCoordinates
from ..units import MIB
from .input_file import locate_byte, lower_first, read_input_file, show_path
from .memory_trace_name import NAME_EXAMPLE, TraceName, parse_trace_name

SIZE_LIMIT_BYTES = 512 * MIB
"""A larger file is refused before it is read."""
CLOCK_STEP_LIMIT_S = 1.0
"""A clock that goes back by more is not one clock."""

_Seconds = Annotated[float, msgspec.Meta(ge=0, le=365 * 86400)]
_Mebibytes = Annotated[float, msgspec.Meta(ge=0, le=2**30)]
_LoggedMebibytes = Annotated[float, msgspec.Meta(ge=-1, le=2**30)]


class _SampleRecord(msgspec.Struct, gc=False):
    timestamp_s: _Seconds
    reserved_memory_MB: _Mebibytes  # noqa: N815 - the file's own key
    allocated_memory_MB: _Mebibytes  # noqa: N815 - the file's own key


class _IterationRecord(msgspec.Struct, gc=False):
    samples: list[_SampleRecord]
    peak_allocated_MB: _LoggedMebibytes = -1  # noqa: N815 - the file's own key
    theoretical_memory_MB: _LoggedMebibytes = -1  # noqa: N815 - the file's own key
    static_memory_MB: _LoggedMebibytes = -1  # noqa: N815 - the file's own key


_EXPECTATION = 'expected a memory trace: {"0": {"samples": [...], "peak_allocated_MB": ...}, "1": ...}'
_FILE_DECODER = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ITERATION_DECODER = msgspec.json.Decoder(_IterationRecord)


class TraceIteration(msgspec.Struct, frozen=True):
    """One training iteration: which samples are its own, and what was logged once for all of them."""

    index: int
    start: int
    """Position of its first sample in the columns."""
    stop: int
    """Position after its last sample."""
    peak_allocated_bytes: int | None = None
    """Most allocated since the iteration began (`torch.cuda.max_memory_allocated`)."""
    theoretical_bytes: int | None = None
    static_bytes: int | None = None


class MemoryTrace(msgspec.Struct, frozen=True):
    """The trace of one rank, in columns: one entry a sample, in time order."""

    path: Path
    name: TraceName
    iterations: tuple[TraceIteration, ...]
    times_s: "array[float]"
    """Seconds since the rank's tracker started."""
    device_used_bytes: "array[int]"
    """Device used by NVML, everything on that device included; see `is_device_foreign`."""
    allocated_bytes: "array[int]"
    """Bytes of the rank's live tensors."""
    notes: tuple[str, ...] = ()

    @property
    def coordinates(self) -> RankCoordinates:
        """Where the rank stands in its parallel layout."""
        return self.name.coordinates

    @property
    def is_device_foreign(self) -> bool:
        """Whether device used cannot be that of the rank's own device: less was used than was allocated."""
        return bool(self.times_s) and max(self.device_used_bytes) < max(self.allocated_bytes)


def read_memory_trace(path: Path) -> MemoryTrace:
    """Read the trace of one rank.

    Raises:
        InputFileError: The file or its name cannot be understood; the text says where and what was expected.
    """
    name = parse_trace_name(path.name)
    if name is None:
        raise InputFileError(
            f"{show_path(path)}: not the name of a memory trace; rank and layout stand only in the name, "
            f"so give it one such as {NAME_EXAMPLE}"
        )
    _check_name(path, name)
    return _TraceBuilder(path, name).build(read_input_file(path, SIZE_LIMIT_BYTES))


def _check_name(path: Path, name: TraceName) -> None:
    zero = next((key for key, value in name.numbers if key in {"wd", "tp", "pp", "dp"} and not value), None)
    if zero is not None:
        raise InputFileError(f"{show_path(path)}: the name says {zero}0; expected {zero} of at least 1")
    world_size = name.number("wd")
    if world_size is not None and name.rank >= world_size:
        raise InputFileError(
            f"{show_path(path)}: the name says rank {name.rank} of a world of {world_size}; "
            f"expected a rank from 0 to {world_size - 1}"
        )


class _TraceBuilder:
    """Puts the records of one file into columns."""

    def __init__(self, path: Path, name: TraceName) -> None:
        self._path = path
        self._name = name
        self._times_s = array("d")
        self._device_used_bytes = array("q")
        self._allocated_bytes = array("q")
        self._newest_s = 0.0
        self._late_count = 0
        self._late_most_s = 0.0

    def build(self, data: bytes) -> MemoryTrace:
        records = self._decode_file(data)
        iterations = tuple(
            self._add_iteration(index, key, self._decode_iteration(data, key, records[key]))
            for index, key in self._order(records)
        )
        return MemoryTrace(
            path=self._path,
            name=self._name,
            iterations=iterations,
            times_s=self._times_s,
            device_used_bytes=self._device_used_bytes,
            allocated_bytes=self._allocated_bytes,
            notes=self._notes(),
        )

    def _decode_file(self, data: bytes) -> dict[str, msgspec.Raw]:
        try:
            return _FILE_DECODER.decode(data)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            self._refuse(data, 0, "$", error)

    def _decode_iteration(self, data: bytes, key: str, raw: msgspec.Raw) -> _IterationRecord:
        try:
            return _ITERATION_DECODER.decode(raw)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            self._refuse(data, data.find(bytes(raw)), f'$["{key}"]', error)

    def _refuse(self, data: bytes, offset: int, prefix: str, error: Exception) -> NoReturn:
        """Raise what the decoder found, with the place in the whole file."""
        message, _, place = str(error).partition(" - at `$")
        byte = re.search(r"\s*\(byte (\d+)\)", message)
        expectation = "" if place else f"; {_EXPECTATION}"
        if byte is not None:
            position = locate_byte(data, offset + int(byte.group(1)))
            message = message.replace(byte.group(0), "")
        elif "truncated" in message:
            position, message = locate_byte(data, len(data)), "the file ends in the middle"
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
            self._fail("at $", "no iteration in it; expected at least one")
        for (index, key), (following, _) in pairwise(ordered):
            if index == following:
                self._fail(f'at $["{key}"]', f"iteration {index} is there twice; expected it once")
        return ordered

    def _add_iteration(self, index: int, key: str, record: _IterationRecord) -> TraceIteration:
        start = len(self._times_s)
        for position, sample in enumerate(record.samples):
            self._add_time(sample.timestamp_s, key, position)
            self._device_used_bytes.append(round(sample.reserved_memory_MB * MIB))
            self._allocated_bytes.append(round(sample.allocated_memory_MB * MIB))
        return TraceIteration(
            index=index,
            start=start,
            stop=len(self._times_s),
            peak_allocated_bytes=self._logged(key, "peak_allocated_MB", record.peak_allocated_MB),
            theoretical_bytes=self._logged(key, "theoretical_memory_MB", record.theoretical_memory_MB),
            static_bytes=self._logged(key, "static_memory_MB", record.static_memory_MB),
        )

    def _add_time(self, time_s: float, key: str, position: int) -> None:
        late_s = self._newest_s - time_s
        if late_s > CLOCK_STEP_LIMIT_S:
            self._fail(
                f'at $["{key}"].samples[{position}].timestamp_s',
                f"{time_s:g} s comes after {self._newest_s:g} s; expected one clock that never goes back",
            )
        if late_s > 0:
            self._late_count += 1
            self._late_most_s = max(self._late_most_s, late_s)
        self._newest_s = max(self._newest_s, time_s)
        self._times_s.append(self._newest_s)

    def _logged(self, key: str, field: str, value_mib: float) -> int | None:
        if value_mib == -1:
            return None
        if value_mib < 0:
            self._fail(f'at $["{key}"].{field}', f"{value_mib:g}; expected -1 (never logged) or at least 0")
        return round(value_mib * MIB)

    def _fail(self, position: str, text: str) -> NoReturn:
        raise InputFileError(f"{show_path(self._path)}: {position}: {text}")

    def _notes(self) -> tuple[str, ...]:
        if not self._late_count:
            return ()
        return (
            f"rank {self._name.rank}: the clock went back {self._late_count:,} times, at most by "
            f"{self._late_most_s:.3f} s; those samples stand at the time of the one before",
        )
