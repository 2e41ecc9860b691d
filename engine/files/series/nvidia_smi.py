"""Logs of `nvidia-smi --query-gpu`: their header, cells, times and rows."""

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from functools import lru_cache
from itertools import pairwise
from pathlib import Path

import msgspec

from ...errors import InputFileError
from ...model import DeviceState
from ..base.input_file import show_path
from ..base.packed_file import LineFile
from ..base.series_reader import (
    MOST_BYTES,
    RecordError,
    SeriesDevice,
    SeriesFormat,
    SeriesReader,
    SeriesRecord,
    show_cell,
)
from .open import CUT_OFF, is_cut_off

NO_FIGURE = re.compile(r"\[?(?:N/?A|Not Supported|Not Available|Insufficient Permissions)\]?", re.IGNORECASE)
LOST = re.compile(r"\[?(?:GPU is lost|Unknown Error|GPU requires reset|ERR!?)\]?", re.IGNORECASE)
_FIGURE = re.compile(r"(-?\d{1,18}(?:\.\d{1,18})?)\s*([A-Za-z%]*)")
# nvidia-smi wrote MB for MiB before it wrote MiB.
_BYTES = {"b": 1, "kib": 2**10, "kb": 2**10, "mib": 2**20, "mb": 2**20, "gib": 2**30, "gb": 2**30}


def judge_cell(text: str) -> tuple[DeviceState, str] | None:
    """Return the state of a device whose cell has no memory, with the reason; None if the cell has a size."""
    cell = text.strip()
    if NO_FIGURE.fullmatch(cell) or not cell:
        return "unsupported", f"nvidia-smi reported no memory: {cell or 'an empty cell'}"
    if LOST.fullmatch(cell):
        return "lost", f"nvidia-smi reported {cell}"
    return None


def parse_memory(text: str, column: str, unit: str) -> int | None:
    """Return bytes, or None if the cell has none; a unit in it has precedence over the header's."""
    cell = text.strip()
    if judge_cell(cell) is not None:
        return None
    match = _FIGURE.fullmatch(cell)
    factor = _BYTES.get((match[2] or unit).lower()) if match else None
    if match is None or factor is None:
        raise RecordError(column, f"{column} is {show_cell(cell)}, expected memory such as 1234 MiB")
    value = round(float(match[1]) * factor)
    if not 0 <= value < MOST_BYTES:
        raise RecordError(column, f"{column} is {show_cell(cell)}, expected a size that a device can have")
    return value


def parse_figure(text: str) -> float | None:
    """Return a plain number (percent, °C, W), or None: what decides nothing refuses no record."""
    match = _FIGURE.fullmatch(text.strip())
    return None if match is None else float(match[1])


# The zone is that of the machine that reads. Where clocks were set back at the end of daylight saving time,
# an hour comes twice; times are kept from going back: by PEP 495's fold where the zone here knows of it,
# else by one hour that is added from there on.

# As nvidia-smi writes it (`2025/06/23 10:30:00.123`), and with the dashes of ISO 8601.
TIMESTAMP = re.compile(r"(\d{4})[/-](\d\d)[/-](\d\d)[ T](\d\d):(\d\d):(\d\d(?:[.,]\d{1,9})?)")
HOUR_S = 3600.0
# Clocks that are set back by one hour go back by that less the time between two records.
_BACK_AT_LEAST_S = 1800.0
# Clocks are set back in these hours anywhere; a jump at another hour is of joined or disordered logs.
_HOURS_OF_TURNING = frozenset({23, 0, 1, 2, 3})


class LocalTime:
    """Converts timestamps to seconds since the epoch, in the order of the log."""

    def __init__(self) -> None:
        self._minute = ""
        self._minute_s = 0.0
        self._later_s = 0.0
        self._fold = 0
        self._newest_s: float | None = None
        # The first timestamp after the clocks were set back by an hour.
        self.turned_back: str | None = None

    def parse(self, cell: str) -> float:
        text = cell.strip()
        match = TIMESTAMP.fullmatch(text)
        if match is None:
            raise RecordError(
                "timestamp", f"timestamp is {show_cell(text)}, expected one such as 2025/06/23 10:30:00.123"
            )
        time_s = self._convert(match)
        back_s = 0.0 if self._newest_s is None else self._newest_s - time_s
        if _BACK_AT_LEAST_S <= back_s <= HOUR_S and int(match[4]) in _HOURS_OF_TURNING and not self._fold:
            time_s = self._turn_back(match, text)
        self._newest_s = time_s if self._newest_s is None else max(self._newest_s, time_s)
        return time_s

    def _convert(self, match: re.Match[str]) -> float:
        # Whole minutes are converted once, since each asks the zone's rules.
        minute = match.string[:16]
        if minute != self._minute:
            self._minute_s = self._epoch_of(match, self._fold)
            self._minute = minute
            if self._fold and self._minute_s == self._epoch_of(match, 0):
                self._fold = 0
        return self._minute_s + float(match[6].replace(",", ".")) + self._later_s

    def _epoch_of(self, match: re.Match[str], fold: int) -> float:
        parts = [int(part) for part in match.groups()[:5]]
        try:
            return datetime(*parts, fold=fold).timestamp()  # type: ignore[arg-type]
        except (ValueError, OverflowError, OSError) as error:
            raise RecordError(
                "timestamp", f"timestamp is {show_cell(match.string)}, which is not a valid time"
            ) from error

    def _turn_back(self, match: re.Match[str], text: str) -> float:
        if self.turned_back is None:
            self.turned_back = text
        if self._epoch_of(match, 1) > self._epoch_of(match, 0):
            self._fold = 1
        else:
            self._later_s += HOUR_S
        self._minute = ""
        return self._convert(match)


LOCAL_TIMES = "timestamps of nvidia-smi have no time zone and were read as local time of this machine"
EXPECTATION = (
    "expected what nvidia-smi --query-gpu=timestamp,index,memory.used,memory.total "
    "--format=csv[,nounits] writes"
)
# Columns as nvidia-smi calls them (`nvidia-smi --help-query-gpu`), and our names.
NAMES = {
    "timestamp": "timestamp",
    "index": "index",
    "uuid": "uuid",
    "gpu_uuid": "uuid",
    "name": "name",
    "gpu_name": "name",
    "pci.bus_id": "bus_id",
    "gpu_bus_id": "bus_id",
    "memory.used": "used",
    "memory.total": "total",
    "memory.free": "free",
    "utilization.gpu": "utilization",
    "temperature.gpu": "temperature",
    "power.draw": "power",
    "power.draw.instant": "power",
    "power.draw.average": "power",
}
_COLUMN = re.compile(r"([a-z][a-z0-9_.]*)(?:\s*\[([A-Za-z%]*)\])?")
# Every header has one of these, and hardly any record; each record that is left out is tested.
_MAYBE = re.compile("timestamp|memory", re.IGNORECASE)
_MEMORY_FIGURE = re.compile(r"([0-9]{1,18})(?:\s*MiB)?")
_MOST_DIGITS_OF_INDEX = 4
# nvidia-smi reads its GPUs one after another, and then waits: in a log of several most gaps between records
# are short next to the others. Below the least, in seconds, they are of several in any case.
_SHORT_GAP = 0.5
_LEAST_GAP_S = 0.01
ONE_GPU = "no column says which GPU a record is of: all were read as of one"


class LogHeader(msgspec.Struct, frozen=True):
    """Positions of the columns of a log, and the unit of its memory."""

    width: int
    positions: dict[str, int]
    units: dict[str, str]

    @property
    def names_gpus(self) -> bool:
        """Whether a column says which GPU a record is of; else it must be the only one."""
        return not {"index", "uuid", "bus_id"}.isdisjoint(self.positions)


@lru_cache(maxsize=16)  # one in every line, as where a thousand short logs were joined
def parse_log_header(line: str) -> LogHeader | None:
    """Return the columns that a line names, or None if it is no header of nvidia-smi."""
    if not _MAYBE.search(line):
        return None
    found = [_COLUMN.fullmatch(cell.strip().strip('"').lower()) for cell in line.split(",")]
    names = [None if match is None else NAMES.get(match[1]) for match in found]
    if "timestamp" not in names and not {"used", "total", "free"} & set(names):
        return None
    positions = {name: names.index(name) for name in names if name is not None}
    units = {name: match[2] for name, at in positions.items() if (match := found[at]) and match[2]}
    if "timestamp" not in positions:
        raise RecordError("header", f"no column timestamp; {EXPECTATION}")
    if "used" not in positions:
        raise RecordError("header", f"no column memory.used; {EXPECTATION}")
    return LogHeader(len(names), positions, units)


def guess_log_header(line: str) -> LogHeader | None:
    """Return the columns of a log that was written without a header, or None if the line is no record."""
    cells = [cell.strip() for cell in line.split(",")]
    if not TIMESTAMP.fullmatch(cells[0]):
        return None
    if (
        len(cells) == 4
        and cells[1].isdecimal()
        and len(cells[1]) <= _MOST_DIGITS_OF_INDEX
        and _are_memory(cells[2:])
    ):
        return LogHeader(4, {"timestamp": 0, "index": 1, "used": 2, "total": 3}, {})
    raise RecordError(
        "header",
        f"{show_cell(line)} has no header before it, so its {len(cells)} columns are unknown; without "
        "a header only timestamp,index,memory.used,memory.total can be read: remove noheader",
    )


def _are_memory(cells: list[str]) -> bool:
    """Recognize used and total: numbers with or without MiB, used the lesser; or words for none."""
    figures = [int(found[1]) for found in map(_MEMORY_FIGURE.fullmatch, cells) if found]
    if len(figures) == 2:
        return figures[0] <= figures[1]
    return all(_MEMORY_FIGURE.fullmatch(cell) or judge_cell(cell) is not None for cell in cells)


# Timestamps are local time of the machine that wrote it; they are read as local time here.


class NvidiaSmiLog(SeriesReader):
    format: SeriesFormat = "nvidia-smi log"
    has_allocator = False

    def __init__(self, path: Path) -> None:
        self._lines = LineFile(path)
        super().__init__(path, self._lines)
        self._time = LocalTime()
        self._line_before = ""
        self._header = self._find_header()
        if not self._header.names_gpus:
            self._check_single_gpu()

    @property
    def notes(self) -> tuple[str, ...]:
        turned = self._time.turned_back
        cut = "the compressed file is cut short; the rest is missing"
        return (
            LOCAL_TIMES,
            *(() if self._header.names_gpus else (ONE_GPU,)),
            *(
                (f"the clock went back by an hour before {turned}; later times continue from there",)
                if turned
                else ()
            ),
            *self._devices.describe_names(),
            *((cut,) if self._lines.is_cut else ()),
            *self._left_out.notes(),
        )

    def records(self) -> Iterator[SeriesRecord]:
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
                first = (number, f"{show_cell(line)} is neither a header nor a record; {EXPECTATION}")
        raise self._refuse(*(first or (1, f"no header; {EXPECTATION}")))

    def _check_single_gpu(self) -> None:
        """Refuse a log whose first records come in groups, as those of several GPUs do."""
        clock, times_s = LocalTime(), list[float]()
        at = self._header.positions["timestamp"]
        for line in self._lines.head_lines():
            cells = line.split(",")
            if len(cells) == self._header.width:
                with suppress(RecordError):
                    times_s.append(clock.parse(cells[at]))
        gaps_s = sorted(after_s - before_s for before_s, after_s in pairwise(times_s))
        if not gaps_s:
            return
        short_s = gaps_s[len(gaps_s) // 3]
        if short_s < max(_LEAST_GAP_S, _SHORT_GAP * gaps_s[-1 - len(gaps_s) // 8]):
            raise self._refuse(
                1,
                f"no column index, uuid or pci.bus_id, and records {1000 * short_s:.0f} ms apart, as of "
                f"several GPUs; {EXPECTATION}",
            )

    def _refuse(self, number: int, detail: str) -> InputFileError:
        self.close()
        return InputFileError(f"{show_path(self._path)}: line {number}: {detail}")

    def _parse(self, number: int, line: str) -> SeriesRecord | None:
        """Return the record of a line; None if it has none, which is counted unless it is a header."""
        cells = line.split(",")
        try:
            if len(cells) != self._header.width:
                if line.strip() and not self._switch_header(line):
                    self._left_out.add("line", f"line {number}", f"{show_cell(line)} is not a record")
                return None
            return self._convert(number, cells)
        except RecordError as error:
            if not self._switch_header(line):
                self._left_out.add(error.kind, f"line {number}", str(error))
        return None

    def _switch_header(self, line: str) -> bool:
        """Return whether a line is a header, as in joined logs; its columns count from there on."""
        try:
            header = parse_log_header(line)
        except RecordError:
            return False
        if header is None or (self._header.names_gpus and not header.names_gpus):
            return False
        self._header = header
        return True

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
        if not self._header.names_gpus:
            index = "0"
        if index and not (index.isdecimal() and len(index) <= 6):
            raise RecordError("index", f"index is {show_cell(index)}, expected the number of a GPU")
        if not (uuid or index or bus):
            raise RecordError("index", "the record does not identify its GPU")
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
