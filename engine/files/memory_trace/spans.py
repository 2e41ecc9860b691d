"""Spans of a memory trace: batches of records as lists of figures, checked, on one clock."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NoReturn

import msgspec

from ...errors import InputFileError
from ..base.input_file import show_path
from .records import ClockError, LoggedBytes, LoggedRecord, TraceBatch, TraceClock, logged_bytes


class TraceSpan(msgspec.Struct, gc=False):
    """Samples that follow one another within one iteration, in columns and in time order."""

    index: int
    """Number of the iteration."""
    times_s: list[float]
    device_used_mib: list[float]
    allocated_mib: list[float]
    logged: LoggedBytes | None
    """With the last span of an iteration."""


class TraceSpans:
    """The spans of one file, in order; to be gone through once.

    Args:
        path: The file, for what is said.
        batches: Its batches, in order of iterations.
    """

    def __init__(self, path: Path, batches: Iterable[TraceBatch]) -> None:
        self._path = path
        self._batches = batches
        self._clock = TraceClock()

    def __iter__(self) -> Iterator[TraceSpan]:
        """Yield the spans.

        Raises:
            InputFileError: The clock goes back, or a figure cannot be; or as the batches do.
        """
        for batch in self._batches:
            samples = batch.samples
            yield TraceSpan(
                batch.index,
                self._follow(batch),
                [sample.reserved_memory_MB for sample in samples],
                [sample.allocated_memory_MB for sample in samples],
                None if batch.logged is None else self._read_logged(batch.key, batch.logged),
            )

    def describe(self, rank: int) -> tuple[str, ...]:
        """Return notes about the clock; complete after the last span."""
        return self._clock.describe(rank)

    def _follow(self, batch: TraceBatch) -> list[float]:
        try:
            return self._clock.follow([sample.timestamp_s for sample in batch.samples])
        except ClockError as error:
            position = batch.position + error.position
            self._fail(f'at $["{batch.key}"].samples[{position}].timestamp_s', str(error))

    def _read_logged(self, key: str, record: LoggedRecord) -> LoggedBytes:
        return LoggedBytes(
            self._read(key, "peak_allocated_MB", record.peak_allocated_MB),
            self._read(key, "theoretical_memory_MB", record.theoretical_memory_MB),
            self._read(key, "static_memory_MB", record.static_memory_MB),
        )

    def _read(self, key: str, field: str, value_mib: float) -> int | None:
        try:
            return logged_bytes(value_mib)
        except ValueError as error:
            self._fail(f'at $["{key}"].{field}', str(error))

    def _fail(self, position: str, text: str) -> NoReturn:
        raise InputFileError(f"{show_path(self._path)}: {position}: {text}")
