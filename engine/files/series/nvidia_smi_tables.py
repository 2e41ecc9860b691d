"""Readers of what `nvidia-smi` prints for people: its table, once or again and again, `dmon` and `pmon`."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ...errors import InputFileError
from ..base.input_file import show_path
from ..base.packed_file import CUT_NOTE, LineFile
from ..base.series_reader import MOST_BYTES, RecordError, SeriesFormat, SeriesReader, SeriesRecord, show_cell
from .nvidia_smi import LOCAL_TIMES, LocalTime, judge_cell, parse_figure, parse_memory

_DAY_S = 86_400.0
# Between two reports; `-d 1` and `-l 1` are the shortest and the usual.
_SUPPOSED_INTERVAL_S = 1.0
_NO_TIMES = "no times in it: reports are assumed to be one second apart"


def is_monitor_header(line: str) -> bool:
    """Tell whether a line names the columns of `nvidia-smi dmon` or `pmon`."""
    return _parse_columns(line) is not None


def _parse_columns(line: str) -> list[str] | None:
    """Return the columns of a header such as `#Date Time gpu pwr fb`, in lower case."""
    if not line.startswith("#"):
        return None
    names = line[1:].lower().split()
    before = [name for name in names[:2] if name in ("date", "time")]
    return names if len(names) > len(before) + 1 and names[len(before)] == "gpu" else None


class _Row(NamedTuple):
    line: int
    time_s: float
    gpu: int
    # None for a GPU, or a process, whose memory is not printed.
    used_bytes: int | None
    cells: dict[str, str]


class NvidiaSmiMonitor(SeriesReader):
    """Rows of `nvidia-smi dmon -s m` and `pmon -s m`: memory of GPUs, and of the processes on them."""

    format: SeriesFormat = "nvidia-smi dmon"
    has_allocator = False

    def __init__(self, path: Path) -> None:
        self._lines = LineFile(path)
        super().__init__(path, self._lines)
        self._time = LocalTime()
        self._columns: list[str] = []
        # Of times without a date: seconds at which the newest day began, and its newest time.
        self._day_s = 0.0
        self._newest_s = 0.0
        self._reports = 0
        # GPUs, or their processes, of the newest report of a file without times.
        self._reported: set[tuple[int, str]] = set()
        self._find_header()

    @property
    def notes(self) -> tuple[str, ...]:
        has_date = "date" in self._columns
        has_time = "time" in self._columns
        times = LOCAL_TIMES if has_date else "times without a date: they count from the first midnight"
        return (
            times if has_time else _NO_TIMES,
            *(("memory of a GPU is the sum of its processes",) if "pid" in self._columns else ()),
            *((CUT_NOTE,) if self._lines.is_cut else ()),
            *self._left_out.notes(),
        )

    def records(self) -> Iterator[SeriesRecord]:
        if "pid" not in self._columns:
            for row in self._rows():
                yield self._make_record(row, row.used_bytes)
            return
        yield from self._sum_processes()

    def _find_header(self) -> None:
        header = next((line for line in self._lines.head_lines() if is_monitor_header(line)), "#")
        self._columns = _parse_columns(header) or []
        if "fb" not in self._columns:
            self.close()
            verb = "pmon" if "pid" in self._columns else "dmon"
            raise InputFileError(
                f"{show_path(self._path)}: no column fb, the memory in use; expected what "
                f"`nvidia-smi {verb} -s um -o DT` prints"
            )

    def _rows(self) -> Iterator[_Row]:
        for number, line in self._lines.numbered_lines():
            self._left_out.seen = number
            if not line.strip() or line.lstrip().startswith("#"):
                self._switch_columns(line)
                continue
            cells = line.split(None, len(self._columns) - 1)
            try:
                if len(cells) != len(self._columns):
                    raise RecordError("line", f"{show_cell(line)} does not match the columns of the header")
                yield self._parse(number, dict(zip(self._columns, cells, strict=True)))
            except RecordError as error:
                self._left_out.add(error.kind, f"line {number}", str(error))

    def _switch_columns(self, line: str) -> None:
        """Follow a header, which comes again every few rows; joined files may differ."""
        columns = _parse_columns(line)
        if columns is not None and "fb" in columns and ("pid" in columns) == ("pid" in self._columns):
            self._columns = columns

    def _parse(self, number: int, cells: dict[str, str]) -> _Row:
        gpu = cells["gpu"]
        if not (gpu.isdecimal() and len(gpu) <= 6):
            raise RecordError("gpu", f"gpu is {show_cell(gpu)}, expected the number of a GPU")
        if cells.get("pid") == "-":
            used_bytes: int | None = 0  # a GPU without a process
        else:
            used_bytes = None if cells["fb"] == "-" else parse_memory(cells["fb"], "fb", "MiB")
        time_s = self._find_time(cells, (int(gpu), cells.get("pid", "")))
        return _Row(number, time_s, int(gpu), used_bytes, cells)

    def _find_time(self, cells: dict[str, str], key: tuple[int, str]) -> float:
        date = cells.get("date")
        time = cells.get("time")
        if time is None:
            if key in self._reported:
                self._reports += 1
                self._reported.clear()
            self._reported.add(key)
            return self._reports * _SUPPOSED_INTERVAL_S
        if date is not None:
            digits = date.replace("/", "").replace("-", "")
            return self._time.parse(f"{digits[:4]}/{digits[4:6]}/{digits[6:]} {time}")
        match = re.fullmatch(r"(\d\d):(\d\d):(\d\d)", time)
        if match is None:
            raise RecordError("time", f"time is {show_cell(time)}, expected one such as 10:30:00")
        hours, minutes, seconds = (int(part) for part in match.groups())
        time_s = self._day_s + 3600.0 * hours + 60.0 * minutes + seconds
        if time_s < self._newest_s - _DAY_S / 2:
            self._day_s += _DAY_S
            time_s += _DAY_S
        self._newest_s = max(self._newest_s, time_s)
        return time_s

    def _make_record(self, row: _Row, used_bytes: int | None) -> SeriesRecord:
        return SeriesRecord(
            row.line,
            row.time_s,
            self._devices.identify(None, row.gpu, str(row.gpu), None),
            used_bytes=used_bytes,
            utilization_percent=None if "pid" in row.cells else parse_figure(row.cells.get("sm", "")),
            temperature_c=parse_figure(row.cells.get("gtemp", "")),
            power_w=parse_figure(row.cells.get("pwr", "")),
        )

    def _sum_processes(self) -> Iterator[SeriesRecord]:
        first: dict[int, _Row] = {}
        # None where the memory of a process is not printed: then the sum is not known either.
        used_bytes: dict[int, int | None] = {}
        for row in self._rows():
            if first and row.time_s != next(iter(first.values())).time_s:
                yield from (self._make_record(first[gpu], used_bytes[gpu]) for gpu in first)
                first.clear()
                used_bytes.clear()
            first.setdefault(row.gpu, row)
            before = used_bytes.get(row.gpu, 0)
            used_bytes[row.gpu] = (
                None
                if before is None or row.used_bytes is None
                else min(before + row.used_bytes, MOST_BYTES - 1)
            )
        yield from (self._make_record(first[gpu], used_bytes[gpu]) for gpu in first)


_TITLE = re.compile(r"\|\s*NVIDIA-SMI\s+\S.*Driver Version")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_DATE = re.compile(
    rf"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) ({'|'.join(_MONTHS)}) +(\d{{1,2}}) (\d\d:\d\d:\d\d) (\d{{4}})"
)
_GPU = re.compile(
    r"\|\s{1,4}(\d{1,4})\s+(\S.{0,80}?)\s+(?:On|Off|N/A)\s*\|\s*[0-9A-Fa-f]{4,8}:[0-9A-Fa-f:.]{7}"
)
_MEMORY = re.compile(r"(\S.*?)\s*/\s*(\S.*)")


def is_smi_table(text: str) -> bool:
    """Tell whether a text has the title of the table of nvidia-smi."""
    return _TITLE.search(text) is not None


class NvidiaSmiTable(SeriesReader):
    """Tables of plain `nvidia-smi`, also of `nvidia-smi -l` and of loops that append to a file."""

    format: SeriesFormat = "nvidia-smi table"
    has_allocator = False

    def __init__(self, path: Path) -> None:
        self._lines = LineFile(path)
        super().__init__(path, self._lines)
        self._time = LocalTime()
        self._date: str | None = None
        self._tables = 0
        self._has_dates = False

    @property
    def notes(self) -> tuple[str, ...]:
        return (
            LOCAL_TIMES if self._has_dates else _NO_TIMES,
            *((CUT_NOTE,) if self._lines.is_cut else ()),
            *self._left_out.notes(),
        )

    def records(self) -> Iterator[SeriesRecord]:
        gpu: tuple[int, str] | None = None
        time_s = 0.0
        for number, line in self._lines.numbered_lines():
            self._left_out.seen = number
            date = _DATE.search(line)
            if date is not None:
                month = _MONTHS.index(date[1]) + 1
                self._date = f"{date[4]}/{month:02d}/{int(date[2]):02d} {date[3]}"
            try:
                if _TITLE.search(line):
                    time_s = self._begin_table()
                elif gpu is not None:
                    found, gpu = gpu, None
                    yield self._parse(number, time_s, *found, line)
            except RecordError as error:
                self._left_out.add(error.kind, f"line {number}", str(error))
            match = _GPU.match(line)
            gpu = None if match is None else (int(match[1]), match[2])

    def _begin_table(self) -> float:
        """Return the time of a table: that of the date before it, else the next second."""
        self._tables += 1
        date, self._date = self._date, None
        if date is None:
            return (self._tables - 1) * _SUPPOSED_INTERVAL_S
        self._has_dates = True
        return self._time.parse(date)

    def _parse(self, number: int, time_s: float, index: int, name: str, line: str) -> SeriesRecord:
        """Return the record of the second line of a GPU: fan, temperature, power | memory | utilization."""
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        memory = _MEMORY.fullmatch(cells[1]) if len(cells) == 3 else None
        if memory is None and not (len(cells) == 3 and judge_cell(cells[1])):
            raise RecordError("memory", f"{show_cell(line)} has no memory such as 1234MiB / 81920MiB")
        state, reason = judge_cell(memory[1] if memory else cells[1]) or ("ok", None)
        total_bytes = None if memory is None else parse_memory(memory[2], "memory", "MiB")
        temperature = re.search(r"(\d{1,3})C\b", cells[0])
        power = re.search(r"(\d{1,5})W\s*/", cells[0])
        share = re.match(r"(\d{1,3})%", cells[2])
        return SeriesRecord(
            number,
            time_s,
            self._devices.identify(None, index, str(index), name),
            used_bytes=None if memory is None else parse_memory(memory[1], "memory", "MiB"),
            total_bytes=total_bytes or None,
            utilization_percent=float(share[1]) if share else None,
            temperature_c=float(temperature[1]) if temperature else None,
            power_w=float(power[1]) if power else None,
            state=state,
            reason=reason,
        )
