"""Reader of the `memory.log` of InternLM and InternEvo (`SimpleMemoryProfiler`): totals over a few steps.

InternLM computes the sizes from the shapes of tensors and does not measure them, so the device is called
simulated: no fragmentation, no workspace, and gradients count as if they were always there. Times count from
when the profiler was made. Layouts by layer are passed over here;
`engine/files/module_memory.py` reads them.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from ...model import RankCoordinates
from ...units import MIB, format_bytes
from ..base.input_file import show_path
from ..base.packed_file import CUT_NOTE, LineFile
from ..base.series_reader import (
    MOST_BYTES,
    MOST_SECONDS,
    RecordError,
    SeriesDevice,
    SeriesFormat,
    SeriesReader,
    SeriesRecord,
    show_cell,
)

BEGIN = "Memory State:"
_PART = re.compile(r"\b([a-z_]{1,40})_memory: (-?\d[\d.]{0,40}) MB")
_FOLDER = re.compile(r"rank(\d{1,9})_dp(\d{1,9})(?:_wp\d{1,9})?_tp(\d{1,9})(?:_pp(\d{1,9}))?")
_NAMES = {
    "params": "parameters",
    "grads": "gradients",
    "os_params": "parameters of the optimizer",
    "os_state": "state of the optimizer",
    "activation": "activations",
}
_EXPECTED = 'expected "Memory State:", a time and a total_memory in MB'
COMPUTED_NOTE = "sizes are computed from tensor shapes by the rule of InternLM's profiler, not measured"


class InternlmLog(SeriesReader):
    """The folder `rank0_dp0_tp0` that the file is in names its rank."""

    format: SeriesFormat = "InternLM log"

    def __init__(self, path: Path) -> None:
        self._lines = LineFile(path)
        super().__init__(path, self._lines)
        self._state: _State | None = None
        self._largest = (-1, "")
        self._rank = read_rank(path)
        number = 0 if self._rank is None else self._rank.rank
        label = "0" if self._rank is None else f"rank {number}"
        self._device = SeriesDevice(f"index-{number}", number, label, kind="simulated")

    @property
    def notes(self) -> tuple[str, ...]:
        size, parts = self._largest
        return (
            COMPUTED_NOTE,
            *((f"at the largest total of {format_bytes(size)}: {parts}",) if parts else ()),
            *((CUT_NOTE,) if self._lines.is_cut else ()),
            *self._left_out.notes(),
        )

    def explain_absence(self) -> str:
        return f"{show_path(self._path)}: no usable state; {self._left_out.first or _EXPECTED}"

    def records(self) -> Iterator[SeriesRecord]:
        for number, text in self._lines.numbered_lines():
            line = text.strip()
            if line == BEGIN:
                yield from self._end_state()
                self._state = _State(number)
            elif self._state is not None and not line.startswith("layer:"):
                self._state.read_line(line)
        yield from self._end_state()

    def _end_state(self) -> Iterator[SeriesRecord]:
        state = self._state
        self._state = None
        if state is None:
            return
        try:
            time_s = state.read_time()
            total_bytes = state.read_total()
        except RecordError as error:
            self._left_out.seen = state.line
            self._left_out.add(error.kind, f"line {state.line}", str(error))
            return
        if total_bytes > self._largest[0]:
            self._largest = total_bytes, state.describe_parts()
        yield SeriesRecord(state.line, time_s, self._device, total_bytes, rank=self._rank)


class _State:
    def __init__(self, line: int) -> None:
        self.line = line
        self._time: str | None = None
        self._parts: dict[str, str] = {}

    def read_line(self, line: str) -> None:
        # Only the first line of each kind counts.
        if self._time is None and line.startswith("time:"):
            self._time = line[len("time:") :].strip()
        else:
            for name, figure in _PART.findall(line):
                self._parts.setdefault(name, figure)

    def read_time(self) -> float:
        try:
            time_s = float(self._time or "")
        except ValueError:
            time_s = MOST_SECONDS
        if -MOST_SECONDS < time_s < MOST_SECONDS:
            return time_s
        raise RecordError("time", f"time is {show_cell(self._time or '')}, expected seconds")

    def read_total(self) -> int:
        figure = self._parts.get("total")
        size = None if figure is None else _read_size(figure)
        if size is None or not 0 <= size < MOST_BYTES:
            raise RecordError("total", f"total_memory is {show_cell(figure or '')}, expected MB")
        return size

    def describe_parts(self) -> str:
        sizes = [(_read_size(self._parts.get(part, "")), name) for part, name in _NAMES.items()]
        known = sorted(((size, name) for size, name in sizes if size), reverse=True)
        return ", ".join(f"{format_bytes(size)} {name}" for size, name in known)


def _read_size(figure: str) -> int | None:
    """Return bytes: what the profiler calls MB is MiB."""
    try:
        return round(float(figure) * MIB)
    except (ValueError, OverflowError):
        return None


def read_rank(path: Path) -> RankCoordinates | None:
    """Parse the name of the file's folder, as `rank3_dp1_tp1`; None for any other name."""
    match = _FOLDER.fullmatch(path.absolute().parent.name)
    if match is None:
        return None
    rank, dp, tp, pp = (None if text is None else int(text) for text in match.groups())
    return None if rank is None else RankCoordinates(rank, dp=dp, tp=tp, pp=pp, source="trace")
