"""A recording as Parquet, by pyarrow, which is an extra of ours: `pip install 'vramscope[parquet]'`."""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import BinaryIO

from ...engine.errors import InputFileError, UsageError
from .rows import DeviceRow

ROWS_AT_ONCE = 1 << 16
"""Rows of a row group: what is held."""
COLUMNS = (
    ("time_s", "double"),
    ("device", "string"),
    ("allocated_bytes", "int64"),
    ("reserved_bytes", "int64"),
    ("used_bytes", "int64"),
    ("total_bytes", "int64"),
    ("step", "int64"),
    ("used_min_bytes", "int64"),
    ("used_max_bytes", "int64"),
    ("allocated_max_bytes", "int64"),
    ("utilization_percent", "double"),
    ("temperature_c", "double"),
    ("power_w", "double"),
    ("node", "string"),
    ("uuid", "string"),
    ("label", "string"),
)
"""Name and type of each column: those of a series first."""


def write_parquet(rows: Iterable[DeviceRow], stream: BinaryIO) -> None:
    """Write rows as one table; null is unmeasured.

    Args:
        rows: In the order that the table shall have.
        stream: Where to; need not be seekable.

    Raises:
        UsageError: pyarrow is not installed.
        InputFileError: A figure is none of memory.
    """
    try:
        import pyarrow as arrow
        from pyarrow import parquet
    except ImportError as error:
        raise UsageError(
            "--parquet: is written by pyarrow, which is not installed: pip install 'vramscope[parquet]'"
        ) from error
    types = [arrow.type_for_alias(kind) for _, kind in COLUMNS]
    schema = arrow.schema([(name, kind) for (name, _), kind in zip(COLUMNS, types, strict=True)])
    with parquet.ParquetWriter(stream, schema, compression="zstd") as writer:
        for part in _split(rows):
            columns = zip(*map(_to_values, part), strict=True)
            try:
                arrays = [arrow.array(column, kind) for column, kind in zip(columns, types, strict=True)]
            except OverflowError as error:
                raise InputFileError(
                    "the recording has a figure that no 64-bit integer holds; expected memory of a device"
                ) from error
            writer.write_table(arrow.Table.from_arrays(arrays, schema=schema))


def _split(rows: Iterable[DeviceRow]) -> Iterator[list[DeviceRow]]:
    remaining = iter(rows)
    while part := list(islice(remaining, ROWS_AT_ONCE)):
        yield part


def _to_values(row: DeviceRow) -> tuple[float | int | str | None, ...]:
    memory = row.memory
    allocator = row.allocator
    return (
        *(row.time_s, row.device),
        *(allocator.allocated_bytes, allocator.reserved_bytes, memory.used_bytes, memory.total_bytes or None),
        *(row.step, memory.used_min_bytes, row.used_max_bytes, row.allocated_max_bytes),
        *(row.utilization_percent, row.temperature_c, row.power_w),
        *(row.node, row.uuid, row.label),
    )
