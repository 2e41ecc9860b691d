"""Finds sweeps below folders: those with traces, and those with the lists of a sweep."""

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from ...errors import InputFileError
from ..base.input_file import explain_refusal, show_path
from .model import FOLDER, LIST_NAMES, SkippedFile, SweepLogs, find_model_in_name, is_same_model, read_logs
from .traces import Layout, TraceFile, find_majority, take_traces

# A tree of more is not one of sweeps.
MOST_FOLDERS = 20_000
_DEEPEST = 8


class TraceFolder(NamedTuple):
    """Traces of one sweep, not read yet."""

    path: Path
    files: list[TraceFile]
    skipped: list[SkippedFile]
    # The size label that the names of its folders begin with, such as `485B`.
    model: str | None = None

    def find_number(self, key: str) -> int | None:
        """Return the number that most of its names have under a key (`wd` world size, `l` layers)."""
        return find_majority(file.name.number(key) for file in self.files)


class FoundFolders(NamedTuple):
    traces: list[TraceFolder]
    logs: list[Path]
    notes: list[str]


def find_folders(roots: Sequence[Path]) -> FoundFolders:
    """Return the folders of traces and of logs in some folders and below them.

    Neighbouring folders with one configuration each are one sweep, if model, world size and layers are the
    same.
    """
    walk = _Walk()
    for root in roots:
        walk.look_into(root, 0)
    return FoundFolders(join_single(walk.traces), walk.logs, walk.notes)


class _Walk:
    """Visits folders, each once."""

    def __init__(self) -> None:
        self.traces: list[TraceFolder] = []
        self.logs: list[Path] = []
        self.notes: list[str] = []
        self._seen: set[tuple[int, int]] = set()

    def look_into(self, folder: Path, depth: int) -> None:
        try:
            status = folder.stat()
            if (status.st_dev, status.st_ino) in self._seen:
                return
            with os.scandir(folder) as listing:
                entries = sorted(listing, key=lambda it: it.name)
        except OSError as error:
            sentence = explain_refusal(folder, error)
            if depth == 0:
                raise InputFileError(sentence) from error
            self.notes.append(sentence)
            return
        self._seen.add((status.st_dev, status.st_ino))
        files, skipped = take_traces(folder, entries)
        if files:
            self.traces.append(TraceFolder(folder, files, skipped, find_model_in_name(folder)))
        elif skipped:
            told = f"{show_path(folder)}: {len(skipped):,} files named like a memory trace"
            self.notes.append(f"{told} have no TP and PP")
        is_log_folder = any(entry.name in LIST_NAMES for entry in entries)
        if is_log_folder:
            self.logs.append(folder)
        if depth < _DEEPEST:
            self._visit_below(entries, depth, is_log_folder=is_log_folder)

    def _visit_below(self, entries: Iterable[os.DirEntry[str]], depth: int, *, is_log_folder: bool) -> None:
        for entry in entries:
            if entry.name.startswith(".") or not entry.is_dir(follow_symlinks=False):
                continue
            if is_log_folder and FOLDER.fullmatch(entry.name):
                continue  # of one configuration: there may be thousands, each with its log only
            if len(self._seen) >= MOST_FOLDERS:
                note = f"more than {MOST_FOLDERS:,} folders: not all were searched"
                self.notes += [] if note in self.notes else [note]
                return
            self.look_into(Path(entry.path), depth + 1)


def join_single(folders: Sequence[TraceFolder]) -> list[TraceFolder]:
    """Join folders of one configuration each with their like next to them."""
    kept: list[TraceFolder] = []
    groups: dict[tuple[object, ...], list[TraceFolder]] = {}
    for folder in folders:
        if len({file.layout for file in folder.files}) == 1:
            told = folder.model, folder.find_number("wd"), folder.find_number("l")
            groups.setdefault((folder.path.parent, *told), []).append(folder)
        else:
            kept.append(folder)
    for group in groups.values():
        kept.append(group[0] if len(group) == 1 else _join(group))
    return sorted(kept, key=lambda it: (str(it.path), it.model or ""))


def _join(group: Sequence[TraceFolder]) -> TraceFolder:
    return TraceFolder(
        group[0].path.parent,
        [file for folder in group for file in folder.files],
        [file for folder in group for file in folder.skipped],
        group[0].model or find_model_in_name(group[0].path.parent),
    )


def explain_nothing(roots: Sequence[Path]) -> str:
    named = ", ".join(map(show_path, roots))
    return (
        f"{named}: no sweep found; expected memory traces such as "
        "memory_trace_rank0_wd8192_tp2_pp64_dp64_….json, or folders with successful_configs.log and "
        "failed_configs.log"
    )


class FolderPair(NamedTuple):
    """Traces, or logs, or both, of one sweep."""

    traces: TraceFolder | None
    logs: SweepLogs | None
    # Why they belong together, or why one of both is missing.
    reason: str


class _Match(NamedTuple):
    """How well traces and logs match; the greatest is chosen first."""

    weight: int
    # Configurations that have a trace and are listed as successful.
    shared: int
    # Date of the logs; the newest of equal ones.
    date: str
    trace_at: int
    log_at: int
    reason: str


def pair_folders(traces: Sequence[TraceFolder], logs: Sequence[SweepLogs]) -> list[FolderPair]:
    """Return each folder of traces with the logs that belong to it, and what is left alone.

    In this order of trust: one folder is in the other; both have model and world size, and the same; exactly
    the configurations listed as successful have a trace; or these, and fewer that are listed otherwise; model
    or world size is the same and the other one is not known of both; there is one folder of each kind, and
    nothing contradicts.
    """
    is_only = len(traces) == len(logs) == 1
    matches = sorted(
        (
            match
            for at, folder in enumerate(traces)
            for log_at, log in enumerate(logs)
            if (match := _judge(folder, log, at, log_at, is_only=is_only)) is not None
        ),
        reverse=True,
    )
    chosen: dict[int, _Match] = {}
    taken: set[int] = set()
    for match in matches:
        if match.trace_at not in chosen and match.log_at not in taken:
            chosen[match.trace_at] = match
            taken.add(match.log_at)
    return [*_pair_traces(traces, logs, chosen), *_list_lone_logs(logs, taken)]


def _pair_traces(
    traces: Sequence[TraceFolder], logs: Sequence[SweepLogs], chosen: dict[int, _Match]
) -> Iterator[FolderPair]:
    for at, folder in enumerate(traces):
        match = chosen.get(at)
        if match is None:
            yield FolderPair(folder, None, "traces only: no logs belong to them")
        else:
            yield FolderPair(folder, logs[match.log_at], match.reason)


def _list_lone_logs(logs: Sequence[SweepLogs], taken: set[int]) -> Iterator[FolderPair]:
    for at, log in enumerate(logs):
        if at not in taken:
            yield FolderPair(None, log, "logs only: no traces belong to them")


def _judge(
    folder: TraceFolder, log: SweepLogs, trace_at: int, log_at: int, *, is_only: bool
) -> _Match | None:
    ran = {file.layout for file in folder.files}
    succeeded = log.list_outcome("success")
    shared = _count_shared(ran, succeeded)
    weight, reason = _weigh(folder, log, more=_count_more(ran, log, shared, len(succeeded)))
    if not weight and is_only and not _is_contradicted(folder, log):
        weight = 1
        reason = "paired: the only traces and the only logs"
    if not weight:
        return None
    return _Match(weight, shared, "" if log.name is None else log.name.date, trace_at, log_at, reason)


def _count_more(ran: set[Layout], log: SweepLogs, shared: int, succeeded: int) -> int | None:
    """Return how many traces are of configurations that the log lists, and not as successful.

    A failed run may have left the beginning of a trace. None if the traces are not those of the log: one that
    succeeded has no trace, one has a trace and is not listed, or there are as many of these.
    """
    more = len(ran) - shared
    if (
        not shared
        or shared != succeeded
        or more >= shared
        or _count_shared(ran, set(log.entries)) != len(ran)
    ):
        return None
    return more


def _weigh(folder: TraceFolder, log: SweepLogs, *, more: int | None) -> tuple[int, str]:
    name = log.name
    world_size = folder.find_number("wd")
    has_world = name is not None and world_size is not None
    has_model = name is not None and folder.model is not None
    is_world = name is not None and world_size == name.world_size
    is_model = name is not None and folder.model is not None and is_same_model(folder.model, name.model)
    if _is_inside(log.folder, folder.path) or _is_inside(folder.path, log.folder):
        return 6, "paired: one folder contains the other"
    if is_model and is_world:
        return 5, "paired by model and world size"
    if more is not None and (is_world or not has_world):
        doubt = (
            f", though named {folder.model} and {name.model}" if has_model and not is_model and name else ""
        )
        besides = f" and {more} listed otherwise" if more else ""
        told = f"the layouts with a trace are those listed as successful{besides}{doubt}"
        return (3 if more else 4), f"paired by configurations: {told}"
    if is_model and not has_world:
        return 2, "paired by model; the traces have no world size"
    if is_world and not has_model:
        return 2, "paired by world size; the traces have no model"
    return 0, ""


def may_belong(folder: TraceFolder, log: SweepLogs) -> bool:
    """Return whether traces can be of logs although the names of their models differ.

    The world sizes do not differ, and a configuration listed as successful has a trace.
    """
    told = log.name
    world_size = folder.find_number("wd")
    if told is not None and world_size is not None and told.world_size != world_size:
        return False
    return _count_shared({file.layout for file in folder.files}, log.list_outcome("success")) > 0


def _is_contradicted(folder: TraceFolder, log: SweepLogs) -> bool:
    """True if model or world size are known of both and differ."""
    name = log.name
    world_size = folder.find_number("wd")
    if name is None:
        return False
    is_other_model = folder.model is not None and not is_same_model(folder.model, name.model)
    return is_other_model or (world_size is not None and world_size != name.world_size)


def _is_inside(inner: Path, outer: Path) -> bool:
    return outer.resolve() in (inner.resolve(), *inner.resolve().parents)


def _count_shared(ran: set[Layout], succeeded: set[Layout]) -> int:
    """Count configurations in both; DP counts if both have it."""
    exact = ran & succeeded
    places = {layout[:2] for layout in succeeded if layout[2] is None}
    blind = {layout for layout in ran - exact if layout[:2] in places}
    blind |= {it for it in ran - exact if it[2] is None and any(it[:2] == s[:2] for s in succeeded)}
    return len(exact) + len(blind)


def find_sweeps(roots: Sequence[Path]) -> tuple[list[FolderPair], list[str]]:
    """Return the sweeps in some folders and below them, and sentences on folders that could not be read."""
    found = find_folders(roots)
    logs: list[SweepLogs] = []
    for folder in found.logs:
        try:
            logs.append(read_logs(folder))
        except InputFileError as error:
            found.notes.append(str(error))
    pairs = pair_folders(found.traces, [log for log in logs if log.entries])
    if not pairs:
        raise InputFileError(explain_nothing(roots))
    return pairs, found.notes
