"""Reader of one memory trace, as a Megatron fork's tracker thread writes it for one rank.

The file is a JSON object of iterations (`"0"`, `"1"`, …); each has `samples` of seconds, device memory and
allocated memory, and peaks. `MB` there means MiB, and -1 means never logged. What it calls
`reserved_memory_MB` is not the allocator's reserved memory: it is what NVML said was used on a whole device,
and where the ordinals of CUDA and NVML differed, on another one.
"""

from array import array
from pathlib import Path

import msgspec

from ...errors import InputFileError
from ...model import RankCoordinates
from ..base.input_file import show_path
from .name import NAME_EXAMPLE, TraceName, parse_trace_name
from .records import LoggedBytes, mebibytes
from .spans import TraceSpan, TraceSpans
from .whole import read_whole


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
    name = read_trace_name(path)
    return _TraceBuilder(path, name).build(TraceSpans(path, read_whole(path)))


def read_trace_name(path: Path) -> TraceName:
    """Return what the name of a trace says.

    Raises:
        InputFileError: It is not the name of a memory trace, or its layout cannot be.
    """
    name = parse_trace_name(path.name)
    if name is None:
        raise InputFileError(
            f"{show_path(path)}: not the name of a memory trace; rank and layout stand only in the name, "
            f"so give it one such as {NAME_EXAMPLE}"
        )
    _check_name(path, name)
    return name


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
