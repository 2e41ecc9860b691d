"""Reader of what a training framework printed: its lines of memory, at the times in the log.

A line of memory seldom has a date. Its time is then that of the newest line above it that has one; a line
with none above it is left out, for no time is better than a guess.
"""

import re
from collections.abc import Iterator
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from ...units import GIB, MIB, format_bytes
from ...unmeasured import most_known
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
from .oom_text import MARK, OomNotes, OomText, parse_oom_text

# Megatron-LM's `report_memory`, Megatron-Bridge, torchtitan's metrics, DeepSpeed's `see_memory_usage` and
# timers, nanotron, picotron, onnxruntime's training and NeMo. Lines may have colours and what a launcher
# puts before them.

_GB = 10**9
COLOUR = re.compile(r"\x1b\[[0-9;]{0,16}m")
_NUMBER = r"(\d[\d.]{0,40})"
_MEGATRON = re.compile(r"\[Rank (\d{1,9})\] ?(.{0,200}?) ?memory \((MB|GB)\) \| (.{1,2000})")
_MEGATRON_STEP = re.compile(r"after (\d{1,15}) iterations")
# Every line of memory has one of these; a search for them is much quicker than for the lines.
_HINTS = ("emory", "mem", "MA ", "MemAllocated", "CUDA RAM")
_RANK = re.compile(r"\[(?:rank ?|Rank |default)(\d{1,9})\]|^\s*(\d{1,9}): ")


class MemoryLine(NamedTuple):
    rank: int | None
    step: int | None = None
    allocated_bytes: int | None = None
    reserved_bytes: int | None = None
    used_bytes: int | None = None


def parse_memory_line(line: str) -> MemoryLine | None:
    """Parse a line of any known framework; None if it is none."""
    if not any(map(line.__contains__, _HINTS)):
        return None
    text = COLOUR.sub("", line)
    megatron = _MEGATRON.search(text)
    if megatron is not None:
        return _parse_megatron(megatron)
    for pattern, unit in _LINES:
        match = pattern.search(text)
        if match is not None:
            found = match.groupdict()
            rank = found.get("rank")
            step = found.get("step")
            return MemoryLine(
                find_rank(text) if rank is None else int(rank),
                None if step is None else int(step),
                _size(found.get("allocated"), unit),
                _size(found.get("reserved"), unit),
            )
    return None


def _parse_megatron(match: re.Match[str]) -> MemoryLine:
    """Megatron-LM counts MiB and calls them MB; Megatron-Bridge counts 10^9 and calls them GB."""
    unit = MIB if match[3] == "MB" else _GB
    figures = dict(part.partition(":")[::2] for part in match[4].split("|"))
    known = {name.strip(): value.strip() for name, value in figures.items()}
    step = _MEGATRON_STEP.search(match[2])
    allocated, reserved = (
        known.get(name, known.get(f"mem-{name}-gigabytes")) for name in ("allocated", "reserved")
    )
    if allocated is None and reserved is None:
        raise RecordError("line", f"{show_cell(match[4])} has neither allocated nor reserved")
    return MemoryLine(
        int(match[1]),
        None if step is None else int(step[1]),
        _size(allocated, unit),
        _size(reserved, unit),
        _size(known.get("total device memory used"), unit),
    )


_STEP = r"(?P<step>\d{1,15})"
_RANK_OF_LINE = r"(?P<rank>\d{1,9})"
_ALLOCATED = r"(?P<allocated>\d[\d.]{0,40})"
_RESERVED = r"(?P<reserved>\d[\d.]{0,40})"
# A framework's line, its numbers by name, and the unit of its sizes; the rank may also be what a launcher
# puts before the line.
_LINES = (
    # torchtitan: `memory` is the most that was reserved since the previous such line.
    (re.compile(rf"\bstep:\s*{_STEP}\s.{{0,200}}?\bmemory:\s*{_RESERVED}GiB\({_NUMBER}%\)"), GIB),
    # DeepSpeed's `see_memory_usage`.
    (
        re.compile(
            rf"\bMA {_ALLOCATED} GB\s{{1,80}}Max_MA {_NUMBER} GB\s{{1,80}}"
            rf"CA {_RESERVED} GB\s{{1,80}}Max_CA {_NUMBER} GB"
        ),
        GIB,
    ),
    # nanotron.
    (re.compile(rf"\bMemory usage: {_ALLOCATED}MiB\. Peak allocated:? {_NUMBER}MiB"), MIB),
    # picotron: `Memory usage` is reserved memory, in 10^9 bytes.
    (re.compile(rf"\bStep:\s*{_STEP}\s.{{0,400}}?\bMemory usage:\s*{_RESERVED}GB"), _GB),
    # onnxruntime's training: `cached` is reserved (`torch.cuda.memory_cached`, an older name).
    (
        re.compile(
            rf"\[{_RANK_OF_LINE}/\d{{1,9}}\] step {_STEP} memory \(MiB\) \| .{{0,200}}?"
            rf"\| allocated: {_ALLOCATED} \| .{{0,100}}?\| cached: {_RESERVED}(?: |$)"
        ),
        MIB,
    ),
    # DeepSpeed's timers, then its `mem_allocated` of older versions.
    (
        re.compile(
            rf"\bglobal_step={_STEP}, .{{0,200}}?\bMemAllocated={_ALLOCATED}GB, MaxMemAllocated={_NUMBER}GB"
        ),
        GIB,
    ),
    (
        re.compile(
            rf"\bmem_allocated: {_ALLOCATED} GB \| max_mem_allocated: {_NUMBER} GB \| "
            rf"cache_allocated: {_RESERVED} GB"
        ),
        GIB,
    ),
    # NeMo: the second number is the most reserved since the start, not what is reserved now.
    (re.compile(rf"\bon_train_batch_end rank: {_RANK_OF_LINE} mem: {_ALLOCATED} / {_NUMBER}"), GIB),
    # NeMo's OOMptimizer.
    (re.compile(rf"\[CUDA RAM CURRENT: {_ALLOCATED}MB\] \[CUDA RAM MAX: {_NUMBER}MB\]"), MIB),
    (
        re.compile(
            rf"\brank:{_RANK_OF_LINE}, (?:Before|After) memory release - "
            r"Allocated: (?P<allocated>\d{1,18}), Reserved: (?P<reserved>\d{1,18})"
        ),
        1,
    ),
)


def find_rank(text: str) -> int | None:
    """Return the rank that a launcher or the program puts before a line."""
    match = _RANK.search(text[:200])
    return None if match is None else int(match[1] or match[2])


def _size(text: str | None, unit: int) -> int | None:
    if text is None:
        return None
    try:
        size = round(float(text) * unit)
    except (ValueError, OverflowError) as error:
        raise RecordError("figure", f"{show_cell(text)} is not a memory size") from error
    if not 0 <= size < MOST_BYTES:
        raise RecordError("bytes", f"{size:,} bytes, expected memory of a device")
    return size


_MOST_KNOWN = 1 << 12


class LogOom(NamedTuple):
    rank: int | None
    said: OomText

    @property
    def subject(self) -> str:
        """Who ran out of memory; the number of a GPU is the process's own."""
        if self.rank is not None:
            return f"rank {self.rank}"
        return "a device" if self.said.device is None else f"GPU {self.said.device}"


class LogOoms:
    def __init__(self) -> None:
        self.first_line = 0
        self._notes = OomNotes()
        self._known: set[LogOom] = set()

    @property
    def count(self) -> int:
        return self._notes.count

    @property
    def notes(self) -> tuple[str, ...]:
        count = self.count
        which = "1 out-of-memory error is" if count == 1 else f"{count:,} out-of-memory errors are"
        head = f"{which} in the log, the first at line {self.first_line}"
        return (head, *self._notes.notes) if count else ()

    def observe(self, number: int, line: str) -> LogOom | None:
        """Return the error in a line; None if there is none or it was printed before."""
        said = parse_oom_text(line)
        if said is None:
            return None
        error = LogOom(find_rank(line), said)
        # A launcher prints the error of a process again when it ends.
        if error in self._known:
            return None
        if len(self._known) < _MOST_KNOWN:
            self._known.add(error)
        self.first_line = self.first_line or number
        self._notes.add(f"line {number:,}: {error.subject} ran out of memory, {said.sentence}")
        return error


# One of the first lines, within the first 256 KiB, must be of memory.
HEAD_LINES = 1 << 15
# Characters; a date further right is not the date of the line.
_DATE_WITHIN = 120
_DATE = re.compile(r"(\d{4})-(\d\d)-(\d\d)[ T](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,6}))?")
_AMERICAN_DATE = re.compile(r"(\d\d)/(\d\d)/(\d{4}) (\d\d):(\d\d):(\d\d)")
_EXPECTED = "expected a line with a date above it, such as [2025-07-26 02:46:53]"
# Characters; shorter lines carry nothing, and a small file can have millions of them.
_SHORTEST_LINE = 5


def is_framework_log(lines: list[str]) -> bool:
    """Return whether any line is of memory, perhaps a damaged one, or an out-of-memory error."""
    return any(map(_is_of_memory, lines))


def tells_time(text: str) -> bool:
    """Return whether a text has a date; without one no line of memory can be used."""
    return _DATE.search(text) is not None or _AMERICAN_DATE.search(text) is not None


class FrameworkLog(SeriesReader):
    format: SeriesFormat = "framework log"

    def __init__(self, path: Path) -> None:
        self._lines = LineFile(path, longest_line=1 << 20)
        super().__init__(path, self._lines)
        self._time_s: float | None = None
        self._facts = FrameworkFacts()
        self._ooms = LogOoms()
        self._oom_counts: dict[str, int] = {}

    @property
    def notes(self) -> tuple[str, ...]:
        return (
            "times are from the last date at or above each line of memory, in local time",
            *self._ooms.notes,
            *self._facts.notes,
            *self._left_out.notes(),
        )

    def explain_absence(self) -> str:
        first = self._left_out.first or _EXPECTED
        hint = f"; the error at line {self._ooms.first_line:,} is explained by: vramscope inspect FILE"
        told = hint if self._ooms.count else ""
        return f"{show_path(self._path)}: no usable line of memory; {first}{told}"

    def records(self) -> Iterator[SeriesRecord]:
        for number, line in self._lines.numbered_lines():
            if len(line) > _SHORTEST_LINE:
                yield from self._parse(number, line)

    def _parse(self, number: int, line: str) -> Iterator[SeriesRecord]:
        date = _find_date(line)
        if date is not None and (time_s := _read_date(date)) is not None:
            self._time_s = time_s
        self._facts.observe(number, line)
        try:
            met = self._ooms.observe(number, line)
            if met is not None and (device := self._find_failed(met)) is not None:
                yield self._convert_error(number, device, met.said)
            said = parse_memory_line(line)
            if said is not None:
                yield self._convert(number, said)
        except RecordError as error:
            self._left_out.seen = number
            self._left_out.add(error.kind, f"line {number}", str(error))

    def _convert(self, number: int, said: MemoryLine) -> SeriesRecord:
        time_s = self._require_time()
        facts = self._facts
        rank = said.rank
        label = "log" if rank is None else f"rank {rank}"
        device = self._devices.identify(None, rank, label, facts.names.get(rank))
        return SeriesRecord(
            number,
            time_s,
            device,
            allocated_bytes=said.allocated_bytes,
            reserved_bytes=said.reserved_bytes,
            used_bytes=said.used_bytes,
            total_bytes=facts.totals.get(rank),
            step=said.step,
            retries=facts.retries.get(rank),
            ooms=most_known((self._oom_counts.get(device.uuid), facts.ooms.get(rank))),
        )

    def _find_failed(self, met: LogOom) -> SeriesDevice | None:
        """Return the device of an error: its rank's, else the only one of the log, else one by number."""
        if met.rank is not None:
            return self._devices.identify(None, met.rank, f"rank {met.rank}", None)
        if self._devices.only is not None:
            return self._devices.only
        number = met.said.device
        if number is None:
            return None
        if self._devices:
            return self._devices.identify_apart(number, f"GPU {number} (rank unknown)")
        return self._devices.identify(None, number, f"GPU {number}", None)

    def _convert_error(self, number: int, device: SeriesDevice, said: OomText) -> SeriesRecord:
        time_s = self._require_time()
        count = self._oom_counts[device.uuid] = self._oom_counts.get(device.uuid, 0) + 1
        return SeriesRecord(
            number,
            time_s,
            device,
            allocated_bytes=said.allocated_bytes,
            reserved_bytes=said.reserved_bytes,
            used_bytes=said.used_bytes,
            total_bytes=said.total_bytes,
            free_bytes=said.free_bytes,
            ooms=count,
        )

    def _require_time(self) -> float:
        if self._time_s is None:
            raise RecordError("time", f"has no time; {_EXPECTED}")
        return self._time_s


def _is_of_memory(line: str) -> bool:
    try:
        return parse_memory_line(line) is not None or MARK.search(line) is not None
    except RecordError:
        return True


def _find_date(line: str) -> tuple[str | None, ...] | None:
    """The first date of a line: year, month, day, hour, minute, second, and parts of a second."""
    head = line[:_DATE_WITHIN]
    match = _DATE.search(head)
    if match is not None:
        return match.groups()
    match = _AMERICAN_DATE.search(head)
    return None if match is None else (match[3], match[1], match[2], *match.groups()[3:], None)


@lru_cache(maxsize=64)
def _read_date(date: tuple[str | None, ...]) -> float | None:
    """Seconds since the epoch, read as local time; None if there is no such day.

    Cached: many lines of a log have the same date.
    """
    year, month, day, hour, minute, second = (int(text or 0) for text in date[:6])
    micros = int((date[6] or "0").ljust(6, "0"))
    try:
        return datetime(year, month, day, hour, minute, second, micros).timestamp()
    except (ValueError, OverflowError):
        return None


_CAPACITY = re.compile(r"\bCUDA capacity: (.{1,80}?) with (\d[\d.]{0,20})GiB memory")
_COUNT = re.compile(r"\b(\d{1,15}) CUDA (memory allocation retries|OOM errors thrown)\b")
_THEORY = re.compile(
    r"Theoretical memory footprints(?: \(estimated\))?: weight and optimizer=\s*(\d[\d.]{0,20}) MB"
    r"(?:, activation=(\d[\d.]{0,20}) MB, total=(\d[\d.]{0,20}) MB)?"
)


class FrameworkFacts:
    """Collects capacities, names and counts by rank."""

    def __init__(self) -> None:
        # Capacity in bytes.
        self.totals: dict[int | None, int] = {}
        self.names: dict[int | None, str] = {}
        self.retries: dict[int | None, int] = {}
        # Errors so far, as the program counts them.
        self.ooms: dict[int | None, int] = {}
        self._theory: dict[str, int] = {}

    @property
    def notes(self) -> tuple[str, ...]:
        return tuple(
            f"line {line:,} has a theoretical size, which is left out: {text}"
            for text, line in list(self._theory.items())[:2]
        )

    def observe(self, number: int, line: str) -> None:
        if "CUDA" in line:
            self._observe_device(COLOUR.sub("", line))
        elif "Theoretical" in line:
            match = _THEORY.search(line)
            if match is not None and len(self._theory) < 2:
                self._theory.setdefault(_describe_theory(match), number)

    def _observe_device(self, text: str) -> None:
        capacity = _CAPACITY.search(text)
        count = _COUNT.search(text)
        if capacity is not None:
            size = _read_size(capacity[2], GIB)
            if size is not None:
                self.totals[find_rank(text)] = size
                if capacity[1].isprintable():
                    self.names[find_rank(text)] = capacity[1].strip()
        if count is not None:
            counts = self.retries if count[2].startswith("memory") else self.ooms
            counts[find_rank(text)] = int(count[1])


def _describe_theory(match: re.Match[str]) -> str:
    sizes = (None if match[number] is None else _read_size(match[number], MIB) for number in (1, 2, 3))
    state, activations, total = map(format_bytes, sizes)
    parts = f"{state} of weights and optimizer"
    return parts if match[3] is None else f"{parts}, {activations} of activations, {total} in all"


def _read_size(text: str, unit: int) -> int | None:
    try:
        size = round(float(text) * unit)
    except ValueError:
        return None
    return size if 0 < size < MOST_BYTES else None
