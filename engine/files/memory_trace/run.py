"""Reader of one run's memory traces: a folder with one file per rank, or one file alone."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice, product
from pathlib import Path
from typing import Protocol

import msgspec

from ...errors import InputFileError
from ..base.input_file import explain_refusal, show_name, show_path
from .reading import MemoryTrace, TraceName, parse_trace_name, read_memory_trace

FILE_PATTERN = "memory_trace_rank*.json"


class MemoryTraceRun(msgspec.Struct, frozen=True):
    path: Path
    ranks: tuple[MemoryTrace, ...]
    notes: tuple[str, ...] = ()

    @property
    def start_s(self) -> float:
        return min((rank.times_s[0] for rank in self.ranks if rank.times_s), default=0.0)

    @property
    def end_s(self) -> float:
        return max((rank.times_s[-1] for rank in self.ranks if rank.times_s), default=0.0)


class TraceFiles(msgspec.Struct, frozen=True):
    path: Path
    paths: tuple[Path, ...]
    notes: tuple[str, ...] = ()


class RecordedRank(Protocol):
    """What notes about a run need from each rank."""

    @property
    def name(self) -> TraceName: ...

    @property
    def notes(self) -> tuple[str, ...]: ...

    @property
    def is_device_foreign(self) -> bool: ...


class _Candidate(msgspec.Struct, frozen=True):
    path: Path
    name: TraceName
    modified_ns: int


def read_memory_trace_run(path: Path) -> MemoryTraceRun:
    """Read a run from its folder, or from the file of one rank; files of different runs are refused."""
    files = find_trace_files(path)
    ranks = tuple(map(read_memory_trace, files.paths))
    return MemoryTraceRun(path, ranks, (*files.notes, *note_ranks(ranks)))


def find_trace_files(path: Path) -> TraceFiles:
    """Find the files of a run from its folder, or from the file of one rank."""
    if not path.is_dir():
        try:
            path.stat()
        except (OSError, ValueError) as error:
            raise InputFileError(explain_refusal(path, error)) from error
        return TraceFiles(path, (path,))
    candidates, notes = _find_candidates(path)
    _check_one_run(path, candidates)
    newest, older = _choose_newest(candidates)
    return TraceFiles(path, tuple(newest[rank].path for rank in sorted(newest)), (*notes, *older))


def group_trace_files(paths: Sequence[Path]) -> list[Path | TraceFiles]:
    """Return inputs as they were given, with the files of several ranks of one run as one input.

    Files in one folder whose names differ in the rank alone are of one run.
    """
    runs: dict[tuple[object, ...], dict[int, Path]] = {}
    places: list[Path | tuple[object, ...]] = []
    for path in paths:
        name = parse_trace_name(path.name)
        key = None if name is None else (path.parent, name.run)
        if name is None or key is None or name.rank in runs.get(key, {}):
            places.append(path)
            continue
        if key not in runs:
            places.append(key)
        runs.setdefault(key, {})[name.rank] = path
    return [place if isinstance(place, Path) else _join_ranks(runs[place]) for place in places]


def _join_ranks(ranks: Mapping[int, Path]) -> Path | TraceFiles:
    paths = tuple(ranks[rank] for rank in sorted(ranks))
    return paths[0] if len(paths) == 1 else TraceFiles(paths[0].parent, paths)


def find_run_beside(path: Path) -> TraceFiles:
    """Return the file of one rank with those of the same run in its folder, which may hold other runs."""
    name = parse_trace_name(path.name)
    candidates = [] if name is None else _find_candidates(path.parent)[0]
    newest, notes = _choose_newest([it for it in candidates if name is not None and it.name.run == name.run])
    found = {rank: candidate.path for rank, candidate in newest.items()}
    if name is not None:
        found[name.rank] = path
    return TraceFiles(path.parent, tuple(found[rank] for rank in sorted(found)) or (path,), tuple(notes))


def _find_candidates(folder: Path) -> tuple[list[_Candidate], list[str]]:
    candidates = []
    notes = []
    try:
        for path in sorted(folder.glob(FILE_PATTERN)):
            name = parse_trace_name(path.name)
            if name is None:
                notes.append(f"{show_name(path)} was left out: its name is not that of a memory trace")
            else:
                candidates.append(_Candidate(path, name, path.stat().st_mtime_ns))
        folders = sorted({child.parent for child in folder.glob(f"*/{FILE_PATTERN}")})
    except OSError as error:
        raise InputFileError(explain_refusal(folder, error)) from error
    if not candidates:
        raise InputFileError(_explain_absence(folder, folders))
    return candidates, notes


def _explain_absence(folder: Path, folders: list[Path]) -> str:
    text = f"{show_path(folder)}: no memory trace; looked for {FILE_PATTERN}"
    if not folders:
        return f"{text}; give the folder that holds the files of one run"
    more = f" and {len(folders) - 1:,} more" if len(folders) > 1 else ""
    return f"{text}; found some in {show_path(folders[0])}{more}: give the folder of one run"


def _check_one_run(folder: Path, candidates: list[_Candidate]) -> None:
    first = candidates[0]
    for other in candidates:
        if other.name.run != first.name.run:
            here = dict(first.name.run)
            there = dict(other.name.run)
            differences = ", ".join(
                f"{key} {here.get(key, 'absent')} and {there.get(key, 'absent')}"
                for key in sorted(here | there)
                if here.get(key) != there.get(key)
            )
            raise InputFileError(
                f"{show_path(folder)}: files of different runs: {first.path.name} and {other.path.name} "
                f"({differences}); move each run to a folder of its own"
            )


def _choose_newest(candidates: list[_Candidate]) -> tuple[dict[int, _Candidate], list[str]]:
    """Return the newest file of each rank, and a note about each rank that has several."""
    by_rank: dict[int, list[_Candidate]] = {}
    for candidate in candidates:
        by_rank.setdefault(candidate.name.rank, []).append(candidate)
    newest = {}
    notes = []
    for rank, files in by_rank.items():
        newest[rank] = max(files, key=lambda file: (file.modified_ns, file.path.name))
        if len(files) > 1:
            notes.append(
                f"rank {rank}: {len(files)} files; {newest[rank].path.name} is the newest and was read"
            )
    return newest, notes


def note_ranks(ranks: Sequence[RecordedRank]) -> Iterable[str]:
    """Yield sentences about ranks that are absent, and values that are not what they seem."""
    world_size = ranks[0].name.number("wd")
    if world_size is not None and len(ranks) < world_size:
        yield f"{len(ranks):,} of {world_size:,} ranks are recorded here"
    foreign = [trace.name.rank for trace in ranks if trace.is_device_foreign]
    if foreign:
        yield (
            f"device used of {_list_ranks(foreign)} was recorded on another GPU (less than was allocated) "
            "and is left out"
        )
    for trace in ranks:
        yield from trace.notes


def _list_ranks(ranks: list[int]) -> str:
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    shown = ", ".join(str(rank) for rank in ranks[:8])
    return f"ranks {shown}" if len(ranks) <= 8 else f"ranks {shown} and {len(ranks) - 8:,} more"


_DEPTHS = (f"*/{FILE_PATTERN}", f"*/*/{FILE_PATTERN}")
_MOST_FILES = 20_000
# In the name of the folder into which simulations are written (`memory_traces_scaling`).
_SIMULATED_FOLDER = "scaling"


class TracePair(msgspec.Struct, frozen=True):
    real: Path
    simulated: Path


def find_trace_pair(paths: Sequence[Path]) -> TracePair | None:
    """Return the real and the simulated run among `paths`; None if it is not one of each.

    Two of different layouts are refused, and a folder with several pairs.

    Args:
        paths: Two runs in any order, or a folder with the folders of both below it.
    """
    if len(paths) == 2:
        return _pair(paths[0], paths[1])
    if len(paths) == 1 and paths[0].is_dir() and _find_name(paths[0]) is None:
        return _find_below(paths[0])
    return None


def _pair(first: Path, second: Path) -> TracePair | None:
    names = {path: _find_name(path) for path in (first, second)}
    sides = [is_simulated_run(path, name) for path, name in names.items()]
    if None in sides or sides[0] == sides[-1]:
        return None
    pair = TracePair(second, first) if sides[0] else TracePair(first, second)
    difference = _explain_mismatch(names[pair.real], names[pair.simulated])
    if difference is not None:
        raise InputFileError(
            f"{show_path(pair.simulated)}: simulates a different run than {show_path(pair.real)} "
            f"({difference}); expected two of one layout"
        )
    return pair


def _find_below(folder: Path) -> TracePair | None:
    try:
        found = islice((path for depth in _DEPTHS for path in folder.glob(depth)), _MOST_FILES)
        names = {path: _find_name(path) for path in sorted({path.parent for path in found})}
    except OSError as error:
        raise InputFileError(explain_refusal(folder, error)) from error
    sides = {path: is_simulated_run(path, name) for path, name in names.items()}
    pairs = [
        TracePair(real, simulated)
        for real, simulated in product(sides, sides)
        if sides[real] is False
        and sides[simulated]
        and _explain_mismatch(names[real], names[simulated]) is None
    ]
    if len(pairs) > 1:
        example = f"{show_path(pairs[0].real)} {show_path(pairs[0].simulated)}"
        raise InputFileError(
            f"{show_path(folder)}: {len(pairs):,} pairs of a real and a simulated run; expected one: "
            f"give both folders, such as {example}"
        )
    return pairs[0] if pairs else None


def _find_name(path: Path) -> TraceName | None:
    if not path.is_dir():
        return parse_trace_name(path.name)
    names = (parse_trace_name(file.name) for file in sorted(islice(path.glob(FILE_PATTERN), _MOST_FILES)))
    return next((name for name in names if name is not None), None)


def is_simulated_run(path: Path, name: TraceName | None) -> bool | None:
    """Return whether a run is a simulation; None if it is no run. If names do not say, its folder does."""
    if name is None or name.is_simulated is not None:
        return None if name is None else name.is_simulated
    return any(_SIMULATED_FOLDER in part for part in path.absolute().parts[-3:])


def _explain_mismatch(real: TraceName | None, simulated: TraceName | None) -> str | None:
    """Name what differs; None if nothing does."""
    here = real.layout if real else {}
    there = simulated.layout if simulated else {}
    if not here or not there:
        return None
    differing = [key for key in here if key in there and here[key] != there[key]]
    differing += ["experts"] if ("experts" in here) != ("experts" in there) else []
    told = (f"{key} {here.get(key, 'none')} and {there.get(key, 'none')}" for key in differing)
    return ", ".join(told) or None
