"""A recording as a series CSV, which every `--input` and `vramscope import` read again."""

import csv
from collections.abc import Iterable
from typing import TextIO

from ...engine.files.series.open import COLUMNS
from ...engine.text import make_csv_cell
from .rows import DeviceRow


def write_csv(rows: Iterable[DeviceRow], stream: TextIO) -> None:
    """Write rows under the header of a series; an empty cell is unmeasured.

    Args:
        rows: In about the order of their times.
        stream: Text in UTF-8, without translation of line ends.
    """
    stream.write(",".join(COLUMNS) + "\n")
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerows(map(_to_cells, rows))


def _to_cells(row: DeviceRow) -> tuple[float | int | str | None, ...]:
    memory = row.memory
    allocator = row.allocator
    return (
        row.time_s,
        make_csv_cell(row.device),
        allocator.allocated_bytes,
        allocator.reserved_bytes,
        memory.used_bytes,
        # No device has a capacity of nothing: such a figure was never measured.
        memory.total_bytes or None,
        row.step,
        row.allocated_max_bytes,
        row.used_max_bytes,
    )
