"""The header of an nvidia-smi log, or where it has none, what the shape of its first line tells."""

import re
from functools import lru_cache

import msgspec

from ..base.series_record import RecordError, show_cell
from .nvidia_smi_cells import judge_cell
from .nvidia_smi_time import TIMESTAMP

EXPECTATION = (
    "expected what nvidia-smi --query-gpu=timestamp,index,memory.used,memory.total "
    "--format=csv[,nounits] writes"
)
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
"""What the columns are called by nvidia-smi (`nvidia-smi --help-query-gpu`), and by us."""
_COLUMN = re.compile(r"([a-z][a-z0-9_.]*)(?:\s*\[([A-Za-z%]*)\])?")
_MAYBE = re.compile("timestamp|memory", re.IGNORECASE)
"""Every header has one of these, and hardly a record does; each record that is left out is looked at."""
_FIGURE = re.compile(r"([0-9]{1,18})(?:\s*MiB)?")
_MOST_BARE_INDEX = 1023


class LogHeader(msgspec.Struct, frozen=True):
    """Where the columns of a log stand, and in what unit its memory is."""

    width: int
    positions: dict[str, int]
    units: dict[str, str]


@lru_cache(maxsize=16)  # one in every line, as where a thousand short logs were joined
def parse_log_header(line: str) -> LogHeader | None:
    """Return the columns that a line names, or None where it is no header of nvidia-smi.

    Raises:
        RecordError: It is one, and a column is absent that nothing can be said without.
    """
    if not _MAYBE.search(line):
        return None
    found = [_COLUMN.fullmatch(cell.strip().strip('"').lower()) for cell in line.split(",")]
    names = [None if match is None else NAMES.get(match[1]) for match in found]
    if "timestamp" not in names and not {"used", "total", "free"} & set(names):
        return None
    positions = {name: names.index(name) for name in names if name is not None}
    units = {name: match[2] for name, at in positions.items() if (match := found[at]) and match[2]}
    _check_columns(positions)
    return LogHeader(len(names), positions, units)


def _check_columns(positions: dict[str, int]) -> None:
    if "timestamp" not in positions:
        raise RecordError("header", f"no column timestamp; {EXPECTATION}")
    if "used" not in positions:
        raise RecordError("header", f"no column memory.used; {EXPECTATION}")
    if not {"index", "uuid", "bus_id"} & positions.keys():
        raise RecordError("header", f"no column index, uuid or pci.bus_id to tell GPUs apart; {EXPECTATION}")


def guess_log_header(line: str) -> LogHeader | None:
    """Return the columns of a log that was written without a header, or None where the line is no record.

    Raises:
        RecordError: It begins with a timestamp, and the rest could mean several things.
    """
    cells = [cell.strip() for cell in line.split(",")]
    if not TIMESTAMP.fullmatch(cells[0]):
        return None
    if (
        len(cells) == 4
        and cells[1].isdecimal()
        and int(cells[1]) <= _MOST_BARE_INDEX
        and _are_memory(cells[2:])
    ):
        return LogHeader(4, {"timestamp": 0, "index": 1, "used": 2, "total": 3}, {})
    raise RecordError(
        "header",
        f"{show_cell(line)} has no header before it, and its {len(cells)} columns cannot be told apart; "
        "without a header only timestamp,index,memory.used,memory.total is known: leave out noheader",
    )


def _are_memory(cells: list[str]) -> bool:
    """Tell a used and a total: figures with or without MiB, used the lesser; or words for none."""
    figures = [int(found[1]) for found in map(_FIGURE.fullmatch, cells) if found]
    if len(figures) == 2:
        return figures[0] <= figures[1]
    return all(_FIGURE.fullmatch(cell) or judge_cell(cell) is not None for cell in cells)
