"""Rows of the process list: what each column says, in which order rows come, which of them a filter shows."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, get_args

from rich.cells import cell_len

from ...analyzers.sentence import cut_words
from ...engine.model import DeviceSample, ProcessKind, ProcessReading, RankSample
from ...engine.settings import SortColumn
from ...engine.units import format_bytes, share_percent
from ...exporters.text import show_number
from ..draw.spans import ELLIPSIS, shorten_middle
from ..widgets.device_view import name_coordinates, spell_label

# How much of a pod's UID is shown.
POD_CHARS = 8

# Device UUID and process id: the selection stays with these.
ProcessKey = tuple[str, int]

# Columns that can be sorted by, as in the setting `sort`.
SORTABLE: tuple[SortColumn, ...] = get_args(SortColumn)


SortKey = tuple[float, ...] | tuple[str, ...]


# What identifies a process for good: its id and its start time.
ProcessIdentity = tuple[int, float | None]


class ProcessRow(NamedTuple):
    device: DeviceSample
    process: ProcessReading
    # The training process it is, where it reports through the probe.
    rank: RankSample | None = None
    # Seconds since it started.
    runs_s: float | None = None
    # Lines of a tree, before its command.
    branch: str = ""
    # It holds no memory of the device: it is a parent or a child of one that does.
    is_relative: bool = False

    @property
    def identity(self) -> ProcessIdentity:
        return self.process.pid, self.process.started_s

    @property
    def key(self) -> ProcessKey:
        return (self.device.uuid, self.process.pid)

    @property
    def share_percent(self) -> float | None:
        """Share of the device's memory."""
        return share_percent(self.process.used_bytes, self.device.memory.total_bytes)

    @property
    def note(self) -> str:
        """Text on where the process runs; empty for an ordinary one."""
        match self.process.location:
            case "outside":
                return "outside this container"
            case "gone":
                return "exited, memory still held"
            case "container":
                return self._place
            case _:
                mps = self.process.mps
                if mps is None or mps.role == "server":
                    return ""
                return "MPS client" if mps.server_pid is None else f"MPS client of {mps.server_pid}"

    @property
    def _place(self) -> str:
        """Its pod, Slurm job or container, by name where that is known."""
        if self.pod_name:
            return f"pod {self.pod_name}"
        if self.container is None and self.process.slurm_job:
            return f"job {self.job}"
        pod = f", pod {self.process.pod[:POD_CHARS]}" if self.process.pod else ""
        return f"container {self.container}{pod}" if self.container else f"in a container{pod}"

    @property
    def pod_name(self) -> str | None:
        return None if self.process.owner is None else self.process.owner.pod_name

    @property
    def container(self) -> str | None:
        """Name of its container, else its id; the control group of a Slurm job is none."""
        found = self.process.container
        job = f"slurm job {self.process.slurm_job}"
        return self.container_name or (None if found == job else found)

    @property
    def namespace(self) -> str | None:
        return None if self.process.owner is None else self.process.owner.namespace

    @property
    def container_name(self) -> str | None:
        return None if self.process.owner is None else self.process.owner.container_name

    @property
    def pod(self) -> str | None:
        """Name of its pod, else the beginning of its UID."""
        return self.pod_name or (self.process.pod[:POD_CHARS] if self.process.pod else None)

    @property
    def job(self) -> str | None:
        """Number and name of its Slurm job, else the job of `vramscope run`."""
        number = self.process.slurm_job
        if number is None:
            return None if self.rank is None else self.rank.job
        name = None if self.process.owner is None else self.process.owner.slurm_job_name
        return f"{number} {name}" if name else number

    @property
    def rank_name(self) -> str:
        """Its rank and coordinates; empty for a process without a rank or a report."""
        if self.rank is None or self.rank.coordinates is None:
            return ""
        return name_coordinates(self.rank.coordinates)

    @property
    def command(self) -> str:
        """Command line on one line, or `—` where it cannot be known."""
        return " ".join((self.process.command or "—").split())


class Column(NamedTuple):
    name: SortColumn
    title: str
    # Cells; 0 takes what is left.
    width: int
    # Whether it is aligned right and sorted with the largest first.
    is_number: bool
    text: Callable[[ProcessRow], str]
    # Sort key; None sorts last, whichever the direction.
    order: Callable[[ProcessRow], SortKey | None]
    # What it says, for the dialog in which columns are chosen.
    meaning: str
    # Whether it says something of a process that holds no device memory.
    is_of_host: bool = True
    # Whether a row is a reason to show it unasked; None: any value is one.
    joins_for: Callable[[ProcessRow], bool] | None = None


def find_script(words: Sequence[str]) -> int:
    """Return the place of what an interpreter runs, its first argument that is no option; 0 without one."""
    return next((at for at, word in enumerate(words) if at and not word.startswith("-")), 0)


def drop_folders(command: str, cells: int) -> str:
    """Return a command that is longer than so many cells without the folders of what it runs.

    That of its program goes first, where it has arguments, and then that of its script: both are long, and
    the names behind them distinguish two jobs.
    """
    if cell_len(command) <= cells:
        return command
    program, *arguments = command.split(" ")
    if not arguments:
        return command
    words = [program.rpartition("/")[2], *arguments]
    script = find_script(words)
    if cell_len(" ".join(words)) > cells and "/" in words[script]:
        words[script] = f"{ELLIPSIS}/{words[script].rpartition('/')[2]}"
    return " ".join(words)


# Cells of a command line in a question about its process, and in a list of several.
COMMAND_CELLS = 120
LISTED_COMMAND_CELLS = 60


def shorten_command(command: str | None, cells: int = COMMAND_CELLS) -> str:
    """Return a command line in so many cells: its program and script first, its middle cut; `—` for none.

    The folder of the program goes first, then that of the script, then arguments in the middle.
    """
    text = drop_folders(" ".join((command or "—").split()), cells)
    if cell_len(text) <= cells:
        return text
    words = text.split(" ")
    script = find_script(words)
    tail = ""
    for word in reversed(words[script + 1 :]):
        if cell_len(f"{word} {tail}") > cells // 3:
            break
        tail = f" {word}{tail}"
    head = cut_words(text, cells - cell_len(tail) - 1).removesuffix(ELLIPSIS)
    return f"{head} {ELLIPSIS}{tail}"


def _optional(value: float | str | None) -> SortKey | None:
    if value is None:
        return None
    return (value,) if isinstance(value, str) else (float(value),)


def _natural_device(row: ProcessRow) -> tuple[int, int]:
    return (row.device.index, -1 if row.device.mig_index is None else row.device.mig_index)


def _percent(value: float | None) -> str:
    return show_number(value, ",.0f", " %")


def _ends(text: str | None, cells: int) -> str:
    return "—" if text is None else shorten_middle(text, cells, "…")


_KIND_LETTERS: dict[ProcessKind, str] = {"compute": "C", "graphics": "G", "compute+graphics": "C+G"}


def _kind_text(row: ProcessRow) -> str:
    if row.process.mps is not None:
        return "M+C" if row.process.mps.role == "client" else "MPS"
    return "—" if row.process.kind is None else _KIND_LETTERS[row.process.kind]


def runs_text(seconds: float | None) -> str:
    """Return how long a process runs, in minutes at least, so that a row does not change every second."""
    if seconds is None:
        return "—"
    minutes = int(seconds) // 60
    if minutes < 1:
        return "< 1 m"
    if minutes < 60:
        return f"{minutes} m"
    hours = minutes // 60
    if hours < 24:
        return f"{hours} h {minutes % 60:02d} m"
    days = hours // 24
    return f"{days} d {hours % 24:02d} h" if days < 100 else f"{days:,} d"


# The columns, left to right.
COLUMNS: tuple[Column, ...] = (
    Column(
        "device",
        "GPU",
        5,
        False,
        lambda row: spell_label(row.device),
        _natural_device,
        "the device",
        is_of_host=False,
    ),
    Column(
        "pid", "PID", 7, True, lambda row: str(row.process.pid), lambda row: (row.process.pid,), "process id"
    ),
    Column(
        "user",
        "USER",
        8,
        False,
        lambda row: row.process.user or "—",
        lambda row: _optional(row.process.user),
        "login name of the owner",
    ),
    Column(
        "type",
        "TYPE",
        4,
        False,
        _kind_text,
        lambda row: _optional(row.process.kind),
        "C computes, G draws, C+G both; M+C via MPS; MPS server",
        is_of_host=False,
    ),
    Column(
        "memory",
        "MEMORY",
        9,
        True,
        lambda row: format_bytes(row.process.used_bytes),
        lambda row: _optional(row.process.used_bytes),
        "device memory",
        is_of_host=False,
    ),
    Column(
        "share",
        "OF GPU",
        6,
        True,
        lambda row: _percent(row.share_percent),
        lambda row: _optional(row.share_percent),
        "share of the device's memory",
        is_of_host=False,
    ),
    Column(
        "sm",
        "SM",
        5,
        True,
        lambda row: _percent(row.process.sm_percent),
        lambda row: _optional(row.process.sm_percent),
        "share of time in which its kernels ran",
        is_of_host=False,
    ),
    Column(
        "bandwidth",
        "MEM BW",
        6,
        True,
        lambda row: _percent(row.process.memory_bandwidth_percent),
        lambda row: _optional(row.process.memory_bandwidth_percent),
        "share of time in which it read or wrote device memory",
        is_of_host=False,
    ),
    Column(
        "cpu",
        "CPU",
        7,
        True,
        lambda row: _percent(row.process.cpu_percent),
        lambda row: _optional(row.process.cpu_percent),
        "CPU time, of one core",
    ),
    Column(
        "host_memory",
        "HOST MEM",
        9,
        True,
        lambda row: format_bytes(row.process.resident_bytes),
        lambda row: _optional(row.process.resident_bytes),
        "resident host memory",
    ),
    Column(
        "threads",
        "THREADS",
        8,
        True,
        lambda row: show_number(row.process.threads),
        lambda row: _optional(row.process.threads),
        "threads on the host",
    ),
    Column(
        "time",
        "TIME",
        9,
        True,
        lambda row: runs_text(row.runs_s),
        lambda row: _optional(row.runs_s),
        "how long it runs",
    ),
    Column(
        "pod",
        "POD",
        22,
        False,
        lambda row: _ends(row.pod, 22),
        lambda row: _optional(row.pod),
        "pod of Kubernetes, else the beginning of its UID",
    ),
    Column(
        "namespace",
        "NAMESPACE",
        12,
        False,
        lambda row: _ends(row.namespace, 12),
        lambda row: _optional(row.namespace),
        "namespace of the pod",
    ),
    Column(
        "container",
        "CONTAINER",
        14,
        False,
        lambda row: _ends(row.container, 14),
        lambda row: _optional(row.container),
        "container, by name or id",
    ),
    Column(
        "job",
        "JOB",
        16,
        False,
        lambda row: _ends(row.job, 16),
        lambda row: _optional(row.job),
        "job of Slurm, or of `vramscope run`",
        joins_for=lambda row: row.process.slurm_job is not None,
    ),
    Column(
        "command",
        "COMMAND",
        0,
        False,
        lambda row: f"({row.note}) {row.command}" if row.note else row.command,
        lambda row: _optional(row.process.command),
        "command line",
    ),
)

COLUMN_NAMES: tuple[SortColumn, ...] = tuple(column.name for column in COLUMNS)
COLUMN_GAP = 2
# Columns of a list for which none were chosen, and those that join them where there is room.
USUAL_COLUMNS: frozenset[SortColumn] = frozenset({"device", "pid", "user", "memory", "share", "command"})
FURTHER_COLUMNS: tuple[SortColumn, ...] = (
    "pod",
    "job",
    "sm",
    "cpu",
    "host_memory",
    "time",
    "bandwidth",
    "type",
    "threads",
    "namespace",
    "container",
)
# Cells that the command keeps before a further column joins.
ROOMY_COMMAND_CELLS = 24
LEAST_COMMAND_CELLS = 8


def choose_columns(
    chosen: Sequence[SortColumn], known: frozenset[SortColumn], width: int
) -> tuple[Column, ...]:
    """Return the columns to show in a width, in their order.

    Args:
        chosen: By a person; as many of them as fit. None: the usual ones, and further ones with room.
        known: Columns for which any process has a value.
    """
    if chosen:
        names = set(chosen)
        for name in reversed(COLUMN_NAMES):
            least = LEAST_COMMAND_CELLS if "command" in names else 0
            if len(names) == 1 or _cells_of(names) + least <= width:
                break
            names -= {name} if name != "command" else set()
        return tuple(column for column in COLUMNS if column.name in names)
    names = set(USUAL_COLUMNS)
    for name in FURTHER_COLUMNS:
        if name in known and _cells_of({*names, name}) + ROOMY_COMMAND_CELLS <= width:
            names.add(name)
    return tuple(column for column in COLUMNS if column.name in names)


def _cells_of(names: Iterable[SortColumn]) -> int:
    """Return the cells of columns with the edge and the gaps, without those of the command."""
    widths = [column_named(name).width for name in names]
    return 1 + sum(width + COLUMN_GAP for width in widths if width)


def find_known(rows: Iterable[ProcessRow]) -> frozenset[SortColumn]:
    """Return the further columns for which any row has a value."""
    found: set[SortColumn] = set()
    for row in rows:
        left = [name for name in FURTHER_COLUMNS if name not in found]
        for name in left:
            column = column_named(name)
            if column.order(row) is not None if column.joins_for is None else column.joins_for(row):
                found.add(name)
    return frozenset(found)


class SortOrder(NamedTuple):
    """By which column the rows are sorted, and whether against its natural direction."""

    column: SortColumn = "memory"
    is_inverted: bool = False

    def shifted(self, places: int, among: Sequence[SortColumn] = COLUMN_NAMES) -> "SortOrder":
        """Return the order by the column that many places to the right; stops at the edges.

        `among` are the columns that are shown; from another one the first of them is next.
        """
        index = among.index(self.column) + places if self.column in among else 0
        return SortOrder(among[max(0, min(len(among) - 1, index))])

    @property
    def is_descending(self) -> bool:
        return column_named(self.column).is_number != self.is_inverted


# What people call the columns with a short title.
_WORDS: dict[SortColumn, str] = {
    "bandwidth": "memory bandwidth",
    "host_memory": "host memory",
    "time": "run time",
}


def title_column(name: SortColumn, *, is_nvidia: bool = True) -> str:
    """Return the title of a column; a streaming multiprocessor (SM) is NVIDIA's."""
    return "BUSY" if name == "sm" and not is_nvidia else column_named(name).title


def column_word(name: SortColumn, *, is_nvidia: bool = True) -> str:
    """Return what a column is called in menus."""
    title = title_column(name, is_nvidia=is_nvidia)
    return _WORDS.get(name) or (title if len(title) <= 3 else title.lower().replace("gpu", "GPU"))


_BY_NAME = {column.name: column for column in COLUMNS}


def column_named(name: SortColumn) -> Column:
    return _BY_NAME[name]


def collect_rows(
    devices: Iterable[DeviceSample], ranks: Iterable[RankSample] = (), now_s: float | None = None
) -> list[ProcessRow]:
    """Return the rows of all processes on all devices, in device order, with the ranks that report.

    `now_s` is the time of the sample, from which on run times are counted.
    """
    reporting = {rank.pid: rank for rank in ranks if rank.state != "ended"}
    return [
        ProcessRow(
            device,
            process,
            reporting.get(process.pid) if process.location != "gone" else None,
            find_run_time(process, now_s),
        )
        for device in devices
        for process in device.processes or ()
    ]


def find_run_time(process: ProcessReading, now_s: float | None) -> float | None:
    """Return how long a process has run; None where its start is unknown, or it has ended."""
    if now_s is None or process.started_s is None or process.location == "gone":
        return None
    return max(0.0, now_s - process.started_s)


def filter_rows(rows: Sequence[ProcessRow], text: str) -> list[ProcessRow]:
    """Return the rows that pass a filter, see `find_terms`."""
    terms = find_terms(rows, text)
    return [row for row in rows if all(_contains(row, term) for term in terms)]


def find_terms(rows: Sequence[ProcessRow], text: str) -> tuple[str, ...]:
    """Return the terms that every row must contain: the whole phrase, or its words where no field has it.

    So `rank 7` does not find every PID with a 7 in it, and `user1 eval` finds one's evaluation.

    Args:
        text: The filter; it is searched in user, process id, rank, command, note and device
            (`gpu0`), ignoring case. `pod:`, `ns:`, `job:`, `user:` and `container:` name one field.
    """
    words = tuple(text.lower().split())
    phrase = " ".join(words)
    return (phrase,) if phrase and any(_contains(row, phrase) for row in rows) else words


# Whose a process is, by the word that a filter names it with: `pod:8a7b`, `job:1234`, `user:ada`.
OWNERS: dict[str, Callable[[ProcessRow], tuple[str | None, ...]]] = {
    "pod": lambda row: (row.pod_name, row.process.pod),
    "ns": lambda row: (row.namespace,),
    "job": lambda row: (
        row.process.slurm_job,
        None if row.process.owner is None else row.process.owner.slurm_job_name,
        None if row.rank is None else row.rank.job,
    ),
    "user": lambda row: (row.process.user,),
    "container": lambda row: (row.container_name, row.process.container),
}
# A pod's name and its UID are long: the beginning of either does.
_BY_BEGINNING = frozenset({"pod"})


def _contains(row: ProcessRow, term: str) -> bool:
    """Return whether one field of a row contains a term in lower case, or is the one that it names."""
    process = row.process
    name, colon, value = term.partition(":")
    if colon and value and name in OWNERS:
        owners = [owner.lower() for owner in OWNERS[name](row) if owner]
        if name in _BY_BEGINNING:
            return any(owner.startswith(value) for owner in owners)
        return value in owners
    device = row.device
    command = row.command if process.command else None
    place = f"gpu{device.label}"
    owner = (row.pod, row.namespace, row.container_name, row.job)
    fields = (process.user, str(process.pid), row.rank_name, command, row.note, place, device.name, *owner)
    return any(term in field.lower() for field in fields if field)


def sort_rows(rows: Sequence[ProcessRow], order: SortOrder) -> list[ProcessRow]:
    """Return the rows sorted; equal ones by device and process id, unmeasured ones last."""
    key = column_named(order.column).order
    settled = sorted(rows, key=lambda row: (*_natural_device(row), row.process.pid))
    known = [row for row in settled if key(row) is not None]
    unknown = [row for row in settled if key(row) is None]
    return sorted(known, key=lambda row: key(row) or (), reverse=order.is_descending) + unknown


# The process list as a tree: children below their parents, with those that hold no device memory.


CHILD = "├─ "
LAST_CHILD = "└─ "
BELOW_CHILD = "│  "
BELOW_LAST = "   "
# Levels from which further ones are drawn below each other.
DEEPEST = 12


def arrange_tree(
    rows: Sequence[ProcessRow],
    relatives: Mapping[int, ProcessReading],
    order: SortOrder,
    now_s: float | None = None,
) -> list[ProcessRow]:
    """Return rows with their relatives as a tree; siblings are in the order of their first descendant's row.

    A process on several devices has its rows one below the other.

    Args:
        rows: Processes that hold device memory.
        relatives: Parents and children of these, by process id.
        now_s: Time of the sample.
    """
    by_pid: dict[int, list[ProcessRow]] = {}
    for row in sort_rows(rows, order):
        by_pid.setdefault(row.process.pid, []).append(row)
    readings = {pid: found[0].process for pid, found in by_pid.items()}
    readings |= {pid: process for pid, process in relatives.items() if pid not in by_pid}
    first_of = _find_first_rows(by_pid, readings)
    place = {pid: number for number, pid in enumerate(by_pid)}

    def rank(pid: int) -> tuple[int, int]:
        return place.get(first_of.get(pid, -1), len(place)), pid

    parents = {pid: _find_parent(process, readings) for pid, process in readings.items()}
    children: dict[int, list[int]] = {}
    for pid in sorted(readings, key=rank):
        children.setdefault(parents[pid] or 0, []).append(pid)
    roots = sorted((pid for pid in readings if parents[pid] is None), key=rank)
    tree: list[ProcessRow] = []
    seen: set[int] = set()
    # Whatever a remote node says of its processes, each is listed once: a circle has no root.
    for root in [*roots, *by_pid]:
        device = by_pid[first_of[root]][0].device if root in first_of else None
        waiting: list[tuple[int, str, str, DeviceSample | None]] = [(root, "", "", device)]
        while waiting:
            pid, branch, below, device = waiting.pop()
            if pid in seen:
                continue
            seen.add(pid)
            found = by_pid.get(pid)
            if found is not None:
                device = found[0].device
                tree += [row._replace(branch=below if at else branch) for at, row in enumerate(found)]
            elif device is not None:
                runs_s = find_run_time(readings[pid], now_s)
                tree.append(ProcessRow(device, readings[pid], runs_s=runs_s, branch=branch, is_relative=True))
            is_deep = len(below) >= DEEPEST * len(CHILD)
            inside = children.get(pid, [])
            for child in reversed(inside):
                is_last = child == inside[-1]
                head = below if is_deep else below + (LAST_CHILD if is_last else CHILD)
                tail = below if is_deep else below + (BELOW_LAST if is_last else BELOW_CHILD)
                waiting.append((child, head, tail, device))
    return tree


def _find_first_rows(
    by_pid: Mapping[int, Sequence[ProcessRow]], readings: Mapping[int, ProcessReading]
) -> dict[int, int]:
    """Return for each process with device memory, and each ancestor, the first listed one of its subtree."""
    found: dict[int, int] = {}
    for pid in by_pid:
        above: int | None = pid
        while above is not None and above in readings and above not in found:
            found[above] = pid
            above = _find_parent(readings[above], readings)
    return found


def _find_parent(process: ProcessReading, readings: Mapping[int, ProcessReading]) -> int | None:
    """Return the listed process below which one is: its parent, else the MPS server whose client it is."""
    server = None if process.mps is None or process.mps.role == "server" else process.mps.server_pid
    return next((pid for pid in (process.parent_pid, server) if pid is not None and pid in readings), None)
