"""The layout that needs least memory, and where speed is known, those that nothing beats in both."""

from collections.abc import Iterator

from .model import SweepCell, SweepFinding, SweepGrid
from .words import count, list_places, name_cell, name_cells, show_gib


def find_best(grid: SweepGrid) -> SweepCell | None:
    """Return the layout that ran and held least; of equals the one with fewer GPUs a replica.

    Of a real run and its simulation the one that held more counts.
    """
    most: dict[tuple[int, int, int | None], SweepCell] = {}
    for cell in grid.measured:
        known = most.get((cell.tp, cell.pp, cell.dp))
        if known is None or (cell.actual_bytes or 0) > (known.actual_bytes or 0):
            most[cell.tp, cell.pp, cell.dp] = cell
    return min(
        most.values(), key=lambda cell: (cell.actual_bytes or 0, cell.gpus_per_replica, cell.tp), default=None
    )


def does_anything_fit(grid: SweepGrid) -> bool | None:
    """Return whether a layout that ran stays below the capacity; None where no memory is known."""
    if any((cell.actual_bytes or 0) < grid.capacity_bytes for cell in grid.measured):
        return True
    return False if grid.measured or any(grid.in_state("oom")) else None


def find_front(grid: SweepGrid) -> list[SweepCell]:
    """Return the layouts that no other beats in both memory and speed, the fastest first."""
    front: list[SweepCell] = []
    known = [(cell, speed) for cell in grid.measured if (speed := measure_speed(cell)) is not None]
    for cell, _ in sorted(known, key=lambda it: (-it[1], it[0].actual_bytes or 0)):
        if not front or (cell.actual_bytes or 0) < (front[-1].actual_bytes or 0):
            front.append(cell)
    return front


def measure_speed(cell: SweepCell) -> float | None:
    """Return how fast a layout is: TFLOP/s of a GPU, which layouts of any batch can be compared by."""
    return cell.tflops_per_gpu


def describe_best(grid: SweepGrid) -> Iterator[SweepFinding]:
    """Yield what needs least memory, and the front of memory and speed."""
    best = find_best(grid)
    if best is None:
        return
    share = 100 * (best.actual_bytes or 0) / grid.capacity_bytes
    text = (
        f"{name_cell(best)} needs least: {show_gib(best.actual_bytes)}, {share:.0f} % of "
        f"{show_gib(grid.capacity_bytes)}"
    )
    yield SweepFinding("best", text, (best.place,))
    beyond = [cell for cell in grid.measured if (cell.actual_bytes or 0) >= grid.capacity_bytes]
    if beyond:
        text = (
            f"{count(len(beyond), 'layout')} ran and held {show_gib(grid.capacity_bytes)} or more, too much "
            f"for the device asked for: {name_cells(beyond)}"
        )
        yield SweepFinding("failures", text, list_places(beyond))
    front = find_front(grid)
    if front:
        told = "; ".join(
            f"{name_cell(cell)} {measure_speed(cell):.1f} TFLOP/s per GPU in {show_gib(cell.actual_bytes)}"
            for cell in front
        )
        yield SweepFinding("pareto", f"nothing is both faster and smaller than: {told}", list_places(front))
