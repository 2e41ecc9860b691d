"""The process list as a tree: children below their parents, with those that hold no device memory."""

from collections.abc import Mapping, Sequence

from ...engine.model import DeviceSample, ProcessReading
from .process_rows import ProcessRow, SortOrder, find_run_time, sort_rows

CHILD = "├─ "
LAST_CHILD = "└─ "
BELOW_CHILD = "│  "
BELOW_LAST = "   "
# Levels from which further ones are drawn below each other.
DEEPEST = 12


def arrange_tree(
    rows: Sequence[ProcessRow],
    relatives: Mapping[int, ProcessReading],
    order: SortOrder,
    now_s: float | None = None,
) -> list[ProcessRow]:
    """Return rows with their relatives as a tree; siblings are in the order of their first descendant's row.

    A process on several devices has its rows one below the other.

    Args:
        rows: Processes that hold device memory.
        relatives: Parents and children of these, by process id.
        now_s: Time of the sample.
    """
    by_pid: dict[int, list[ProcessRow]] = {}
    for row in sort_rows(rows, order):
        by_pid.setdefault(row.process.pid, []).append(row)
    readings = {pid: found[0].process for pid, found in by_pid.items()}
    readings |= {pid: process for pid, process in relatives.items() if pid not in by_pid}
    first_of = _find_first_rows(by_pid, readings)
    place = {pid: number for number, pid in enumerate(by_pid)}

    def rank(pid: int) -> tuple[int, int]:
        return place.get(first_of.get(pid, -1), len(place)), pid

    parents = {pid: _find_parent(process, readings) for pid, process in readings.items()}
    children: dict[int, list[int]] = {}
    for pid in sorted(readings, key=rank):
        children.setdefault(parents[pid] or 0, []).append(pid)
    roots = sorted((pid for pid in readings if parents[pid] is None), key=rank)
    tree: list[ProcessRow] = []
    seen: set[int] = set()
    # Whatever a remote node says of its processes, each is listed once: a circle has no root.
    for root in [*roots, *by_pid]:
        device = by_pid[first_of[root]][0].device if root in first_of else None
        waiting: list[tuple[int, str, str, DeviceSample | None]] = [(root, "", "", device)]
        while waiting:
            pid, branch, below, device = waiting.pop()
            if pid in seen:
                continue
            seen.add(pid)
            found = by_pid.get(pid)
            if found is not None:
                device = found[0].device
                tree += [row._replace(branch=below if at else branch) for at, row in enumerate(found)]
            elif device is not None:
                runs_s = find_run_time(readings[pid], now_s)
                tree.append(ProcessRow(device, readings[pid], runs_s=runs_s, branch=branch, is_relative=True))
            is_deep = len(below) >= DEEPEST * len(CHILD)
            inside = children.get(pid, [])
            for child in reversed(inside):
                is_last = child == inside[-1]
                head = below if is_deep else below + (LAST_CHILD if is_last else CHILD)
                tail = below if is_deep else below + (BELOW_LAST if is_last else BELOW_CHILD)
                waiting.append((child, head, tail, device))
    return tree


def _find_first_rows(
    by_pid: Mapping[int, Sequence[ProcessRow]], readings: Mapping[int, ProcessReading]
) -> dict[int, int]:
    """Return for each process with device memory, and each ancestor, the first listed one of its subtree."""
    found: dict[int, int] = {}
    for pid in by_pid:
        above: int | None = pid
        while above is not None and above in readings and above not in found:
            found[above] = pid
            above = _find_parent(readings[above], readings)
    return found


def _find_parent(process: ProcessReading, readings: Mapping[int, ProcessReading]) -> int | None:
    """Return the listed process below which one is: its parent, else the MPS server whose client it is."""
    server = None if process.mps is None or process.mps.role == "server" else process.mps.server_pid
    return next((pid for pid in (process.parent_pid, server) if pid is not None and pid in readings), None)
