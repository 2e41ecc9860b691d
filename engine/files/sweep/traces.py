"""Finds the traces of a sweep and reads what their iterations logged: peak, theory and static memory."""

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from ...errors import InputFileError
from ..base.input_file import explain_refusal, locate_byte, lower_first, read_input_file, show_name
from ..memory_trace.reading import LoggedRecord, TraceName, logged_bytes, parse_trace_name
from ..memory_trace.stream import stream_trace
from .model import SkippedFile, SweepTrace

# Larger files are read piece by piece.
MOST_WHOLE_BYTES = 8 << 20
_PREFIX = "memory_trace_rank"
_SUFFIX = ".json"


class _Iteration(LoggedRecord, kw_only=True):
    """Its samples are not decoded."""

    samples: msgspec.Raw


_DECODER = msgspec.json.Decoder(dict[str, _Iteration])
# TP, PP and DP; None if neither the name nor the world size says.
Layout = tuple[int, int, int | None]


class TraceFile(NamedTuple):
    path: Path
    name: TraceName
    modified_ns: int
    size_bytes: int
    layout: Layout

    @property
    def is_simulated(self) -> bool:
        return self.name.is_simulated is True


# A layout, and whether it was simulated.
RunKey = tuple[Layout, bool]


class TraceRun(NamedTuple):
    """The traces of one configuration that share all numbers of their names."""

    numbers: TraceName
    by_rank: dict[int, list[TraceFile]]

    @property
    def modified_ns(self) -> int:
        return max(file.modified_ns for files in self.by_rank.values() for file in files)


def find_layout(name: TraceName) -> Layout | None:
    tp, pp, dp, world_size = (name.number(key) for key in ("tp", "pp", "dp", "wd"))
    if not tp or not pp or dp == 0:
        return None
    if dp is None and world_size and world_size % (tp * pp) == 0:
        dp = world_size // (tp * pp)
    return tp, pp, dp


def find_majority(numbers: Iterable[int | None]) -> int | None:
    """Return the number that more than half of the known ones have."""
    counted = Counter(number for number in numbers if number is not None)
    most = counted.most_common(1)
    return most[0][0] if most and 2 * most[0][1] > counted.total() else None


def find_traces(folder: Path) -> tuple[list[TraceFile], list[SkippedFile]]:
    """Return the traces in a folder, or in the folders right below if it has none itself."""
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
    found = []
    skipped = []
    for entry in entries:
        if not (entry.name.startswith(_PREFIX) and entry.name.endswith(_SUFFIX)):
            continue
        name = parse_trace_name(entry.name)
        path = folder / entry.name
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
            skipped.append(SkippedFile(path, "its name has no TP and PP of at least 1"))
        else:
            found.append(TraceFile(path, name, status.st_mtime_ns, status.st_size, layout))
    return found, skipped


def group_runs(files: list[TraceFile]) -> dict[RunKey, list[TraceRun]]:
    """Return the runs of each layout, real and simulated ones apart.

    The newest run comes first, and the newest file of each rank.
    """
    runs: dict[tuple[tuple[tuple[str, int], ...], bool], TraceRun] = {}
    layouts: dict[RunKey, list[TraceRun]] = {}
    for file in files:
        is_simulated = file.is_simulated
        run = runs.get((file.name.run, is_simulated))
        if run is None:
            run = runs[file.name.run, is_simulated] = TraceRun(file.name, {})
            layouts.setdefault((file.layout, is_simulated), []).append(run)
        run.by_rank.setdefault(file.name.rank, []).append(file)
    for layout_runs in layouts.values():
        layout_runs.sort(key=lambda run: run.modified_ns, reverse=True)
        for run in layout_runs:
            for versions in run.by_rank.values():
                versions.sort(key=lambda file: (file.modified_ns, file.path.name), reverse=True)
    return layouts


def read_run(run: TraceRun, skipped: list[SkippedFile], iteration: int | None = None) -> SweepTrace | None:
    """Return the values of the rank that used most, None if no file can be read (added to `skipped`).

    Of several files of one rank the newest that can be read counts.
    """
    traces = [trace for files in run.by_rank.values() for trace in _read_newest(files, skipped, iteration)]
    if not traces:
        return None
    most = max(traces, key=lambda it: (it.peak_allocated_bytes or -1, -it.rank))
    return msgspec.structs.replace(most, ranks=len(traces))


def _read_newest(
    files: list[TraceFile], skipped: list[SkippedFile], iteration: int | None
) -> Iterator[SweepTrace]:
    for file in files:
        try:
            logged = _read_logged(file)
            chosen = _choose_iteration(logged, iteration)
            told = (chosen, *logged.values())
            yield SweepTrace(
                path=file.path,
                rank=file.name.rank,
                ranks=1,
                modified_ns=file.modified_ns,
                iteration=chosen.number,
                iterations=sum(it.peak_bytes is not None for it in logged.values()),
                peak_allocated_bytes=chosen.peak_bytes,
                theoretical_bytes=next((it.theory_bytes for it in told if it.theory_bytes is not None), None),
                static_bytes=next((it.static_bytes for it in told if it.static_bytes is not None), None),
            )
        except (InputFileError, ValueError) as error:
            skipped.append(SkippedFile(file.path, _shorten(file.path, lower_first(str(error)))))
            continue
        return


class _Logged(NamedTuple):
    """Logged by one iteration, in bytes; None was never logged."""

    number: int
    peak_bytes: int | None
    theory_bytes: int | None
    static_bytes: int | None


def _read_logged(file: TraceFile) -> dict[int, _Logged]:
    """Return what every iteration logged, by its number.

    All of them are read: the optimizer allocates its state at the end of iteration 0, so that the peak of
    iteration 0 is often below that of every later one.

    Raises:
        ValueError: It has no iteration, or one logged a value that cannot be.
    """
    if file.size_bytes > MOST_WHOLE_BYTES:
        batches = stream_trace(file.path)
        return _convert((batch.index, batch.logged) for batch in batches if batch.logged is not None)
    data = read_input_file(file.path, MOST_WHOLE_BYTES)
    try:
        iterations = _DECODER.decode(data)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise ValueError(_place(data, str(error))) from error
    numbered = {int(key): value for key, value in iterations.items() if key.isdecimal()}
    if not numbered:
        raise ValueError("no iterations; expected an object of iterations by number")
    return _convert((number, numbered[number]) for number in sorted(numbered))


def _convert(iterations: Iterable[tuple[int, LoggedRecord]]) -> dict[int, _Logged]:
    return {
        number: _Logged(
            number,
            logged_bytes(record.peak_allocated_MB),
            logged_bytes(record.theoretical_memory_MB),
            logged_bytes(record.static_memory_MB),
        )
        for number, record in iterations
    }


def _choose_iteration(logged: Mapping[int, _Logged], iteration: int | None) -> _Logged:
    """Return the iteration that was asked for, else the first of those with the highest peak."""
    if iteration is not None:
        return logged.get(iteration, _Logged(iteration, None, None, None))
    return max(logged.values(), key=lambda it: (-1 if it.peak_bytes is None else it.peak_bytes, -it.number))


def _place(data: bytes, message: str) -> str:
    """Replace the byte in a decoder's message by line and column."""
    before, _, byte = message.rpartition("(byte ")
    number = byte.removesuffix(")")
    return (
        f"{locate_byte(data, int(number))}: {lower_first(before.strip())}" if number.isdecimal() else message
    )


def _shorten(path: Path, text: str) -> str:
    """Drop the path at the beginning of a sentence about a file."""
    return text.removeprefix(f"{path}: ").removeprefix(f"{show_name(path)}: ")
