"""The rows of the process table: every process on every device, filtered and sorted."""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, get_args

from ...engine.model import DeviceSample, ProcessReading, RankSample
from ...engine.settings import SortColumn
from ...engine.units import format_bytes
from ..widgets.rank_words import name_coordinates, spell_label

ProcessKey = tuple[str, int]
"""Device UUID and process id: what a selection stays with."""

SORTABLE: tuple[SortColumn, ...] = get_args(SortColumn)
"""Columns that can be sorted by, as the setting `sort` knows them."""


SortKey = tuple[float, ...] | tuple[str, ...]
"""What a column is sorted by."""


class ProcessRow(NamedTuple):
    """One process on one device."""

    device: DeviceSample
    process: ProcessReading
    rank: RankSample | None = None
    """The training process it is, where it reports through the probe."""

    @property
    def key(self) -> ProcessKey:
        """What identifies the row from tick to tick."""
        return (self.device.uuid, self.process.pid)

    @property
    def share_percent(self) -> float | None:
        """Memory of the process in percent of the device's total."""
        used_bytes = self.process.used_bytes
        total_bytes = self.device.memory.total_bytes
        return None if used_bytes is None or not total_bytes else 100 * used_bytes / total_bytes

    @property
    def note(self) -> str:
        """What must be said about where the process runs; empty for an ordinary one."""
        match self.process.location:
            case "outside":
                return "outside this container"
            case "gone":
                return "exited, memory still held"
            case "container":
                name = self.process.container
                return f"container {name}" if name else "in a container"
            case _:
                return ""

    @property
    def rank_name(self) -> str:
        """Its rank and where it stands; empty for a process that is none or does not report."""
        if self.rank is None or self.rank.coordinates is None:
            return ""
        return name_coordinates(self.rank.coordinates)

    @property
    def command(self) -> str:
        """Command line on one line, or `—` where it cannot be known."""
        return " ".join((self.process.command or "—").split())


class Column(NamedTuple):
    """One column of the table."""

    name: SortColumn
    title: str
    width: int
    """Cells; 0 takes what is left."""
    is_number: bool
    """Whether it is aligned right and sorted with the largest first."""
    text: Callable[[ProcessRow], str]
    order: Callable[[ProcessRow], SortKey | None]
    """Sort key; None sorts last, whichever the direction."""


def _share_text(row: ProcessRow) -> str:
    return "—" if row.share_percent is None else f"{row.share_percent:.0f} %"


def _optional(value: float | str | None) -> SortKey | None:
    if value is None:
        return None
    return (value,) if isinstance(value, str) else (float(value),)


def _natural_device(row: ProcessRow) -> tuple[int, int]:
    return (row.device.index, -1 if row.device.mig_index is None else row.device.mig_index)


COLUMNS: tuple[Column, ...] = (
    Column("device", "GPU", 5, False, lambda row: spell_label(row.device), _natural_device),
    Column("pid", "PID", 8, True, lambda row: str(row.process.pid), lambda row: (row.process.pid,)),
    Column(
        "user",
        "USER",
        10,
        False,
        lambda row: row.process.user or "—",
        lambda row: _optional(row.process.user),
    ),
    Column(
        "memory",
        "MEMORY",
        10,
        True,
        lambda row: format_bytes(row.process.used_bytes),
        lambda row: _optional(row.process.used_bytes),
    ),
    Column("share", "OF GPU", 7, True, _share_text, lambda row: _optional(row.share_percent)),
    Column(
        "command",
        "COMMAND",
        0,
        False,
        lambda row: f"({row.note}) {row.command}" if row.note else row.command,
        lambda row: _optional(row.process.command),
    ),
)
"""The columns, left to right."""

COLUMN_NAMES: tuple[SortColumn, ...] = tuple(column.name for column in COLUMNS)


class SortOrder(NamedTuple):
    """By which column the rows are sorted, and whether against its natural direction."""

    column: SortColumn = "memory"
    is_inverted: bool = False

    def shifted(self, places: int) -> "SortOrder":
        """Return the order by the column that many places to the right; stops at the edges."""
        index = COLUMN_NAMES.index(self.column) + places
        return SortOrder(COLUMN_NAMES[max(0, min(len(COLUMN_NAMES) - 1, index))])

    @property
    def is_descending(self) -> bool:
        """Whether the largest comes first."""
        return column_named(self.column).is_number != self.is_inverted


def column_named(name: SortColumn) -> Column:
    """Return a column by its name."""
    return COLUMNS[COLUMN_NAMES.index(name)]


def collect_rows(devices: Iterable[DeviceSample], ranks: Iterable[RankSample] = ()) -> list[ProcessRow]:
    """Return the rows of all processes on all devices, in device order.

    Args:
        devices: Devices whose processes are listed.
        ranks: Training processes that report; those among the rows are told their rank.
    """
    reporting = {rank.pid: rank for rank in ranks if rank.state != "ended"}
    return [
        ProcessRow(device, process, reporting.get(process.pid) if process.location != "gone" else None)
        for device in devices
        for process in device.processes or ()
    ]


def filter_rows(rows: Sequence[ProcessRow], text: str) -> list[ProcessRow]:
    """Return the rows that a filter lets through, see `find_terms`."""
    terms = find_terms(rows, text)
    return [row for row in rows if all(_contains(row, term) for term in terms)]


def find_terms(rows: Sequence[ProcessRow], text: str) -> tuple[str, ...]:
    """Return what a filter asks every row for: the whole phrase, or its words where no field has the phrase.

    So `rank 7` does not find every PID with a 7 in it, and `user1 eval` finds one's evaluation.

    Args:
        rows: Rows to choose from.
        text: What was typed; it is looked for in user, process id, rank, command, note and device
            (`gpu0`), ignoring case.
    """
    words = tuple(text.lower().split())
    phrase = " ".join(words)
    return (phrase,) if phrase and any(_contains(row, phrase) for row in rows) else words


def _contains(row: ProcessRow, term: str) -> bool:
    """Return whether one field of a row contains a term in lower case."""
    process = row.process
    device = row.device
    command = row.command if process.command else None
    place = f"gpu{device.label}"
    fields = (process.user, str(process.pid), row.rank_name, command, row.note, place, device.name)
    return any(term in field.lower() for field in fields if field)


def sort_rows(rows: Sequence[ProcessRow], order: SortOrder) -> list[ProcessRow]:
    """Return the rows sorted; equal ones by device and process id, unmeasured ones last."""
    key = column_named(order.column).order
    settled = sorted(rows, key=lambda row: (*_natural_device(row), row.process.pid))
    known = [row for row in settled if key(row) is not None]
    unknown = [row for row in settled if key(row) is None]
    return sorted(known, key=lambda row: key(row) or (), reverse=order.is_descending) + unknown
