"""Reader of the recordings of `all-smi record` (schema 1): a JSON object a line, one for each reading."""

import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from ..base.input_file import lower_first, show_path
from ..base.packed_file import CUT_NOTE, LineFile
from ..base.series_reader import (
    MOST_BYTES,
    MOST_SECONDS,
    RecordError,
    SeriesFormat,
    SeriesReader,
    SeriesRecord,
    show_cell,
)
from .open import CUT_OFF

_LONGEST_LINE = 1 << 24
_EXPECTATION = 'expected frames of `all-smi record` with "schema": 1, timestamp and gpus'
_MARK = re.compile(r'\s*\{\s*"schema"\s*:\s*1\s*,\s*"(?:header|timestamp)"')
_Bytes = Annotated[int, msgspec.Meta(ge=0, lt=MOST_BYTES)]


class _Gpu(msgspec.Struct, gc=False):
    uuid: str
    name: str = ""
    hostname: str = ""
    used_memory: _Bytes | None = None
    total_memory: _Bytes | None = None
    utilization: float | None = None
    temperature: float | None = None
    power_consumption: float | None = None


class _Frame(msgspec.Struct, gc=False):
    schema: Literal[1]
    timestamp: str | None = None
    gpus: list[_Gpu] | None = None
    header: bool = False
    index: bool = False


_DECODER = msgspec.json.Decoder(_Frame)


def is_all_smi(text: str) -> bool:
    """Tell whether a text begins with a frame of a recording."""
    return _MARK.match(text) is not None


class AllSmi(SeriesReader):
    format: SeriesFormat = "all-smi recording"
    has_allocator = False

    def __init__(self, path: Path) -> None:
        self._lines = LineFile(path, longest_line=_LONGEST_LINE)
        super().__init__(path, self._lines)

    @property
    def notes(self) -> tuple[str, ...]:
        return (
            *((CUT_NOTE,) if self._lines.is_cut else ()),
            *self._devices.describe_names(),
            *self._left_out.notes(),
        )

    def explain_absence(self) -> str:
        return f"{show_path(self._path)}: no usable frame; {self._left_out.first or _EXPECTATION}"

    def records(self) -> Iterator[SeriesRecord]:
        for number, line in self._lines.numbered_lines():
            self._left_out.seen = number
            if not line.strip():
                continue
            try:
                frame = _DECODER.decode(line)
                if not (frame.header or frame.index):
                    yield from list(self._convert(number, frame))
            except RecordError as error:
                self._left_out.add(error.kind, f"line {number}", str(error))
            except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
                is_last = number == self._lines.unfinished_number
                why = CUT_OFF if is_last else f"{lower_first(str(error))}; {_EXPECTATION}"
                self._left_out.add("cut" if is_last else "frame", f"line {number}", why)

    def _convert(self, number: int, frame: _Frame) -> Iterator[SeriesRecord]:
        time_s = _parse_time(frame.timestamp or "")
        for position, gpu in enumerate(frame.gpus or ()):
            yield SeriesRecord(
                number,
                time_s,
                self._devices.identify_on(gpu.hostname, gpu.uuid or None, position, gpu.name or None),
                used_bytes=gpu.used_memory,
                total_bytes=gpu.total_memory or None,
                utilization_percent=gpu.utilization,
                temperature_c=gpu.temperature,
                power_w=gpu.power_consumption,
            )


def _parse_time(text: str) -> float:
    try:
        time_s = datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError, OSError) as error:
        raise RecordError(
            "timestamp", f"timestamp is {show_cell(text)}, expected one such as 2026-01-31T10:30:00Z"
        ) from error
    if not 0 <= time_s < MOST_SECONDS:
        raise RecordError("timestamp", f"timestamp is {show_cell(text)}, expected a time since 1970")
    return time_s
