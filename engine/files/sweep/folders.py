"""Finds the sweeps below some folders: those that hold traces, and those that hold the lists of a sweep."""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from ...errors import InputFileError
from ..base.input_file import explain_refusal, show_path
from .configuration_log import FOLDER
from .logs import LIST_NAMES
from .model import SkippedFile
from .names import find_model_in_name
from .traces import TraceFile, find_majority, take_traces

MOST_FOLDERS = 20_000
"""Folders that are looked into; a tree of more is not one of sweeps."""
_DEEPEST = 8


class TraceFolder(NamedTuple):
    """Traces of one sweep, not read yet."""

    path: Path
    files: list[TraceFile]
    skipped: list[SkippedFile]
    model: str | None = None
    """The size label that the names of its folders begin with, such as `485B`."""

    def find_number(self, key: str) -> int | None:
        """Return the number that most of its names have under a key (`wd` world size, `l` layers)."""
        return find_majority(file.name.number(key) for file in self.files)


class FoundFolders(NamedTuple):
    """What may be sweeps."""

    traces: list[TraceFolder]
    logs: list[Path]
    notes: list[str]


def find_folders(roots: Sequence[Path]) -> FoundFolders:
    """Return the folders of traces and of logs in some folders and below them.

    Folders side by side that hold one configuration each are one sweep, as far as model, world size and
    layers are the same.

    Raises:
        InputFileError: One of `roots` cannot be read.
    """
    walk = _Walk()
    for root in roots:
        walk.look_into(root, 0)
    return FoundFolders(join_single(walk.traces), walk.logs, walk.notes)


class _Walk:
    """Looks into folders, each once."""

    def __init__(self) -> None:
        self.traces: list[TraceFolder] = []
        self.logs: list[Path] = []
        self.notes: list[str] = []
        self._seen: set[tuple[int, int]] = set()

    def look_into(self, folder: Path, depth: int) -> None:
        """Take what is in a folder and go on below it."""
        try:
            status = folder.stat()
            if (status.st_dev, status.st_ino) in self._seen:
                return
            with os.scandir(folder) as listing:
                entries = sorted(listing, key=lambda it: it.name)
        except OSError as error:
            self._refuse(explain_refusal(folder, error), is_named=depth == 0)
            return
        self._seen.add((status.st_dev, status.st_ino))
        files, skipped = take_traces(folder, entries)
        if files:
            self.traces.append(TraceFolder(folder, files, skipped, find_model_in_name(folder)))
        elif skipped:
            told = f"{show_path(folder)}: {len(skipped):,} files whose name begins as that of a memory trace"
            self.notes.append(f"{told} tell no TP and PP")
        is_log_folder = any(entry.name in LIST_NAMES for entry in entries)
        if is_log_folder:
            self.logs.append(folder)
        if depth < _DEEPEST:
            self._go_below(entries, depth, is_log_folder=is_log_folder)

    def _go_below(self, entries: Iterable[os.DirEntry[str]], depth: int, *, is_log_folder: bool) -> None:
        for entry in entries:
            if entry.name.startswith(".") or not entry.is_dir(follow_symlinks=False):
                continue
            if is_log_folder and FOLDER.fullmatch(entry.name):
                continue  # of one configuration: there may be thousands, each with its log only
            if len(self._seen) >= MOST_FOLDERS:
                note = f"more than {MOST_FOLDERS:,} folders: not all were looked into"
                self.notes += [] if note in self.notes else [note]
                return
            self.look_into(Path(entry.path), depth + 1)

    def _refuse(self, sentence: str, *, is_named: bool) -> None:
        if is_named:
            raise InputFileError(sentence)
        self.notes.append(sentence)


def join_single(folders: Sequence[TraceFolder]) -> list[TraceFolder]:
    """Return the folders, those of one configuration each joined with their like beside them."""
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
    """Return what is said where no sweep is found."""
    named = ", ".join(map(show_path, roots))
    return (
        f"{named}: no sweep in it; expected memory traces such as "
        "memory_trace_rank0_wd8192_tp2_pp64_dp64_….json, or folders with successful_configs.log and "
        "failed_configs.log"
    )
