"""Joins the traces and the logs of a sweep: one configuration a parallel layout and kind of run."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import msgspec

from ...errors import InputFileError
from ..base.input_file import show_name, show_path
from .folders import FolderPair, TraceFolder, may_belong, pair_folders
from .model import (
    ConfigurationLog,
    LogEntry,
    SkippedFile,
    Sweep,
    SweepConfiguration,
    SweepLogs,
    SweepTrace,
    find_configuration_logs,
    find_log_folders,
    find_model_in_name,
    is_same_model,
    normalize_model,
    read_configuration_log,
    read_logs,
)
from .traces import Layout, TraceFile, TraceRun, find_majority, find_traces, group_runs, read_run

_COUNTED = (("wd", "world sizes"), ("l", "numbers of layers"))
_MOST_NAMED = 6


def read_sweep(
    memory_dir: Path,
    log_dir: Path | None = None,
    *,
    iteration: int | None = None,
    on_progress: Callable[[int, int], object] = lambda done, total: None,
) -> Sweep:
    """Return all configurations of a sweep; files that cannot be read are left out and listed.

    Of several traces of one layout the newest counts; a real and a simulated run of one layout are two
    configurations. A configuration with a trace ran, whatever a list of failures says.

    Args:
        log_dir: Folder of the sweep's logs, or one with such folders; the one that belongs to the traces is
            read.
        iteration: Whose peak is read; None for the highest peak of all iterations.
    """
    files, skipped = find_traces(memory_dir)
    _refuse_several(memory_dir, files)
    logs = None if log_dir is None else _read_logs_of(memory_dir, files, log_dir)
    if not files and not skipped and (logs is None or not logs.entries):
        raise InputFileError(
            f"{show_path(memory_dir)}: no memory trace; expected files such as "
            "memory_trace_rank0_wd8192_tp2_pp64_dp64_….json"
        )
    sweep = _read_found(memory_dir, files, skipped, logs, iteration, on_progress)
    if iteration is not None and not has_iteration(sweep):
        raise InputFileError(explain_no_iteration(show_path(memory_dir), iteration))
    return sweep


def _refuse_several(memory_dir: Path, files: list[TraceFile]) -> None:
    """Refuse neighbouring folders whose traces are of different models, world sizes or numbers of layers.

    Their layouts would become cells of one grid, which would then be of no model at all.
    """
    by_folder: dict[Path, list[TraceFile]] = {}
    for file in files:
        by_folder.setdefault(file.path.parent, []).append(file)
    folders = [TraceFolder(path, own, [], find_model_in_name(path)) for path, own in by_folder.items()]
    told: list[tuple[object, ...]] = [
        (
            None if it.model is None else normalize_model(it.model),
            *(it.find_number(key) for key, _ in _COUNTED),
        )
        for it in folders
    ]
    if all(len(set(of_all) - {None}) <= 1 for of_all in zip(*told, strict=True)):
        return
    shown = ", ".join(f"{show_name(it.path)} ({_describe_folder(it)})" for it in folders[:_MOST_NAMED])
    more = f" and {len(folders) - _MOST_NAMED:,} more" if len(folders) > _MOST_NAMED else ""
    place = show_path(memory_dir)
    raise InputFileError(
        f"{place}: its folders have traces of several sweeps, which do not fit into one grid: "
        f"{shown}{more}; choose one, such as {show_path(folders[0].path)}, or see all with vramscope "
        f"sweep {place}"
    )


def _describe_folder(folder: TraceFolder) -> str:
    world_size = folder.find_number("wd")
    layers = folder.find_number("l")
    told = (
        None if folder.model is None else f"model {folder.model}",
        None if world_size is None else f"{world_size:,} GPUs",
        None if layers is None else f"{layers:,} layers",
    )
    return ", ".join(part for part in told if part) or "model unknown"


def has_iteration(sweep: Sweep) -> bool:
    """Return whether any trace has a peak in the iteration that was read, or there is no trace at all."""
    traces = [it.trace for it in sweep.configurations if it.trace is not None]
    return not traces or any(trace.peak_allocated_bytes is not None for trace in traces)


def explain_no_iteration(place: str, iteration: int) -> str:
    return (
        f"{place}: no trace has a peak in iteration {iteration:,}; iterations count from 0; without "
        "--iteration the highest peak of all is read"
    )


def _read_logs_of(memory_dir: Path, files: list[TraceFile], log_dir: Path) -> SweepLogs:
    """Return the logs in a folder, or below it, that belong to some traces."""
    notes: list[str] = []
    found: list[SweepLogs] = []
    for folder in find_log_folders(log_dir):
        try:
            found.append(read_logs(folder))
        except InputFileError as error:
            notes.append(str(error))
    if not found:
        raise InputFileError("; ".join(notes))
    found = [logs for logs in found if logs.entries] or found
    if not files:
        return max(found, key=_date_logs)
    traces = TraceFolder(memory_dir, files, [], find_model_in_name(memory_dir))
    pair = pair_folders([traces], found)[0]
    if pair.logs is None and found[0].folder == log_dir and may_belong(traces, found[0]):
        return found[0]  # named outright, and only the names of the models differ: a note says so
    if pair.logs is None:
        raise InputFileError(_explain_no_logs(traces, found, log_dir))
    if len(found) > 1:
        others = f"{len(found):,} sweeps in {show_path(log_dir)}; {show_name(pair.logs.folder)} was read"
        notes.append(f"{others}: {pair.reason}")
    return pair.logs._replace(notes=[*notes, *pair.logs.notes])


def _date_logs(logs: SweepLogs) -> tuple[str, str]:
    return "" if logs.name is None else logs.name.date, str(logs.folder)


def _explain_no_logs(traces: TraceFolder, found: Sequence[SweepLogs], log_dir: Path) -> str:
    told = (
        None if traces.model is None else f"a model named {traces.model}",
        None if (world_size := traces.find_number("wd")) is None else f"{world_size:,} GPUs",
    )
    what = " on ".join(part for part in told if part) or "another sweep"
    shown = ", ".join(show_name(logs.folder) for logs in found[:3])
    more = f" and {len(found) - 3:,} more" if len(found) > 3 else ""
    return (
        f"{show_path(log_dir)}: no logs in it belong to the traces in {show_path(traces.path)}, which "
        f"are of {what}; found {shown}{more}. Give the folder of the traces' own logs, or leave out "
        "--log-dir; vramscope sweep finds what belongs together"
    )


def read_pair(
    pair: FolderPair,
    *,
    iteration: int | None = None,
    on_progress: Callable[[int, int], object] = lambda done, total: None,
) -> Sweep:
    """Read the sweep of folders that belong together."""
    traces = pair.traces
    if traces is None:
        return _read_found(None, [], [], pair.logs, iteration, on_progress)
    return _read_found(traces.path, traces.files, list(traces.skipped), pair.logs, iteration, on_progress)


def _read_found(
    memory_dir: Path | None,
    files: list[TraceFile],
    skipped: list[SkippedFile],
    logs: SweepLogs | None,
    iteration: int | None,
    on_progress: Callable[[int, int], object],
) -> Sweep:
    reading = _Reading(skipped, iteration, on_progress)
    configurations = reading.join(files, logs)
    told = [] if memory_dir is None else _compare(memory_dir, files, logs)
    times_ns = [file.modified_ns for file in files]
    times_ns += [logs.modified_ns] if logs is not None and logs.modified_ns is not None else []
    logged_world_size = None if logs is None or logs.name is None else logs.name.world_size
    return Sweep(
        memory_dir=memory_dir,
        log_dir=None if logs is None else logs.folder,
        is_simulated=_find_simulated(files),
        modified_ns=max(times_ns, default=None),
        model=_find_model(memory_dir, logs),
        world_size=_find_most_common("wd", files) or logged_world_size,
        layers=_find_most_common("l", files) or (None if logs is None else logs.layers),
        heads=None if logs is None else logs.heads,
        configurations=configurations,
        notes=(*told, *(() if logs is None else logs.notes), *reading.notes),
        skipped=tuple(sorted(skipped, key=lambda it: str(it.path))),
    )


class _Reading:
    """Reads the files of a sweep one configuration after the other."""

    def __init__(
        self, skipped: list[SkippedFile], iteration: int | None, on_progress: Callable[[int, int], object]
    ) -> None:
        self.notes: list[str] = []
        self._skipped = skipped
        self._iteration = iteration
        self._on_progress = on_progress

    def join(self, files: list[TraceFile], logs: SweepLogs | None) -> tuple[SweepConfiguration, ...]:
        """Return the configurations of traces and logs, in order; without those whose only file is broken."""
        runs = group_runs(files)
        traced = dict.fromkeys(layout for layout, _ in runs)
        entries = {} if logs is None else dict(_settle(logs.entries, traced))
        paths = {} if logs is None else find_configuration_logs(logs.folder)
        alone = {(layout, False) for layout in entries if layout not in traced}
        keys = sorted({*runs, *alone}, key=lambda it: (it[0][0], it[0][1], it[0][2] or 0, it[1]))
        found = []
        for done, (layout, is_simulated) in enumerate(keys, 1):
            trace = self._read_trace(runs.get((layout, is_simulated), []))
            # the logs are of the real run where there is one
            is_logged = not is_simulated or (layout, False) not in runs
            entry = entries.get(layout) if is_logged else None
            if trace is not None or entry is not None:
                path = paths.get((layout[0], layout[1], layout[2] or 0)) if is_logged else None
                configuration = _build(layout, trace, entry, self._read_log(path, trace, entry))
                told = None if trace is None else is_simulated
                found.append(msgspec.structs.replace(configuration, is_simulated=told))
            self._on_progress(done, len(keys))
        doubles = sum(map(_is_double, runs.values()))
        if doubles:
            self.notes.append(f"layouts with several traces: {doubles:,}; the newest of each was read")
        self.notes += self._describe_iterations([it.trace for it in found if it.trace is not None])
        twins = sum((layout, False) in runs for layout, is_simulated in runs if is_simulated)
        if twins:
            self.notes.append(
                f"layouts with a real and a simulated run: {twins:,}; each is listed twice, and a "
                "figure shows the one that used more"
            )
        return tuple(found)

    def _describe_iterations(self, traces: list[SweepTrace]) -> Iterable[str]:
        if self._iteration is not None:
            missing = sum(trace.peak_allocated_bytes is None for trace in traces)
            absent = f"; {missing:,} of {len(traces):,} layouts have none there" if missing else ""
            yield f"the peaks are those of iteration {self._iteration:,}{absent}"
            return
        late = sum(trace.iteration > 0 for trace in traces)
        if late:
            yield (
                f"layouts whose peak comes after iteration 0: {late:,} of {len(traces):,}; the peak is the "
                "highest of all iterations"
            )

    def _read_trace(self, runs: list[TraceRun]) -> SweepTrace | None:
        readings = (read_run(run, self._skipped, self._iteration) for run in runs)
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
    """Yield entries by the layout of the trace that they belong to, if one of both has no DP."""
    by_grid: dict[tuple[int, int], list[Layout]] = {}
    for layout in known:
        by_grid.setdefault(layout[:2], []).append(layout)
    for layout, entry in entries.items():
        same = by_grid.get(layout[:2], [])
        is_open = layout[2] is None or (same and same[0][2] is None)
        yield same[0] if len(same) == 1 and is_open else layout, entry


def _find_most_common(key: str, files: list[TraceFile]) -> int | None:
    return find_majority(file.name.number(key) for file in files)


def _find_simulated(files: list[TraceFile]) -> bool | None:
    """Return whether one GPU played each rank, None if the names do not say or do not agree."""
    told = {file.name.is_simulated for file in files}
    return told.pop() if len(told) == 1 else None


def _find_model(memory_dir: Path | None, logs: SweepLogs | None) -> str | None:
    """Return the model of the logs, None if the folder of the traces is named for another."""
    if logs is None or logs.name is None:
        return None
    told = None if memory_dir is None else find_model_in_name(memory_dir)
    return logs.name.model if told is None or is_same_model(told, logs.name.model) else None


def _compare(memory_dir: Path, files: list[TraceFile], logs: SweepLogs | None) -> Iterable[str]:
    for key, words in _COUNTED:
        numbers = sorted({number for file in files if (number := file.name.number(key)) is not None})
        if len(numbers) > 1:
            shown = ", ".join(f"{number:,}" for number in numbers[:8])
            yield f"the traces are of several {words}: {shown}{' …' if len(numbers) > 8 else ''}"
    if logs is None:
        return
    world_size = _find_most_common("wd", files)
    layers = _find_most_common("l", files)
    if logs.name is not None:
        if _find_model(memory_dir, logs) is None:
            told = memory_dir.resolve().name
            yield (
                f"the folder of the traces is named {told} and the logs are of {logs.name.model} "
                f"({show_name(logs.folder)}): they may be of different models"
            )
        if world_size is not None and world_size != logs.name.world_size:
            yield f"the traces are of {world_size:,} GPUs and the logs of {logs.name.world_size:,}"
    if layers is not None and logs.layers is not None and layers != logs.layers:
        yield f"the traces are of a model of {layers:,} layers and the logs of one of {logs.layers:,}"
