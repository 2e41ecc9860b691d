"""Reads the lists that a sweep keeps: which configurations were tried, which succeeded and which failed."""

import re
from pathlib import Path
from typing import NamedTuple

from ...errors import InputFileError
from ..base.input_file import explain_refusal, read_input_file, show_name, show_path
from .model import Outcome

FOLDER_NAME = "CONFIG_SWEEP_WS{world size}_{model}_{date}_{time}"
_FOLDER = re.compile(r"CONFIG_SWEEP_WS([0-9]{1,9})_(.+)_([0-9]{8}_[0-9]{6})")
_LISTS: tuple[tuple[str, Outcome], ...] = (
    ("config_combinations.log", "started"),
    ("failed_configs.log", "failed"),
    ("successful_configs.log", "success"),
)
"""In order of weight: what stands in a later list is so, whatever an earlier one says."""
LIST_NAMES = frozenset(name for name, _ in _LISTS)
"""Files by which a folder is known to be that of a sweep's logs."""
_LIMIT_BYTES = 64 << 20
_TP, _PP, _DP = (re.compile(rf"\b{key}=([0-9]{{1,9}})\b") for key in ("TP", "PP", "DP"))
_STATUS = re.compile(r"\(status: (-?[0-9]{1,9})\)")
_SETTING = re.compile(
    r"^[^\S\n]*+(Number of Layers|Number of Attention Heads): *([0-9]{1,9})[^\S\n]*+$", re.MULTILINE
)


class FolderName(NamedTuple):
    """What the name of a log folder says."""

    world_size: int
    model: str
    date: str


class LogEntry(NamedTuple):
    """One configuration in the lists."""

    outcome: Outcome
    exit_status: int | None


class SweepLogs(NamedTuple):
    """The lists of one sweep."""

    folder: Path
    name: FolderName | None
    entries: dict[tuple[int, int, int | None], LogEntry]
    layers: int | None
    heads: int | None
    notes: list[str]
    modified_ns: int | None = None
    """When the newest list was written."""

    def list_outcome(self, outcome: Outcome) -> set[tuple[int, int, int | None]]:
        """Return the configurations of one outcome."""
        return {layout for layout, entry in self.entries.items() if entry.outcome == outcome}


def parse_folder_name(name: str) -> FolderName | None:
    """Return what the name of a log folder says, None where it is no such name."""
    match = _FOLDER.fullmatch(name)
    return None if match is None else FolderName(int(match[1]), match[2], match[3])


def read_logs(folder: Path) -> SweepLogs:
    """Read the lists in a log folder.

    Raises:
        InputFileError: The folder cannot be read, or there are no lists.
    """
    notes: list[str] = []
    entries: dict[tuple[int, int, int | None], LogEntry] = {}
    written_ns: list[int] = []
    for file_name, outcome in _LISTS:
        path = folder / file_name
        if path.exists():
            _read_list(path, outcome, entries, notes)
            written_ns += _find_modified(path)
        elif outcome != "started":
            notes.append(f"{show_name(folder)} has no {file_name}")
    layers, heads = _read_settings(folder / "summary.log", notes)
    name = parse_folder_name(folder.resolve().name)
    return SweepLogs(folder, name, entries, layers, heads, notes, max(written_ns, default=None))


def _find_modified(path: Path) -> list[int]:
    """Return when a file was written, nothing where it has gone meanwhile."""
    try:
        return [path.stat().st_mtime_ns]
    except OSError:
        return []


def find_log_folders(folder: Path) -> list[Path]:
    """Return a folder of logs itself, or the folders of logs right below it, by name.

    Raises:
        InputFileError: The folder cannot be read, or there are none.
    """
    try:
        names = {entry.name for entry in folder.iterdir()}
    except OSError as error:
        raise InputFileError(explain_refusal(folder, error)) from error
    if names & LIST_NAMES:
        return [folder]
    found = [folder / name for name in sorted(names) if parse_folder_name(name) is not None]
    if not found:
        raise InputFileError(
            f"{show_path(folder)}: no lists of a sweep in it; expected successful_configs.log and "
            f"failed_configs.log, or folders {FOLDER_NAME} that hold them"
        )
    return found


def _read_list(
    path: Path, outcome: Outcome, entries: dict[tuple[int, int, int | None], LogEntry], notes: list[str]
) -> None:
    try:
        text = read_input_file(path, _LIMIT_BYTES).decode("utf-8", "replace")
    except InputFileError as error:
        notes.append(str(error))
        return
    unread = []
    both = 0
    for number, line in enumerate(text.splitlines(), 1):
        if "=" not in line:
            continue
        degrees = [match and int(match[1]) for match in (_TP.search(line), _PP.search(line))]
        tp, pp = degrees
        if not tp or not pp:
            unread.append(number)
            continue
        dp = _DP.search(line)
        status = _STATUS.search(line)
        layout = (tp, pp, int(dp[1]) if dp else None)
        known = entries.get(layout)
        both += known is not None and {known.outcome, outcome} == {"failed", "success"}
        entries[layout] = LogEntry(outcome, int(status[1]) if status else None)
    if unread:
        notes.append(
            f"{show_name(path)}: {len(unread):,} lines without TP= and PP= of at least 1 were left out, "
            f"the first is line {unread[0]}"
        )
    if both:
        notes.append(
            f"{both:,} configurations are listed as failed and as successful; they count as successful"
        )


def _read_settings(path: Path, notes: list[str]) -> tuple[int | None, int | None]:
    """Return the layers and the attention heads that a summary tells."""
    if not path.exists():
        return None, None
    try:
        text = read_input_file(path, _LIMIT_BYTES).decode("utf-8", "replace")
    except InputFileError as error:
        notes.append(str(error))
        return None, None
    told = {key: int(value) for key, value in _SETTING.findall(text)}
    return told.get("Number of Layers"), told.get("Number of Attention Heads")
