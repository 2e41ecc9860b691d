"""Puts the traces and the logs of a sweep together: one configuration a parallel layout."""

from collections.abc import Callable, Iterable
from pathlib import Path

from ...errors import InputFileError
from ..input_file import show_name, show_path
from .configuration_log import find_configuration_logs, read_configuration_log
from .logs import LogEntry, SweepLogs, read_logs
from .model import ConfigurationLog, SkippedFile, Sweep, SweepConfiguration, SweepTrace
from .names import find_model_in_name, is_same_model
from .pairing import FolderPair
from .traces import Layout, TraceFile, TraceRun, find_majority, find_traces, group_runs, read_run

_COUNTED = (("wd", "world sizes"), ("l", "numbers of layers"))


def read_sweep(
    memory_dir: Path,
    log_dir: Path | None = None,
    *,
    on_progress: Callable[[int, int], object] = lambda done, total: None,
) -> Sweep:
    """Return all configurations of a sweep; files that cannot be read are left out and listed.

    Of several traces of one layout the newest counts. What ran has a trace, whatever a list of failures says.

    Args:
        memory_dir: Folder of the memory traces.
        log_dir: Folder of the sweep's logs, or one that holds such folders.
        on_progress: Told how many configurations are read, and of how many.

    Raises:
        InputFileError: A folder cannot be read, or there is neither a trace nor a list of configurations.
    """
    files, skipped = find_traces(memory_dir)
    logs = None if log_dir is None else read_logs(log_dir)
    if not files and not skipped and (logs is None or not logs.entries):
        raise InputFileError(
            f"{show_path(memory_dir)}: no memory trace in it; expected files such as "
            "memory_trace_rank0_wd8192_tp2_pp64_dp64_….json"
        )
    return _read_found(memory_dir, files, skipped, logs, on_progress)


def read_pair(
    pair: FolderPair, *, on_progress: Callable[[int, int], object] = lambda done, total: None
) -> Sweep:
    """Return the sweep of folders that were found to belong together.

    Args:
        pair: Its traces, its logs, or both.
        on_progress: Told how many configurations are read, and of how many.

    Raises:
        InputFileError: The folder of the logs cannot be read.
    """
    traces = pair.traces
    if traces is None:
        return _read_found(None, [], [], pair.logs, on_progress)
    return _read_found(traces.path, traces.files, list(traces.skipped), pair.logs, on_progress)


def _read_found(
    memory_dir: Path | None,
    files: list[TraceFile],
    skipped: list[SkippedFile],
    logs: SweepLogs | None,
    on_progress: Callable[[int, int], object],
) -> Sweep:
    reading = _Reading(skipped, on_progress)
    configurations = reading.join(files, logs)
    told = [] if memory_dir is None else _compare(memory_dir, files, logs)
    times_ns = [file.modified_ns for file in files]
    times_ns += [logs.modified_ns] if logs is not None and logs.modified_ns is not None else []
    return Sweep(
        memory_dir=memory_dir,
        log_dir=None if logs is None else logs.folder,
        is_simulated=_find_simulated(files),
        modified_ns=max(times_ns, default=None),
        model=_find_model(memory_dir, logs),
        world_size=_find_most_common("wd", files) or _world_size_of(logs),
        layers=_find_most_common("l", files) or (None if logs is None else logs.layers),
        heads=None if logs is None else logs.heads,
        configurations=configurations,
        notes=(*told, *(() if logs is None else logs.notes), *reading.notes),
        skipped=tuple(sorted(skipped, key=lambda it: str(it.path))),
    )


class _Reading:
    """Reads the files of a sweep one configuration after the other."""

    def __init__(self, skipped: list[SkippedFile], on_progress: Callable[[int, int], object]) -> None:
        self.notes: list[str] = []
        self._skipped = skipped
        self._on_progress = on_progress

    def join(self, files: list[TraceFile], logs: SweepLogs | None) -> tuple[SweepConfiguration, ...]:
        """Return the configurations of traces and logs, in order; without those whose only file is broken."""
        runs = group_runs(files)
        entries = {} if logs is None else dict(_settle(logs.entries, runs))
        paths = {} if logs is None else find_configuration_logs(logs.folder)
        layouts = sorted({*runs, *entries}, key=lambda it: (it[0], it[1], it[2] or 0))
        found = []
        for done, layout in enumerate(layouts, 1):
            trace, entry = self._read_trace(runs.get(layout, [])), entries.get(layout)
            if trace is not None or entry is not None:
                path = paths.get((layout[0], layout[1], layout[2] or 0))
                found.append(_build(layout, trace, entry, self._read_log(path, trace, entry)))
            self._on_progress(done, len(layouts))
        doubles = sum(map(_is_double, runs.values()))
        if doubles:
            self.notes.append(f"layouts with several traces: {doubles:,}; the newest of each was taken")
        late = sum(it.trace is not None and it.trace.iteration > 0 for it in found)
        if late:
            self.notes.append(
                f"layouts whose first iteration tells no peak: {late:,}; the first one that does was taken"
            )
        return tuple(found)

    def _read_trace(self, runs: list[TraceRun]) -> SweepTrace | None:
        """Return the figures of the newest run that can be read."""
        readings = (read_run(run, self._skipped) for run in runs)
        return next((trace for trace in readings if trace is not None), None)

    def _read_log(
        self, path: Path | None, trace: SweepTrace | None, entry: LogEntry | None
    ) -> ConfigurationLog | None:
        if path is None:
            return None
        has_failed = trace is None and (entry is None or entry.outcome != "success")
        try:
            return read_configuration_log(path, has_failed=has_failed)
        except InputFileError as error:
            reason = str(error).removeprefix(f"{show_path(path)}: ")
            self._skipped.append(SkippedFile(path, reason))
            return None


def _is_double(runs: list[TraceRun]) -> bool:
    return len(runs) > 1 or any(len(files) > 1 for run in runs for files in run.by_rank.values())


def _build(
    layout: Layout, trace: SweepTrace | None, entry: LogEntry | None, log: ConfigurationLog | None
) -> SweepConfiguration:
    return SweepConfiguration(
        tp=layout[0],
        pp=layout[1],
        dp=layout[2],
        outcome=None if entry is None else entry.outcome,
        exit_status=None if entry is None else entry.exit_status,
        trace=trace,
        log=log,
    )


def _settle(entries: dict[Layout, LogEntry], known: Iterable[Layout]) -> Iterable[tuple[Layout, LogEntry]]:
    """Yield entries by the layout of the trace that they belong to, where one of both has no DP."""
    by_grid: dict[tuple[int, int], list[Layout]] = {}
    for layout in known:
        by_grid.setdefault(layout[:2], []).append(layout)
    for layout, entry in entries.items():
        same = by_grid.get(layout[:2], [])
        is_open = layout[2] is None or (same and same[0][2] is None)
        yield same[0] if len(same) == 1 and is_open else layout, entry


def _find_most_common(key: str, files: list[TraceFile]) -> int | None:
    return find_majority(file.name.number(key) for file in files)


def _world_size_of(logs: SweepLogs | None) -> int | None:
    return None if logs is None or logs.name is None else logs.name.world_size


def _find_simulated(files: list[TraceFile]) -> bool | None:
    """Return whether one GPU played each rank, None where the names do not tell or do not agree."""
    told = {file.name.is_simulated for file in files}
    return told.pop() if len(told) == 1 else None


def _find_model(memory_dir: Path | None, logs: SweepLogs | None) -> str | None:
    """Return the model of the logs, None where the folder of the traces is named for another."""
    if logs is None or logs.name is None:
        return None
    told = None if memory_dir is None else find_model_in_name(memory_dir)
    return logs.name.model if told is None or is_same_model(told, logs.name.model) else None


def _compare(memory_dir: Path, files: list[TraceFile], logs: SweepLogs | None) -> Iterable[str]:
    """Yield sentences about what does not belong to one sweep."""
    for key, words in _COUNTED:
        numbers = sorted({number for file in files if (number := file.name.number(key)) is not None})
        if len(numbers) > 1:
            shown = ", ".join(f"{number:,}" for number in numbers[:8])
            yield f"the traces are of several {words}: {shown}{' …' if len(numbers) > 8 else ''}"
    if logs is None:
        return
    world_size, layers = _find_most_common("wd", files), _find_most_common("l", files)
    if logs.name is not None:
        if _find_model(memory_dir, logs) is None:
            told = memory_dir.resolve().name
            yield (
                f"the traces are in a folder named {told} and the logs are of "
                f"{logs.name.model} ({show_name(logs.folder)}): they may be of different models"
            )
        if world_size is not None and world_size != logs.name.world_size:
            yield f"the traces are of {world_size:,} GPUs and the logs of {logs.name.world_size:,}"
    if layers is not None and logs.layers is not None and layers != logs.layers:
        yield f"the traces are of a model of {layers:,} layers and the logs of one of {logs.layers:,}"
