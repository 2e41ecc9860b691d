"""Finds the traces of a sweep and reads from each what was logged once: peak, theory and static memory."""

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from ...errors import InputFileError
from ..input_file import explain_refusal, locate_byte, lower_first, read_input_file, show_name
from ..memory_trace_name import TraceName, parse_trace_name
from ..memory_trace_records import LoggedRecord, logged_bytes
from ..memory_trace_stream import stream_trace
from .model import SkippedFile, SweepTrace

MOST_WHOLE_BYTES = 8 << 20
"""Larger files are read piece by piece, up to the end of their first iteration."""
_PREFIX, _SUFFIX = "memory_trace_rank", ".json"


class _Iteration(LoggedRecord, kw_only=True):
    """One iteration as the file has it; its samples are passed over."""

    samples: msgspec.Raw


_DECODER = msgspec.json.Decoder(dict[str, _Iteration])
Layout = tuple[int, int, int | None]
"""TP, PP and DP; None where neither the name nor the world size tells it."""


class TraceFile(NamedTuple):
    """A trace by its name, not read yet."""

    path: Path
    name: TraceName
    modified_ns: int
    size_bytes: int
    layout: Layout
    """TP, PP and DP."""


class TraceRun(NamedTuple):
    """The traces of one configuration that share all numbers of their names."""

    numbers: TraceName
    by_rank: dict[int, list[TraceFile]]

    @property
    def modified_ns(self) -> int:
        """When the newest of them was written."""
        return max(file.modified_ns for files in self.by_rank.values() for file in files)


def find_layout(name: TraceName) -> Layout | None:
    """Return TP, PP and DP by a name, None where it does not tell them."""
    tp, pp, dp, world_size = (name.number(key) for key in ("tp", "pp", "dp", "wd"))
    if not tp or not pp or dp == 0:
        return None
    if dp is None and world_size and world_size % (tp * pp) == 0:
        dp = world_size // (tp * pp)
    return tp, pp, dp


def find_majority(numbers: Iterable[int | None]) -> int | None:
    """Return the number that more than half of those that are told have, None where there is none such."""
    counted = Counter(number for number in numbers if number is not None)
    most = counted.most_common(1)
    return most[0][0] if most and 2 * most[0][1] > counted.total() else None


def find_traces(folder: Path) -> tuple[list[TraceFile], list[SkippedFile]]:
    """Return the traces in a folder, or in the folders right below where it has none itself.

    Raises:
        InputFileError: The folder cannot be read.
    """
    try:
        found, skipped = _scan(folder)
        if not found:
            for child in sorted(it.path for it in os.scandir(folder) if it.is_dir()):
                more, refused = _scan(Path(child))
                found += more
                skipped += refused
    except OSError as error:
        raise InputFileError(explain_refusal(folder, error)) from error
    return found, skipped


def _scan(folder: Path) -> tuple[list[TraceFile], list[SkippedFile]]:
    with os.scandir(folder) as entries:
        return take_traces(folder, entries)


def take_traces(
    folder: Path, entries: Iterable[os.DirEntry[str]]
) -> tuple[list[TraceFile], list[SkippedFile]]:
    """Return the traces among the entries of a folder, and what looks like one and is none."""
    found, skipped = [], []
    for entry in entries:
        if not (entry.name.startswith(_PREFIX) and entry.name.endswith(_SUFFIX)):
            continue
        name, path = parse_trace_name(entry.name), folder / entry.name
        if name is None:
            skipped.append(SkippedFile(path, "its name is not that of a memory trace"))
            continue
        try:
            status = entry.stat()
        except OSError as error:
            skipped.append(SkippedFile(path, _shorten(path, explain_refusal(path, error))))
            continue
        layout = find_layout(name)
        if layout is None:
            skipped.append(SkippedFile(path, "its name tells no TP and PP of at least 1"))
        else:
            found.append(TraceFile(path, name, status.st_mtime_ns, status.st_size, layout))
    return found, skipped


def group_runs(files: list[TraceFile]) -> dict[Layout, list[TraceRun]]:
    """Return the runs of each layout, the newest first, with the files of each rank the newest first."""
    runs: dict[tuple[tuple[str, int], ...], TraceRun] = {}
    layouts: dict[Layout, list[TraceRun]] = {}
    for file in files:
        run = runs.get(file.name.run)
        if run is None:
            run = runs[file.name.run] = TraceRun(file.name, {})
            layouts.setdefault(file.layout, []).append(run)
        run.by_rank.setdefault(file.name.rank, []).append(file)
    for layout_runs in layouts.values():
        layout_runs.sort(key=lambda run: run.modified_ns, reverse=True)
        for run in layout_runs:
            for versions in run.by_rank.values():
                versions.sort(key=lambda file: (file.modified_ns, file.path.name), reverse=True)
    return layouts


def read_run(run: TraceRun, skipped: list[SkippedFile]) -> SweepTrace | None:
    """Return the figures of the rank that held most, None where no file of the run can be read.

    Of several files of one rank the newest that can be read counts.

    Args:
        run: Whose files to read.
        skipped: Takes what cannot be read.
    """
    traces = [trace for files in run.by_rank.values() for trace in _read_newest(files, skipped)]
    if not traces:
        return None
    most = max(traces, key=lambda it: (it.peak_allocated_bytes or -1, -it.rank))
    return msgspec.structs.replace(most, ranks=len(traces))


def _read_newest(files: list[TraceFile], skipped: list[SkippedFile]) -> Iterator[SweepTrace]:
    for file in files:
        try:
            number, record = _read_iteration(file)
            yield SweepTrace(
                path=file.path,
                rank=file.name.rank,
                ranks=1,
                modified_ns=file.modified_ns,
                iteration=number,
                peak_allocated_bytes=logged_bytes(record.peak_allocated_MB),
                theoretical_bytes=logged_bytes(record.theoretical_memory_MB),
                static_bytes=logged_bytes(record.static_memory_MB),
            )
        except (InputFileError, ValueError) as error:
            skipped.append(SkippedFile(file.path, _shorten(file.path, lower_first(str(error)))))
            continue
        return


def _read_iteration(file: TraceFile) -> tuple[int, LoggedRecord]:
    """Return what was logged once in the first iteration that tells a peak, and its number.

    The first iteration where none tells one.

    Raises:
        InputFileError: The file cannot be read or understood.
        ValueError: It has no iteration.
    """
    if file.size_bytes > MOST_WHOLE_BYTES:
        return _choose(
            (batch.index, batch.logged) for batch in stream_trace(file.path) if batch.logged is not None
        )
    data = read_input_file(file.path, MOST_WHOLE_BYTES)
    try:
        iterations = _DECODER.decode(data)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise ValueError(_place(data, str(error))) from error
    numbered = {int(key): value for key, value in iterations.items() if key.isdecimal()}
    if not numbered:
        raise ValueError("no iteration in it; expected an object of iterations by their number")
    return _choose((number, numbered[number]) for number in sorted(numbered))


def _choose(iterations: Iterable[tuple[int, LoggedRecord]]) -> tuple[int, LoggedRecord]:
    """Return the first iteration that tells a peak, else the very first; what follows is not read."""
    first: tuple[int, LoggedRecord] | None = None
    for number, record in iterations:
        if logged_bytes(record.peak_allocated_MB) is not None:
            return number, record
        first = first or (number, record)
    return first or (0, LoggedRecord())


def _place(data: bytes, message: str) -> str:
    """Return what a decoder says, with the line and column in place of its byte."""
    before, _, byte = message.rpartition("(byte ")
    number = byte.removesuffix(")")
    return (
        f"{locate_byte(data, int(number))}: {lower_first(before.strip())}" if number.isdecimal() else message
    )


def _shorten(path: Path, text: str) -> str:
    """Return a sentence about a file without the path at its beginning."""
    return text.removeprefix(f"{path}: ").removeprefix(f"{show_name(path)}: ")
