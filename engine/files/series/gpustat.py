"""Reader of what `gpustat --json` prints, once or appended again and again (gpustat 1.1)."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import msgspec

from ...errors import InputFileError
from ...units import MIB
from ..base.input_file import lower_first, show_path
from ..base.packed_file import read_packed_file
from ..base.series_reader import MOST_BYTES, RecordError, SeriesFormat, SeriesReader, SeriesRecord
from .nvidia_smi import LocalTime
from .open import CUT_OFF

LIMIT_BYTES = 256 * MIB
_EXPECTATION = "expected objects of `gpustat --json` with query_time and gpus"
_Mebibytes = Annotated[int, msgspec.Meta(ge=0, lt=MOST_BYTES // MIB)]
_MARK = re.compile(r'"query_time"\s*:\s*"')
_SPACE = re.compile(r"[\s\0]*")


class _Gpu(msgspec.Struct, gc=False):
    index: Annotated[int, msgspec.Meta(ge=0, lt=2**20)]
    uuid: str | None = None
    name: str | None = None
    used_mib: _Mebibytes | None = msgspec.field(name="memory.used", default=None)
    total_mib: _Mebibytes | None = msgspec.field(name="memory.total", default=None)
    utilization: float | None = msgspec.field(name="utilization.gpu", default=None)
    temperature: float | None = msgspec.field(name="temperature.gpu", default=None)
    power_w: float | None = msgspec.field(name="power.draw", default=None)


class _Query(msgspec.Struct, gc=False):
    query_time: str
    gpus: list[_Gpu]
    hostname: str = ""


def is_gpustat(text: str) -> bool:
    """Tell whether a text that begins with `{"hostname"` is of gpustat."""
    return _MARK.search(text) is not None


class Gpustat(SeriesReader):
    format: SeriesFormat = "gpustat JSON"
    has_allocator = False

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        try:
            self._text = read_packed_file(path, LIMIT_BYTES).decode("utf-8-sig", "replace")
        except MemoryError as error:
            raise InputFileError(f"{show_path(path)}: too large for this machine's memory") from error
        self._time = LocalTime()

    @property
    def notes(self) -> tuple[str, ...]:
        return (
            "times of gpustat have no time zone and were read as local time of this machine",
            *self._devices.describe_names(),
            *self._left_out.notes(),
        )

    def explain_absence(self) -> str:
        return f"{show_path(self._path)}: no usable query; {self._left_out.first or _EXPECTATION}"

    def records(self) -> Iterator[SeriesRecord]:
        for number, content in enumerate(self._objects(), 1):
            self._left_out.seen = number
            try:
                query = msgspec.convert(content, _Query)
                yield from list(self._convert(number, query))
            except RecordError as error:
                self._left_out.add(error.kind, f"query {number}", str(error))
            except msgspec.ValidationError as error:
                self._left_out.add("query", f"query {number}", f"{lower_first(str(error))}; {_EXPECTATION}")

    def _objects(self) -> Iterator[object]:
        """Yield the objects, which follow each other without a separator."""
        decoder = json.JSONDecoder()
        at = 0
        number = 0
        while True:
            space = _SPACE.match(self._text, at)
            at = at if space is None else space.end()
            if at == len(self._text):
                return
            number += 1
            try:
                content, at = decoder.raw_decode(self._text, at)
            except (ValueError, RecursionError):
                self._left_out.add("cut", f"query {number}", CUT_OFF)
                return
            yield content

    def _convert(self, number: int, query: _Query) -> Iterator[SeriesRecord]:
        time_s = self._time.parse(query.query_time)
        for gpu in query.gpus:
            is_lost = gpu.used_mib is None and gpu.total_mib is None
            yield SeriesRecord(
                number,
                time_s,
                self._devices.identify_on(query.hostname, gpu.uuid or None, gpu.index, gpu.name),
                used_bytes=None if gpu.used_mib is None else gpu.used_mib * MIB,
                total_bytes=None if not gpu.total_mib else gpu.total_mib * MIB,
                utilization_percent=gpu.utilization,
                temperature_c=gpu.temperature,
                power_w=gpu.power_w,
                state="lost" if is_lost else "ok",
                reason="gpustat reported no memory" if is_lost else None,
            )
