"""Which tapes several recordings are: one a node, its files one after the other, all on one clock."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from ..errors import InputFileError
from ..readers.input_file import show_name, show_path
from ..readers.series_record import WALL_CLOCK_FROM_S
from ..recording import Recording
from .recording_tape import RecordingTape

MOST_NODES = 512


class _Part(NamedTuple):
    """What one file holds of one node."""

    start_s: float
    end_s: float
    number: int
    """Place of the file in its series."""
    series: str
    path: Path


def open_tapes(paths: Sequence[Path], *, capacity_bytes: int | None = None) -> list[RecordingTape]:
    """Return a tape for each node, in the order in which the files name them.

    The files of one `--rotate`, and recordings of one node that do not overlap in time, follow one another
    on its tape. Recordings of one node that do overlap are tapes of their own, called by their files as well.

    Args:
        paths: Recordings.
        capacity_bytes: Capacity of devices of which none was recorded.

    Raises:
        InputFileError: A file is no recording, damaged beyond reading or without samples; some count from
            1970 on and some from a start of their own; there are too many nodes.
    """
    parts: dict[str, list[_Part]] = {}
    for path in paths:
        for node, part in _list_parts(path):
            parts.setdefault(node, []).append(part)
    if len(parts) > MOST_NODES:
        raise InputFileError(f"{len(parts):,} nodes; expected at most {MOST_NODES}: name fewer files")
    _check_clock([part for each in parts.values() for part in each])
    tapes: list[RecordingTape] = []
    try:
        for node, found in parts.items():
            chains = _chain(found)
            for files in chains:
                name = node if len(chains) == 1 else f"{node} ({show_name(files[0])})"
                tapes.append(RecordingTape(*files, node=node, name=name, capacity_bytes=capacity_bytes))
    except BaseException:
        for tape in tapes:
            tape.close()
        raise
    return tapes


def _list_parts(path: Path) -> list[tuple[str, _Part]]:
    """Return what a file holds of each node that it has samples of.

    Raises:
        InputFileError: It holds none.
    """
    found = []
    with Recording(path) as recording:
        identity = recording.identity
        for node in recording.nodes:
            first = next(recording.samples(node=node), None)
            last = recording.sample_at(sys.float_info.max, node=node)
            if first is not None and last is not None:
                part = _Part(first.time_s, last.time_s, identity.number, identity.series, path)
                found.append((node, part))
        why = recording.damage.sentence or "expected at least one to play"
    if not found:
        raise InputFileError(f"{show_path(path)}: no samples in it; {why}")
    return found


def _chain(parts: Sequence[_Part]) -> list[list[Path]]:
    """Return files in runs of those that follow one another."""
    runs: list[list[_Part]] = []
    for part in sorted(parts):
        run = next((run for run in runs if _follows(part, run[-1])), None)
        if run is None:
            runs.append([part])
        else:
            run.append(part)
    return [[part.path for part in run] for run in runs]


def _follows(part: _Part, before: _Part) -> bool:
    is_continued = bool(part.series) and part.series == before.series and part.number != before.number
    return is_continued or part.start_s >= before.end_s


def _check_clock(parts: Sequence[_Part]) -> None:
    wall = next((part for part in parts if part.start_s >= WALL_CLOCK_FROM_S), None)
    trace = next((part for part in parts if part.start_s < WALL_CLOCK_FROM_S), None)
    if wall is not None and trace is not None:
        raise InputFileError(
            f"{show_path(trace.path)}: counts from a start of its own, {show_path(wall.path)} from 1970; "
            "expected one clock: replay each by itself"
        )
