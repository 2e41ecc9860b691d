"""Says which folder of traces and which folder of logs are of one sweep, and by what that is known."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from .folders import TraceFolder
from .logs import SweepLogs
from .names import is_same_model
from .traces import Layout


class FolderPair(NamedTuple):
    """Traces, or logs, or both, of one sweep."""

    traces: TraceFolder | None
    logs: SweepLogs | None
    reason: str
    """By what they are known to belong together, or why one of both is missing."""


class _Match(NamedTuple):
    """How well traces and logs go together; the greatest is taken first."""

    weight: int
    shared: int
    """Configurations that have a trace and are listed as successful."""
    date: str
    """Of the logs: of equals the newest."""
    trace_at: int
    log_at: int
    reason: str


def pair_folders(traces: Sequence[TraceFolder], logs: Sequence[SweepLogs]) -> list[FolderPair]:
    """Return each folder of traces with the logs that belong to it, and what is left alone.

    In this order of trust: one folder holds the other; model and world size are told by both and the same;
    the configurations that have a trace are just those listed as successful; or these, and fewer that are
    listed otherwise; model or world size is the same and the other one is not told by both; there is one
    folder of each kind, and nothing speaks against it.
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
    return [*_take(traces, logs, chosen), *_leave(logs, taken)]


def _take(
    traces: Sequence[TraceFolder], logs: Sequence[SweepLogs], chosen: dict[int, _Match]
) -> Iterator[FolderPair]:
    for at, folder in enumerate(traces):
        match = chosen.get(at)
        if match is None:
            yield FolderPair(folder, None, "traces alone: no logs belong to them")
        else:
            yield FolderPair(folder, logs[match.log_at], match.reason)


def _leave(logs: Sequence[SweepLogs], taken: set[int]) -> Iterator[FolderPair]:
    for at, log in enumerate(logs):
        if at not in taken:
            yield FolderPair(None, log, "logs alone: no traces belong to them")


def _judge(
    folder: TraceFolder, log: SweepLogs, trace_at: int, log_at: int, *, is_only: bool
) -> _Match | None:
    """Return how well two folders go together, None where they do not."""
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

    What failed may have left the beginning of a trace. None where the traces are not those of the log: one
    that succeeded has none, one has a trace and is not listed, or there are as many of these.
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
        return 6, "paired: one folder holds the other"
    if is_model and is_world:
        return 5, "paired by model and world size"
    if more is not None and (is_world or not has_world):
        doubt = (
            f", though named {folder.model} and {name.model}" if has_model and not is_model and name else ""
        )
        besides = f" and {more} listed otherwise" if more else ""
        told = f"those with a trace are those listed as successful{besides}{doubt}"
        return (3 if more else 4), f"paired by configurations: {told}"
    if is_model and not has_world:
        return 2, "paired by model; the traces tell no world size"
    if is_world and not has_model:
        return 2, "paired by world size; the traces tell no model"
    return 0, ""


def may_belong(folder: TraceFolder, log: SweepLogs) -> bool:
    """Return whether traces can be of logs although the names of their models differ.

    The world sizes do not differ, and something that is listed as successful has a trace.
    """
    told = log.name
    world_size = folder.find_number("wd")
    if told is not None and world_size is not None and told.world_size != world_size:
        return False
    return _count_shared({file.layout for file in folder.files}, log.list_outcome("success")) > 0


def _is_contradicted(folder: TraceFolder, log: SweepLogs) -> bool:
    """Return whether model or world size are told by both and differ."""
    name = log.name
    world_size = folder.find_number("wd")
    if name is None:
        return False
    is_other_model = folder.model is not None and not is_same_model(folder.model, name.model)
    return is_other_model or (world_size is not None and world_size != name.world_size)


def _is_inside(inner: Path, outer: Path) -> bool:
    return outer.resolve() in (inner.resolve(), *inner.resolve().parents)


def _count_shared(ran: set[Layout], succeeded: set[Layout]) -> int:
    """Return how many configurations are in both; DP counts where both tell it."""
    exact = ran & succeeded
    places = {layout[:2] for layout in succeeded if layout[2] is None}
    blind = {layout for layout in ran - exact if layout[:2] in places}
    blind |= {it for it in ran - exact if it[2] is None and any(it[:2] == s[:2] for s in succeeded)}
    return len(exact) + len(blind)
