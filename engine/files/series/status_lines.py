"""Reader of saved output of `vramscope --json`: one status object a line."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import msgspec

from ...errors import InputFileError, WireError
from ...model import STATUS_SCHEMA, DeviceSample, HostSample, RankSample
from ...soundness import check_numbers, make_json_decoder
from ...text import clean_texts
from ..base.input_file import lower_first, show_path
from ..base.packed_file import LineFile
from ..base.series_reader import MOST_BYTES, MOST_SECONDS, FileReader
from .open import CUT_OFF

# Characters: a node of many devices, each with many processes.
LONGEST_LINE = 1 << 24
_SCHEMA = re.compile(r'\s*\{\s*"schema"\s*:\s*"(vramscope\.status/\d+)"')


class KeptStatus(msgspec.Struct, frozen=True):
    """What was measured; findings are left out, since they are found again."""

    schema: Literal["vramscope.status/1"]
    time: float
    node: str
    host: HostSample | None = None
    devices: tuple[DeviceSample, ...] = ()
    ranks: tuple[RankSample, ...] = ()
    notes: tuple[str, ...] = ()


_DECODER = make_json_decoder(KeptStatus)


def find_status_schema(line: str) -> str | None:
    """Return the schema that a line names, if it is a status object of any version."""
    match = _SCHEMA.match(line)
    return None if match is None else match[1]


class StatusLines(FileReader):
    def __init__(self, path: Path) -> None:
        self._lines = LineFile(path, longest_line=LONGEST_LINE)
        super().__init__(path, self._lines)

    @property
    def notes(self) -> tuple[str, ...]:
        cut = "the compressed file is cut short; the rest is missing"
        return (*((cut,) if self._lines.is_cut else ()), *self._left_out.notes())

    def explain_absence(self) -> str:
        first = self._left_out.first or "expected the output of vramscope --json"
        return f"{show_path(self._path)}: no usable status; {first}"

    def statuses(self) -> Iterator[KeptStatus]:
        for first, lines in self._lines.blocks():
            self._left_out.seen = first + len(lines)
            for number, line in enumerate(lines, first):
                if line.strip():
                    yield from self._parse(number, line)
        if self._lines.unfinished is not None:
            yield from self._parse(self._lines.unfinished_number, self._lines.unfinished, is_last=True)

    def _parse(self, number: int, line: str, *, is_last: bool = False) -> Iterator[KeptStatus]:
        schema = find_status_schema(line)
        if schema not in (None, STATUS_SCHEMA):
            self.close()
            raise InputFileError(
                f"{show_path(self._path)}: line {number}: schema {schema}; expected {STATUS_SCHEMA}: "
                "read it with the version of vramscope that wrote it, or a newer one"
            )
        try:
            status = clean_texts(_DECODER.decode(line))
        except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
            why = CUT_OFF if is_last else f"{lower_first(str(error))}, expected a status of vramscope --json"
            self._left_out.add("cut" if is_last else "status", f"line {number}", why)
            return
        try:
            check_numbers(status)
        except WireError as error:
            found = str(error).removeprefix(f"{KeptStatus.__name__}.")
            self._left_out.add("number", f"line {number}", f"{found}, expected a number of vramscope --json")
            return
        if not -MOST_SECONDS < status.time < MOST_SECONDS:
            self._left_out.add("time", f"line {number}", f"time is {status.time:g}, expected seconds")
        elif (size := _find_absurd_size(status)) is not None:
            self._left_out.add("bytes", f"line {number}", f"{size:,} bytes, expected memory of a device")
        else:
            yield status


def _find_absurd_size(status: KeptStatus) -> int | None:
    """Return a size of memory that no device could have, or None."""
    sizes: list[int | None] = []
    for device in status.devices:
        memory = device.memory
        sizes += (memory.total_bytes, memory.used_bytes, memory.free_bytes)
        sizes += (memory.used_min_bytes, memory.used_max_bytes)
    allocators = [device.allocator for device in status.devices]
    allocators += [rank.allocator for rank in status.ranks]
    for allocator in allocators:
        if allocator is not None:
            sizes += (allocator.allocated_bytes, allocator.allocated_max_bytes, allocator.reserved_bytes)
    return next((size for size in sizes if size is not None and not 0 <= size < MOST_BYTES), None)
