"""Finds every sweep in some folders: their traces and their logs, put together."""

from collections.abc import Sequence
from pathlib import Path

from ...errors import InputFileError
from .folders import explain_nothing, find_folders
from .logs import SweepLogs, read_logs
from .pairing import FolderPair, pair_folders


def find_sweeps(roots: Sequence[Path]) -> tuple[list[FolderPair], list[str]]:
    """Return the sweeps in some folders and below them, and sentences about what could not be looked into.

    Raises:
        InputFileError: One of the folders cannot be read, or there is no sweep in any.
    """
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
