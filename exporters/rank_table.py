"""Training processes that report through the probe, as rows."""

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from ..analyzers.gap import find_own_gap
from ..analyzers.rank_names import name_rank
from ..engine.model import AllocatorReading, DeviceSample, RankSample
from ..engine.text import make_printable
from ..engine.units import format_age, format_bytes

_COLUMNS = ("rank", "pid", "device", "allocated", "reserved", "gap", "step", "probe")
_DISPENSABLE = ("pid", "reserved", "step", "device", "gap", "probe")
"""Columns in the order in which a narrow terminal does without them."""
_LEFT_ALIGNED = frozenset({"device", "probe"})
_STYLES = {"ok": "", "stale": "bold yellow", "ended": "dim"}


def build_rank_table(ranks: Sequence[RankSample], devices: Sequence[DeviceSample], width: int) -> Table:
    """Return the table of training processes; figures are never cut.

    Args:
        ranks: Processes in the order to show them.
        devices: Devices of the same sample.
        width: Columns that the terminal has.
    """
    by_uuid = {device.uuid: device for device in devices}
    rows = [_build_cells(rank, by_uuid.get(rank.device_uuid or "")) for rank in ranks]
    columns = _choose_columns(rows, width)
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="dim")
    for name in columns:
        table.add_column(
            name, justify="left" if name in _LEFT_ALIGNED else "right", no_wrap=True, overflow="ellipsis"
        )
    for row in rows:
        table.add_row(*(row[name] for name in columns))
    return table


def describe_rank_trouble(ranks: Sequence[RankSample]) -> list[tuple[str, str]]:
    """Return name and reason of each process that does not report."""
    return [
        (name_rank(rank), make_printable(rank.reason)) for rank in ranks if rank.state != "ok" and rank.reason
    ]


def _choose_columns(rows: Sequence[dict[str, Text]], width: int) -> list[str]:
    widths = {name: max(len(name), *(row[name].cell_len for row in rows)) for name in _COLUMNS}
    columns = list(_COLUMNS)
    for name in _DISPENSABLE:
        if sum(widths[column] + 1 for column in columns) - 1 <= width:
            break
        columns.remove(name)
    return columns


def _build_cells(rank: RankSample, device: DeviceSample | None) -> dict[str, Text]:
    allocator = rank.allocator or AllocatorReading()
    number = "—" if rank.coordinates is None else str(rank.coordinates.rank)
    return {
        "rank": Text(number),
        "pid": Text(str(rank.pid)),
        "device": Text("—" if device is None else device.label),
        "allocated": Text(format_bytes(allocator.allocated_bytes)),
        "reserved": Text(format_bytes(allocator.reserved_bytes)),
        "gap": Text(_describe_gap(rank, device)),
        "step": Text("—" if rank.step is None else f"{rank.step.index:,}"),
        "probe": Text(_describe_state(rank), style=_STYLES[rank.state]),
    }


def _describe_gap(rank: RankSample, device: DeviceSample | None) -> str:
    """Return what the process holds beyond live tensors: all of it, or what its allocator alone holds."""
    gap = None if device is None else find_own_gap(device, rank)
    if gap is not None:
        return format_bytes(gap)
    allocator = rank.allocator or AllocatorReading()
    if allocator.allocated_bytes is None or allocator.reserved_bytes is None:
        return "—"
    return f">{format_bytes(max(0, allocator.reserved_bytes - allocator.allocated_bytes))}"


def _describe_state(rank: RankSample) -> str:
    age = "" if rank.state == "ok" or rank.age_s is None else f" {format_age(rank.age_s)}"
    return f"{rank.state}{age}"
