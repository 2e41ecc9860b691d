"""Several sweeps in one index: the columns of its lines, their order, and which lines pass a filter."""

import re
from collections.abc import Callable, Sequence
from operator import eq, ge, gt, le, lt
from typing import Literal, get_args

import msgspec

from ....engine.errors import UsageError
from ....engine.files.sweep import SkippedFile
from ...sentence import Sentence, count
from .findings import PredictionErrors, measure_errors
from .model import STATES, CellState, SweepCell, SweepFinding, SweepGrid, find_best, show_gib

IndexColumn = Literal["sweep", "model", "gpus", "layouts", "ok", "oom", "failed", "best", "error", "newest"]
INDEX_COLUMNS: tuple[IndexColumn, ...] = get_args(IndexColumn)


class IndexedSweep(msgspec.Struct, frozen=True, kw_only=True):
    """One sweep of several."""

    name: str
    """Name of its folder, with as many parent folders as distinguish it from the others."""
    grid: SweepGrid
    findings: tuple[SweepFinding, ...]
    skipped: tuple[SkippedFile, ...] = ()
    model: str | None = None
    """Name of the model in the logs, or in the folder of the traces."""
    memory_dir: str | None = None
    log_dir: str | None = None
    reason: str = ""
    """Why traces and logs are known to belong together."""
    modified_s: float | None = None
    """Wall time at which the newest of its traces, or lists, was written."""

    @property
    def tried(self) -> int:
        """Layouts that were tried."""
        return sum(cell.state not in ("not_run", "invalid") for cell in self.grid.cells)

    @property
    def best(self) -> SweepCell | None:
        """The layout that ran and held least."""
        return find_best(self.grid)

    @property
    def errors(self) -> PredictionErrors | None:
        """How far the theory is from what was measured."""
        return measure_errors(self.grid.cells)

    def count(self, *states: CellState) -> int:
        return sum(1 for _ in self.grid.in_state(*states))


class SweepIndex(msgspec.Struct, frozen=True):
    """All sweeps that were found."""

    sweeps: tuple[IndexedSweep, ...]
    notes: tuple[str, ...] = ()
    """What could not be read."""


def sort_sweeps(
    sweeps: Sequence[IndexedSweep], column: IndexColumn, *, is_inverted: bool = False
) -> list[IndexedSweep]:
    """Sort sweeps by a column: numbers from the greatest, names from A; unknown ones last, also if
    inverted.
    """
    known = [sweep for sweep in sweeps if _read(sweep, column) is not None]
    from_least = column in ("sweep", "model", "best", "error")
    ordered = sorted(known, key=lambda it: it.name)
    ordered.sort(key=lambda it: _read(it, column) or 0, reverse=from_least == is_inverted)
    return [*ordered, *(sweep for sweep in sweeps if _read(sweep, column) is None)]


def _read(sweep: IndexedSweep, column: IndexColumn) -> float | str | None:
    if column == "sweep":
        return sweep.name.casefold()
    if column == "model":
        return None if sweep.model is None else sweep.model.casefold()
    return _measure(sweep, column)


def _measure(sweep: IndexedSweep, column: IndexColumn) -> float | None:
    if column == "gpus":
        return sweep.grid.world_size
    if column == "best":
        return None if sweep.best is None else sweep.best.actual_bytes
    if column == "error":
        return None if sweep.errors is None else abs(sweep.errors.typical)
    if column == "newest":
        return sweep.modified_s
    if column == "layouts":
        return sweep.tried
    return sweep.count(*(state for state in STATES if state == column))


# Filters: `model=485B gpus>=1024 state=oom`, and words of the names.

EXPECTED = "model=NAME, gpus=N (or >=, <=, >, <), state=STATE, and words of the name"
_TOKEN = re.compile(r"(?P<key>[a-z]+)(?P<sign>>=|<=|=|>|<)(?P<value>.*)", re.IGNORECASE)
_SIGNS: dict[str, Callable[[float, float], bool]] = {"=": eq, ">=": ge, "<=": le, ">": gt, "<": lt}
Check = Callable[[IndexedSweep], bool]


def filter_sweeps(sweeps: Sequence[IndexedSweep], text: str) -> list[IndexedSweep]:
    """Return the sweeps that pass all blank-separated conditions; `UsageError` where one cannot be read."""
    checks = [_read_condition(token) for token in text.split()]
    return [sweep for sweep in sweeps if all(check(sweep) for check in checks)]


def _read_condition(token: str) -> Check:
    match = _TOKEN.fullmatch(token)
    if match is None:
        word = token.casefold()
        return lambda sweep: word in _text_of(sweep)
    key = match["key"].lower()
    sign = match["sign"]
    value = match["value"]
    if key == "gpus":
        return _read_gpus(token, sign, value)
    if sign == "=" and key == "model":
        wanted = value.casefold().removesuffix("b")
        return lambda sweep: sweep.model is not None and sweep.model.casefold().removesuffix("b") == wanted
    if sign == "=" and key == "state":
        return _read_state(token, value)
    raise UsageError(f"filter {token}: expected {EXPECTED}")


def _read_gpus(token: str, sign: str, value: str) -> Check:
    number = value.replace(",", "")
    if not number.isdecimal():
        raise UsageError(f"filter {token}: expected a number of GPUs")
    compare = _SIGNS[sign]
    wanted = int(number)
    return lambda sweep: sweep.grid.world_size is not None and compare(sweep.grid.world_size, wanted)


def _read_state(token: str, value: str) -> Check:
    states: list[CellState] = [state for state in STATES if state == value.lower()]
    if not states:
        raise UsageError(f"filter {token}: expected one of {', '.join(STATES)}")
    return lambda sweep: any(cell.state in states for cell in sweep.grid.cells)


def _text_of(sweep: IndexedSweep) -> str:
    parts = (sweep.name, sweep.model, sweep.memory_dir, sweep.log_dir)
    return " ".join(part for part in parts if part is not None).casefold()


# A sweep in one sentence: what fits, what is best, what failed, and how far the theory is from it.


def judge_sweep(grid: SweepGrid) -> Sentence:
    """Return the verdict on a sweep, the most important clause first."""
    clauses = (_describe_best(grid), _describe_counts(grid), _describe_theory(grid))
    return Sentence(tuple(clause for clause in clauses if clause))


def _describe_best(grid: SweepGrid) -> tuple[str, ...]:
    best = find_best(grid)
    if best is None:
        return (
            f"no run of {count(len(grid.cells), 'layout')} reported its memory",
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


def _describe_counts(grid: SweepGrid) -> tuple[str, ...]:
    tried = [cell for cell in grid.cells if cell.has_run or cell.has_failed]
    ran = sum(cell.has_run for cell in tried)
    of_memory = sum(cell.state == "oom" for cell in tried)
    failed = len(tried) - ran - of_memory
    parts = [f"{ran:,} of {len(tried):,} layouts ran"]
    parts += [f"{of_memory:,} out of memory"] if of_memory else []
    parts += [f"{failed:,} failed"] if failed else []
    return ", ".join(parts), parts[0], f"{ran:,} of {len(tried):,} ran", ""


def _describe_theory(grid: SweepGrid) -> tuple[str, ...]:
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
        text = f"theory {span} too {way}"
    else:
        text = f"theory errs {errors.least:+.0f} to {errors.most:+.0f} %"
    return text + missed, text, ""
