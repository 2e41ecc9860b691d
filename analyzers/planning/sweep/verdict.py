"""A sweep in one sentence: what fits, what is best, what failed, and how far the theory is from it."""

from ...sentence import Sentence
from .best import find_best
from .model import SweepGrid
from .prediction import measure_errors
from .words import count, show_gib


def judge_sweep(grid: SweepGrid) -> Sentence:
    """Return what a sweep says, the most important clause first."""
    clauses = (_say_best(grid), _say_counts(grid), _say_theory(grid))
    return Sentence(tuple(clause for clause in clauses if clause))


def _say_best(grid: SweepGrid) -> tuple[str, ...]:
    best = find_best(grid)
    if best is None:
        return (
            f"nothing that ran told its memory, of {count(len(grid.cells), 'layout')}",
            "nothing measured",
        )
    share = 100 * (best.actual_bytes or 0) / grid.capacity_bytes
    where = f"TP {best.tp} PP {best.pp}"
    used = show_gib(best.actual_bytes)
    return (
        f"best {where} with {used}, {share:.0f} % of {show_gib(grid.capacity_bytes)}",
        f"best {where} with {used}",
        f"best {where}",
    )


def _say_counts(grid: SweepGrid) -> tuple[str, ...]:
    tried = [cell for cell in grid.cells if cell.has_run or cell.has_failed]
    ran = sum(cell.has_run for cell in tried)
    of_memory = sum(cell.state == "oom" for cell in tried)
    failed = len(tried) - ran - of_memory
    parts = [f"{ran:,} of {len(tried):,} layouts ran"]
    parts += [f"{of_memory:,} out of memory"] if of_memory else []
    parts += [f"{failed:,} failed"] if failed else []
    return ", ".join(parts), parts[0], f"{ran:,} of {len(tried):,} ran", ""


def _say_theory(grid: SweepGrid) -> tuple[str, ...]:
    errors = measure_errors(grid.cells)
    if errors is None:
        return ()
    wrong = sum(cell.is_mispredicted for cell in grid.cells)
    missed = f", ruled out {wrong:,} that ran" if wrong else ""
    if errors.least > 0 or errors.most < 0:
        small, large = sorted((abs(errors.least), abs(errors.most)))
        way = "high" if errors.least > 0 else "low"
        low = f"{small:.0f}"
        high = f"{large:.0f}"
        span = f"{high} %" if low == high else f"{low} to {high} %"
        told = f"theory {span} too {way}"
    else:
        told = f"theory errs {errors.least:+.0f} to {errors.most:+.0f} %"
    return told + missed, told, ""
