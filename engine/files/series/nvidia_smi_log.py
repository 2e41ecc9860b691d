"""Reader of the log that `nvidia-smi --query-gpu=… --format=csv[,nounits][,noheader] -l 1` writes.

Timestamps are local time of the machine that wrote it; they are read as local time here.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

from ...errors import InputFileError
from ...model import DeviceState
from ..base.input_file import show_path
from ..base.series_devices import SeriesDevices
from ..base.series_record import LeftOut, RecordError, SeriesDevice, SeriesFormat, SeriesRecord, show_cell
from ..base.text_lines import LineFile
from .cells import CUT_OFF, is_cut_off
from .nvidia_smi_cells import judge_cell, parse_figure, parse_memory
from .nvidia_smi_header import EXPECTATION, LogHeader, guess_log_header, parse_log_header
from .nvidia_smi_time import LocalTime


class NvidiaSmiLog:
    """Reads the records of one log, once.

    Raises:
        InputFileError: The file cannot be read, or its columns cannot be told.
    """

    format: SeriesFormat = "nvidia-smi log"
    has_allocator = False

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lines = LineFile(path)
        self._devices = SeriesDevices()
        self._time = LocalTime()
        self._left_out = LeftOut(show_path(path))
        self._line_before = ""
        self._header = self._find_header()

    @property
    def read_share(self) -> float:
        """Share of the file that was read so far, from 0 to 1."""
        return self._lines.read_share

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences about the clock and about what was left out; complete after the last record."""
        turned = self._time.turned_back
        cut = "the compressed file ends in the middle; what was to follow is missing"
        return (
            "timestamps of nvidia-smi have no zone and were read as local time of this machine",
            *((f"the clock went back by an hour before {turned}; times go on from there",) if turned else ()),
            *self._devices.describe_names(),
            *((cut,) if self._lines.is_cut else ()),
            *self._left_out.notes(),
        )

    def explain_absence(self) -> str:
        """Return one line that says why there is no record at all, and what was expected."""
        return self._left_out.explain_absence(self._path)

    def close(self) -> None:
        """Stop before the end."""
        self._lines.close()

    def records(self) -> Iterator[SeriesRecord]:
        """Yield the records in the order of the file.

        Raises:
            InputFileError: The file is damaged so that it cannot be read on.
        """
        for first, lines in self._lines.blocks():
            self._left_out.seen = first + len(lines)
            for number, line in enumerate(lines, first):
                record = self._parse(number, line)
                if record is not None:
                    self._line_before = line
                    yield record
        if self._lines.unfinished is not None:
            yield from self._parse_unfinished(self._lines.unfinished_number, self._lines.unfinished)

    def _find_header(self) -> LogHeader:
        first = None
        for number, line in enumerate(self._lines.head_lines(), 1):
            try:
                header = parse_log_header(line) or guess_log_header(line)
            except RecordError as error:
                raise self._refuse(number, str(error)) from error
            if header is not None:
                return header
            if line.strip() and first is None:
                first = (number, f"{show_cell(line)} is neither header nor record; {EXPECTATION}")
        raise self._refuse(*(first or (1, f"no header; {EXPECTATION}")))

    def _refuse(self, number: int, detail: str) -> InputFileError:
        self.close()
        return InputFileError(f"{show_path(self._path)}: line {number}: {detail}")

    def _parse(self, number: int, line: str) -> SeriesRecord | None:
        """Return the record of a line; None where it holds none, which is counted unless it is a header."""
        cells = line.split(",")
        try:
            if len(cells) != self._header.width:
                if line.strip() and not self._take_header(line):
                    self._left_out.add("line", f"line {number}", f"{show_cell(line)} is no record")
                return None
            return self._convert(number, cells)
        except RecordError as error:
            if not self._take_header(line):
                self._left_out.add(error.kind, f"line {number}", str(error))
        return None

    def _take_header(self, line: str) -> bool:
        """Tell whether a line is a header, as where logs were joined; take its columns from there on."""
        try:
            header = parse_log_header(line)
        except RecordError:
            return False
        if header is not None:
            self._header = header
        return header is not None

    def _convert(self, number: int, cells: Sequence[str]) -> SeriesRecord:
        at = self._header.positions
        told: tuple[DeviceState, str | None] = judge_cell(cells[at["used"]]) or ("ok", None)
        used, total, free = (self._memory(cells, name) for name in ("used", "total", "free"))
        time_s = self._time.parse(cells[at["timestamp"]])
        device = self._find_device(cells)
        return SeriesRecord(
            line=number,
            time_s=time_s,
            device=device,
            used_bytes=used,
            total_bytes=total or None,
            free_bytes=free,
            utilization_percent=self._figure(cells, "utilization"),
            temperature_c=self._figure(cells, "temperature"),
            power_w=self._figure(cells, "power"),
            state=told[0],
            reason=told[1],
        )

    def _memory(self, cells: Sequence[str], name: str) -> int | None:
        at = self._header.positions.get(name)
        if at is None:
            return None
        return parse_memory(cells[at], f"memory.{name}", self._header.units.get(name, "MiB"))

    def _figure(self, cells: Sequence[str], name: str) -> float | None:
        at = self._header.positions.get(name)
        return None if at is None else parse_figure(cells[at])

    def _find_device(self, cells: Sequence[str]) -> SeriesDevice:
        at = self._header.positions
        uuid, index, bus, name = (
            cells[at[key]].strip() if key in at else "" for key in ("uuid", "index", "bus_id", "name")
        )
        if index and not (index.isdecimal() and len(index) <= 6):
            raise RecordError("index", f"index is {show_cell(index)}, expected the number of a GPU")
        if not (uuid or index or bus):
            raise RecordError("index", "nothing in the record tells which GPU it is of")
        return self._devices.identify(
            uuid or None, int(index) if index else None, index or uuid or bus, name or None
        )

    def _parse_unfinished(self, number: int, line: str) -> Iterator[SeriesRecord]:
        if is_cut_off(line, self._line_before, ",", self._header.width):
            self._left_out.add("cut", f"line {number}", CUT_OFF)
            return
        record = self._parse(number, line)
        if record is not None:
            yield record
