"""The table of docs/compatibility.md: written from outcomes, and read again to compare."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from .running import NO_CUDA, Job, Outcome, Way

# Losses that differ by less are equal: kernels that add in another order differ in the last digits.
LOSS_TOLERANCE = 1e-5
# Peaks that differ by less are equal. Gloo's thread may hold what it has sent a little longer: a block,
# whatever the peak, and so many bytes where they are a small part of the peak.
BYTES_TOLERANCE, BLOCK_BYTES, HELD_BYTES, HELD_TOLERANCE = 1e-3, 512, 2048, 1e-2
# Per cent by which a difference of peaks may grow before a job counts as worse.
_MOST_GROWTH = 1.0
_BEGIN, _END = "<!-- table: make compat -->", "<!-- table ends -->"
_FAILS, _NEEDS_CUDA = "fails", "needs CUDA"
Outcomes = Mapping[tuple[str, Way], Outcome]


def describe(job: Job, way: Way, outcomes: Outcomes) -> str:
    """Return the cell of a job run in one way."""
    outcome = outcomes.get((job.name, way))
    if outcome is None:
        return ""
    if outcome.failure is not None:
        is_refused = way is Way.PLAIN and job.needs_cuda and any(it in outcome.failure for it in NO_CUDA)
        return _NEEDS_CUDA if is_refused else _FAILS
    simulated = outcomes.get((job.name, Way.SIMULATE))
    if way in (Way.FAKE, Way.FACTORY):
        return compare_bytes(outcome.peak_bytes, None if simulated is None else simulated.peak_bytes)
    return _compare_loss(job, way, outcome, outcomes)


def _compare_loss(job: Job, way: Way, outcome: Outcome, outcomes: Outcomes) -> str:
    """Return the cell of a run with real values: its loss is that of the plain run, or of the job's twin.

    A job that needs CUDA has its probe on the simulated card, whose loss it has then.
    """
    other = job.name if way is Way.PROBE else job.twin
    pair = (other, Way.SIMULATE) if job.needs_cuda else (job.name, Way.PLAIN)
    expected = None if pair[0] is None else outcomes.get((pair[0], pair[1]))
    if way is Way.PROBE and outcome.seen_steps != outcome.steps:
        return f"{outcome.seen_steps or 0} steps"
    if way is Way.PLAIN or (expected is None and job.needs_cuda) or not job.has_loss:
        return "runs"
    loss = None if expected is None else expected.loss
    if way is Way.PROBE and outcome.loss == loss:
        return "="
    is_equal = way is Way.SIMULATE and _is_close(outcome.loss, loss, LOSS_TOLERANCE)
    return "=" if is_equal else "other loss"


def _is_close(value: float | None, other: float | None, tolerance: float) -> bool:
    return value is not None and other is not None and abs(value - other) <= tolerance * abs(other)


def compare_bytes(peak: int | None, expected: int | None) -> str:
    """Return "=", or the difference of a peak in per cent; "runs" where one of the two is unknown."""
    if peak is None or expected is None:
        return "runs"
    is_held = abs(peak - expected) <= HELD_BYTES and _is_close(peak, expected, HELD_TOLERANCE)
    if is_held or abs(peak - expected) <= BLOCK_BYTES or _is_close(peak, expected, BYTES_TOLERANCE):
        return "="
    return f"{100.0 * (peak - expected) / expected:+.1f} %"


def _grade(cell: str) -> tuple[int, float]:
    """Return how good a cell is: equal, near, runs, fails; and how near."""
    if cell == "=":
        return 3, 0.0
    if cell.endswith("%"):
        return 2, -abs(float(cell.rstrip(" %")))
    return (0, 0.0) if cell in ("", _FAILS) else (1, 0.0)


def is_worse(cell: str, before: str) -> bool:
    """Return whether a cell is worse than the committed one."""
    grade, nearness = _grade(cell)
    grade_before, nearness_before = _grade(before)
    return grade < grade_before or (grade == grade_before and nearness < nearness_before - _MOST_GROWTH)


def write_page(page: str, jobs: Sequence[Job], outcomes: Outcomes, versions: Mapping[str, str]) -> str:
    """Return the page with its tables replaced; a job without an outcome keeps its rows."""
    kept = _find_rows(page)
    head = ["job", *(way.value for way in Way)]
    lines = [_BEGIN, "", _row(head), _row(["---"] * len(head))]
    tried = {name for name, _ in outcomes}
    for job in jobs:
        cells = [f"`{job.name}`: {job.title}", *(describe(job, way, outcomes) for way in Way)]
        lines += [_row(cells)] if job.name in tried else [kept[0][job.name]] if job.name in kept[0] else []
    lines += ["", "Peak bytes allocated on the card, of rank 0:", ""]
    head = ["job", Way.SIMULATE, Way.FAKE, Way.FACTORY]
    lines += [_row(head), _row(["---", "--:", "--:", "--:"])]
    for job in jobs:
        cells = [f"`{job.name}`", *(_peak(job, way, outcomes) for way in head[1:])]
        lines += [_row(cells)] if job.name in tried else [kept[1][job.name]] if job.name in kept[1] else []
    named = ", ".join(f"{name} {version}" for name, version in versions.items())
    lines += ["", f"Versions: {named}.", "", _END]
    before, _, rest = page.partition(_BEGIN)
    return before + "\n".join(lines) + rest.partition(_END)[2]


def _find_rows(page: str) -> list[dict[str, str]]:
    """Return the lines of the two tables of a page by job."""
    parts = page.partition(_BEGIN)[2].partition(_END)[0].partition("Peak bytes")[::2]
    return [{it[1]: it[0] for it in re.finditer(r"^\| `(\w+)`.*$", part, re.MULTILINE)} for part in parts]


def read_cells(page: str) -> dict[tuple[str, Way], str]:
    """Return the cells of a page by job and way."""
    cells = {}
    for line in page.partition(_BEGIN)[2].partition("Peak bytes")[0].splitlines():
        parts = [part.strip() for part in line.strip().strip("|").split("|")]
        name = re.match(r"`(\w+)`", parts[0])
        if name is not None:
            cells.update({(name[1], way): cell for way, cell in zip(Way, parts[1:], strict=True)})
    return cells


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |".replace("|  |", "| |")


def _peak(job: Job, way: str, outcomes: Outcomes) -> str:
    outcome = outcomes.get((job.name, Way(way)))
    return "—" if outcome is None or outcome.peak_bytes is None else f"{outcome.peak_bytes:,}"
