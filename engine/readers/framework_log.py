"""Reader of what a training framework printed: its lines of memory, at the times that the log tells.

A line of memory seldom has a date of its own. Its time is then that of the newest line above it that has one;
a line with none above it is left out, for no time is better than a guess.
"""

import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from .framework_lines import MemoryLine, parse_memory_line
from .input_file import show_path
from .series_devices import SeriesDevices
from .series_record import LeftOut, RecordError, SeriesFormat, SeriesRecord
from .text_lines import LineFile

HEAD_LINES = 1 << 15
"""Lines at the beginning, within the first quarter of a mebibyte, of which one must be of memory."""
_DATE_WITHIN = 120
"""Characters at the beginning of a line in which a date is that of the line."""
_DATE = re.compile(r"(\d{4})-(\d\d)-(\d\d)[ T](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,6}))?")
_AMERICAN_DATE = re.compile(r"(\d\d)/(\d\d)/(\d{4}) (\d\d):(\d\d):(\d\d)")
_OUT_OF_MEMORY = re.compile(r"\b(?:CUDA|HIP|XPU) out of memory\. Tried to allocate")
_EXPECTED = "expected a line with a date above it, such as [2025-07-26 02:46:53]"


def is_framework_log(lines: list[str]) -> bool:
    """Tell whether any line is one of memory of a framework that is known, though perhaps a damaged one."""
    return any(map(_is_of_memory, lines))


class FrameworkLog:
    """Reads the records of one log, once.

    Raises:
        InputFileError: The file cannot be read.
    """

    format: SeriesFormat = "framework log"
    has_allocator = True

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lines = LineFile(path, longest_line=1 << 20)
        self._devices = SeriesDevices()
        self._left_out = LeftOut()
        self._time_s: float | None = None
        self._ooms = 0
        self._first_oom = 0

    @property
    def read_share(self) -> float:
        """Share of the file that was read so far, from 0 to 1."""
        return self._lines.read_share

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences about what the figures are and what was left out; complete after the last record."""
        which = "1 out-of-memory error is" if self._ooms == 1 else f"{self._ooms:,} out-of-memory errors are"
        return (
            "times are those of the newest date at or above each line of memory, in local time",
            *((f"{which} in the text, the first at line {self._first_oom}",) if self._ooms else ()),
            *self._left_out.notes(),
        )

    def explain_absence(self) -> str:
        """Return one line that says why there is no record at all, and what was expected."""
        first = self._left_out.first or _EXPECTED
        return f"{show_path(self._path)}: no line of memory in it can be used; {first}"

    def close(self) -> None:
        """Stop before the end."""
        self._lines.close()

    def records(self) -> Iterator[SeriesRecord]:
        """Yield the records in the order of the file.

        Raises:
            InputFileError: The file is damaged so that it cannot be read on.
        """
        for first, lines in self._lines.blocks():
            for number, line in enumerate(lines, first):
                yield from self._parse(number, line)
        if self._lines.unfinished is not None:
            yield from self._parse(self._lines.unfinished_number, self._lines.unfinished)

    def _parse(self, number: int, line: str) -> Iterator[SeriesRecord]:
        time_s = _find_time(line)
        self._time_s = self._time_s if time_s is None else time_s
        if _OUT_OF_MEMORY.search(line) is not None:
            self._ooms += 1
            self._first_oom = self._first_oom or number
        try:
            said = parse_memory_line(line)
            if said is not None:
                yield self._convert(number, said)
        except RecordError as error:
            self._left_out.add(error.kind, f"line {number}", str(error))

    def _convert(self, number: int, said: MemoryLine) -> SeriesRecord:
        if self._time_s is None:
            raise RecordError("time", f"no time is known of it; {_EXPECTED}")
        label = "log" if said.rank is None else f"rank {said.rank}"
        return SeriesRecord(
            number,
            self._time_s,
            self._devices.identify(None, said.rank, label, None),
            allocated_bytes=said.allocated_bytes,
            reserved_bytes=said.reserved_bytes,
            used_bytes=said.used_bytes,
            step=said.step,
        )


def _is_of_memory(line: str) -> bool:
    try:
        return parse_memory_line(line) is not None
    except RecordError:
        return True


def _find_time(line: str) -> float | None:
    """Return the first date of a line in seconds since the epoch, taken as local time."""
    head = line[:_DATE_WITHIN]
    match = _DATE.search(head)
    if match is not None:
        year, month, day, hour, minute, second = (int(text) for text in match.groups()[:6])
        micros = int((match[7] or "0").ljust(6, "0"))
    else:
        match = _AMERICAN_DATE.search(head)
        if match is None:
            return None
        month, day, year, hour, minute, second = (int(text) for text in match.groups())
        micros = 0
    try:
        return datetime(year, month, day, hour, minute, second, micros).timestamp()
    except (ValueError, OverflowError):
        return None
