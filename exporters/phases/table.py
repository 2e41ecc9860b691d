"""Phases as a table: before, after, peak and change of what is allocated and of what is reserved."""

from collections.abc import Iterator, Sequence
from typing import Literal

from ...analyzers.sentence import count_cells
from ...engine.model.phase_memory import MemoryLevels, PhaseMemory
from ...engine.text import make_printable
from ...engine.units import MIB
from ..text_table import count, format_rows

_GAP = "    "
_Kind = Literal["allocated", "reserved"]


def format_phases(
    phases: Sequence[PhaseMemory], width: int, *, allocated: str = "allocated"
) -> Iterator[str]:
    """Yield the lines of the table: of the steps the last one, and where steps differ, least and most.

    What is reserved stands beside what is allocated where both fit, else below.

    Args:
        phases: In order.
        width: Cells of a line.
        allocated: What the first figures are, where it is not what an allocator says.
    """
    shown = pick_last(phases)
    left = format_rows(_list_rows(shown, phases, "allocated", allocated), "lrrrrr", width)
    if not any(each.after.reserved_bytes is not None or each.peak.reserved_bytes for each in shown):
        yield from left
        return
    right = format_rows(_list_rows(shown, phases, "reserved", "reserved"), "lrrrrr", width)
    rows = _list_rows(shown, phases, "reserved", "reserved")
    rows[0][1] = "reserved before"
    beside = _join(left, format_rows([row[1:5] for row in rows], "rrrr", width))
    if max(map(count_cells, beside)) <= width:
        yield from beside
    else:
        yield from (*left, "", *right)


def show_mib(size_bytes: int | None, *, has_sign: bool = False) -> str:
    """Return bytes as a number of MiB with two decimals, or `—` where unmeasured."""
    return "—" if size_bytes is None else f"{size_bytes / MIB:{'+' if has_sign else ''},.2f}"


def pick_last(phases: Sequence[PhaseMemory]) -> list[PhaseMemory]:
    """Return each phase as it was in the last step that had it, in the order in which phases first came."""
    last: dict[str, PhaseMemory] = {}
    for phase in phases:
        last[phase.phase] = phase
    return list(last.values())


def _list_rows(
    shown: Sequence[PhaseMemory], phases: Sequence[PhaseMemory], kind: _Kind, name: str
) -> list[list[str]]:
    ranges = {phase.phase: _find_range(phase.phase, phases, kind) for phase in shown}
    is_varied = any(low != high for low, high in ranges.values())
    steps = len({phase.step for phase in phases if phase.step is not None})
    last = max((phase.step or 0 for phase in shown), default=0)
    head = [f"{name}, MiB", "before", "after", "peak", "change"]
    rows = [[*head, f"peak of {count(steps, 'step')}" if is_varied else ""]]
    for phase in shown:
        low, high = ranges[phase.phase]
        label = make_printable(phase.phase)
        label += f" (step {phase.step})" if phase.step not in {None, last} else ""
        varied = f"{show_mib(low)} to {show_mib(high)}" if low != high else ""
        rows.append([label, *_list_figures(phase, kind), varied])
    return rows


def _list_figures(phase: PhaseMemory, kind: _Kind) -> list[str]:
    is_allocated = kind == "allocated"
    change = phase.allocated_difference_bytes if is_allocated else phase.reserved_difference_bytes
    levels = [get_level(each, kind) for each in (phase.before, phase.after, phase.peak)]
    return [*map(show_mib, levels), show_mib(change, has_sign=True)]


def get_level(levels: MemoryLevels, kind: _Kind) -> int | None:
    """Return what is allocated, or what is reserved."""
    return levels.allocated_bytes if kind == "allocated" else levels.reserved_bytes


def _find_range(name: str, phases: Sequence[PhaseMemory], kind: _Kind) -> tuple[int | None, int | None]:
    peaks = [
        peak for phase in phases if phase.phase == name and (peak := get_level(phase.peak, kind)) is not None
    ]
    return min(peaks, default=None), max(peaks, default=None)


def _join(left: Sequence[str], right: Sequence[str]) -> list[str]:
    widest = max(map(count_cells, left))
    return [
        f"{line}{' ' * (widest - count_cells(line))}{_GAP}{more.removeprefix('  ')}"
        for line, more in zip(left, right, strict=True)
    ]
