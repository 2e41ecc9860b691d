"""What the layouts that failed have in common: rows, columns, low PP, too few GPUs a replica, causes."""

from collections import Counter
from collections.abc import Iterator

from .model import SweepCell, SweepFinding, SweepGrid
from .words import count, list_places

_MOST_CAUSES = 3


def describe_failures(grid: SweepGrid) -> Iterator[SweepFinding]:
    """Yield how many failed and of what, and the patterns in where they did."""
    failed = [cell for cell in grid.cells if cell.has_failed]
    if not failed:
        return
    yield SweepFinding("failures", _count_states(grid, failed), list_places(failed))
    for degree in ("TP", "PP"):
        yield from _find_whole_lines(grid, degree)
    yield from _find_threshold(grid, failed)
    yield from _find_low_pp(grid)
    yield from _find_causes(failed)


def _count_states(grid: SweepGrid, failed: list[SweepCell]) -> str:
    tried = sum(cell.has_run or cell.has_failed for cell in grid.cells)
    of_memory = sum(cell.state == "oom" for cell in failed)
    unknown = sum(cell.state == "failed" and cell.cause is None for cell in failed)
    parts = [
        f"{number:,} {words}"
        for number, words in (
            (of_memory, "out of memory"),
            (len(failed) - of_memory - unknown, "for another cause"),
            (unknown, "with no cause told"),
        )
        if number
    ]
    return f"{len(failed):,} of {tried:,} layouts failed: {', '.join(parts)}"


def _find_whole_lines(grid: SweepGrid, degree: str) -> Iterator[SweepFinding]:
    """Yield the rows (or columns) in which everything that was tried failed, while others ran."""
    lines: dict[int, list[SweepCell]] = {}
    for cell in grid.cells:
        if cell.has_run or cell.has_failed:
            lines.setdefault(cell.tp if degree == "TP" else cell.pp, []).append(cell)
    lost = {
        at: cells for at, cells in lines.items() if len(cells) > 1 and not any(it.has_run for it in cells)
    }
    if not lost or len(lost) == len(lines):
        return
    cells = [cell for line in lost.values() for cell in line]
    values = ", ".join(map(str, sorted(lost)))
    yield SweepFinding(
        "failures", f"every layout with {degree} {values} failed ({len(cells):,})", list_places(cells)
    )


def _find_threshold(grid: SweepGrid, failed: list[SweepCell]) -> Iterator[SweepFinding]:
    """Yield the number of GPUs a replica that parts what ran from what failed, where one does."""
    ran = [cell.gpus_per_replica for cell in grid.in_state("ok")]
    most = max(cell.gpus_per_replica for cell in failed)
    if ran and most < min(ran):
        text = f"every layout with TP × PP up to {most:,} failed, every one from {min(ran):,} on ran"
        yield SweepFinding("failures", text, list_places(failed))


def _find_low_pp(grid: SweepGrid) -> Iterator[SweepFinding]:
    """Yield from which PP on each TP runs, where all that failed in the row stand below."""
    told, below = [], []
    for tp in grid.tps:
        row = [cell for cell in grid.cells if cell.tp == tp]
        ran, failed = [it.pp for it in row if it.has_run], [it for it in row if it.has_failed]
        if not ran or not failed:
            continue
        if max(cell.pp for cell in failed) >= min(ran):
            return
        told.append(f"TP {tp} from PP {min(ran)} on")
        below += failed
    if told:
        yield SweepFinding("failures", f"low PP fails: {', '.join(told)} runs", list_places(below))


def _find_causes(failed: list[SweepCell]) -> Iterator[SweepFinding]:
    """Yield the most frequent causes other than memory."""
    causes = Counter(cell.cause for cell in failed if cell.state == "failed" and cell.cause is not None)
    for cause, number in causes.most_common(_MOST_CAUSES):
        cells = [cell for cell in failed if cell.cause == cause]
        yield SweepFinding("failures", f"{count(number, 'layout')} failed by: {cause}", list_places(cells))
