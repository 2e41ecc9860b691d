"""Scores of the trend of used memory: `filling` said in time where a card fills, and nowhere else."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Literal

from vramscope.analyzers.oom import OomAnalyzer
from vramscope.engine.model import DeviceTrend

from .measure.tables import format_number, format_table
from .verdict_runs.driver.modelled import model_driver_run
from .verdict_runs.driver.run import DriverRun, make_driver_run
from .verdict_runs.driver.scored import DRIVER_SCORED
from .verdict_runs.driver.tuning import DRIVER_TUNING
from .verdict_runs.scored import SCORED
from .verdict_runs.tuning import TUNING
from .verdict_targets import Target, at_least, at_most

SPLITS = {"scored": (DRIVER_SCORED, SCORED), "tuning": (DRIVER_TUNING, TUNING)}
LEAD_S = 60.0
LEAST_GROWTH_S = 300.0
"""Growth of less than this before a card is full does not allow a word that early: too little is seen."""
MODELLED_SEEDS = 2
DriverTask = tuple[str, Literal["made up", "modelled"], int, int]
"""Split, how it is made, number of the family, seed."""


@dataclass(frozen=True)
class WatchedTrend:
    """What was said of one run; times are seconds from its start."""

    family: str
    name: str
    interval_s: float
    duration_s: float
    growth_s: float | None
    full_s: float | None
    fillings: tuple[float, ...]
    """When `filling` was said again."""
    last_word: str
    """The word that stood a minute before the card was full; empty where it never was."""
    time_error: float | None
    """Of the time to full when `filling` was first said, relative to what was left."""
    is_covered: bool | None
    """Whether its 80 % interval held the true time."""

    @property
    def allows_lead(self) -> bool:
        """Whether the card fills, and slowly enough that it can be said a minute before."""
        return self.growth_s is not None and self.full_s is not None and self.precursor_s >= LEAST_GROWTH_S

    @property
    def precursor_s(self) -> float:
        """How long it grew until it was full."""
        return 0.0 if self.growth_s is None or self.full_s is None else self.full_s - self.growth_s

    @property
    def is_said(self) -> bool:
        """Whether `filling` was said of this growth a minute before, and not taken back by then."""
        growth_s, full_s = self.growth_s, self.full_s
        if growth_s is None or full_s is None:
            return False
        began = any(growth_s <= at_s <= full_s - LEAD_S for at_s in self.fillings)
        return began and self.last_word in ("filling", "full")

    @property
    def false_words(self) -> int:
        """Words of filling where nothing fills: before the growth, or in a run that never becomes full."""
        before_s = self.growth_s if self.growth_s is not None else self.full_s
        return sum(before_s is None or at_s < before_s for at_s in self.fillings)

    @property
    def idle_hours(self) -> float:
        """Hours of the run in which nothing fills the card."""
        end_s = self.duration_s if self.growth_s is None else self.growth_s
        return end_s / 3600


def list_driver_tasks(split: str) -> list[DriverTask]:
    """Return every run of a split."""
    made_up, modelled = SPLITS[split]
    tasks: list[DriverTask] = [
        (split, "made up", at, seed) for at, family in enumerate(made_up) for seed in range(family.seeds)
    ]
    return tasks + [
        (split, "modelled", at, seed) for at in range(len(modelled)) for seed in range(MODELLED_SEEDS)
    ]


def name_driver_family(task: DriverTask) -> str:
    """Return the name of the family of a task, as in the table without `modelled`."""
    split, kind, at, _ = task
    return SPLITS[split][0][at].name if kind == "made up" else SPLITS[split][1][at].name


def watch_driver_one(task: DriverTask) -> WatchedTrend:
    """Make one run and watch it."""
    split, kind, at, seed = task
    made_up, modelled = SPLITS[split]
    run = make_driver_run(made_up[at], seed) if kind == "made up" else model_driver_run(modelled[at], seed)
    return watch_trend(run)


def watch_trend(run: DriverRun) -> WatchedTrend:
    """Feed a run to the analyzer and keep what it said."""
    analyzer = OomAnalyzer()
    trend: DeviceTrend | None = None
    word = last_word = ""
    fillings: list[float] = []
    first: DeviceTrend | None = None
    lead_s = None if run.full_s is None else run.full_s - LEAD_S
    for sample in run.samples():
        analyzer.observe(sample)
        for assessment in analyzer.assess():
            trend = assessment.device_trend
        if trend is None:
            continue
        if trend.word == "filling" and word != "filling":
            fillings.append(sample.time_s)
            is_of_growth = run.growth_s is not None and sample.time_s >= run.growth_s
            first = trend if first is None and is_of_growth else first
        word = trend.word
        if lead_s is not None and sample.time_s <= lead_s:
            last_word = word
    error, is_covered = _compare_time(first, run.full_s)
    return WatchedTrend(
        run.family,
        run.name,
        run.sampling.interval_s,
        run.duration_s,
        run.growth_s,
        run.full_s,
        tuple(fillings),
        last_word,
        error,
        is_covered,
    )


def _compare_time(first: DeviceTrend | None, full_s: float | None) -> tuple[float | None, bool | None]:
    if first is None or full_s is None or full_s <= first.time_s:
        return None, None
    low_s, middle_s, high_s = first.full_in_low_s, first.full_in_s, first.full_in_high_s
    if low_s is None or middle_s is None or high_s is None:
        return None, None
    left_s = full_s - first.time_s
    return abs(middle_s - left_s) / left_s, low_s <= left_s <= high_s


@dataclass(frozen=True)
class TrendScore:
    """Everything about some runs."""

    runs: int
    said: int
    fill: int
    """Runs that fill and allow a word a minute before."""
    false_words: int
    false_runs: int
    idle_hours: float
    time_error: float | None
    coverage: float | None

    @property
    def recall(self) -> float | None:
        """Share of the runs that fill for which it was said in time."""
        return self.said / self.fill if self.fill else None

    @property
    def false_per_100_hours(self) -> float | None:
        """False words in a hundred device-hours in which nothing fills."""
        return 100 * self.false_words / self.idle_hours if self.idle_hours else None


def score_trends(runs: Sequence[WatchedTrend]) -> TrendScore:
    """Return the score of some runs."""
    fill = [run for run in runs if run.allows_lead]
    errors = [run.time_error for run in runs if run.time_error is not None]
    covered = [run.is_covered for run in runs if run.is_covered is not None]
    return TrendScore(
        len(runs),
        sum(run.is_said for run in fill),
        len(fill),
        sum(run.false_words for run in runs),
        sum(run.false_words > 0 for run in runs),
        sum(run.idle_hours for run in runs),
        median(errors) if errors else None,
        sum(covered) / len(covered) if covered else None,
    )


def judge_trends(runs: Sequence[WatchedTrend]) -> list[Target]:
    """Return the targets of the trend with their outcome."""
    it = score_trends(runs)
    return [
        at_least("driver only: filling said 1 min before full", it.recall, 0.95),
        at_most("driver only: false words in 100 device-hours", it.false_per_100_hours, 1.0),
    ]


def format_trends(runs: Sequence[WatchedTrend]) -> str:
    """Return a row for each family, and one for all."""
    families = dict.fromkeys(run.family for run in runs)
    named = [(name, [run for run in runs if run.family == name]) for name in families]
    rows = [_format_row(name, score_trends(of_family)) for name, of_family in (*named, ("all", list(runs)))]
    head = ["", "runs", "said", "false words", "in hours", "time error", "covers"]
    return format_table("Driver only: `filling` by family", head, rows)


def _format_row(name: str, it: TrendScore) -> list[str]:
    return [
        name,
        str(it.runs),
        f"{it.said}/{it.fill}" if it.fill else "—",
        str(it.false_words),
        format_number(it.idle_hours, 1),
        "—" if it.time_error is None else f"{100 * it.time_error:.0f} %",
        format_number(it.coverage, 2),
    ]


def list_trend_errors(runs: Iterable[WatchedTrend]) -> list[str]:
    """Return a sentence for each thing that went wrong."""
    found = []
    for run in runs:
        where = f"{run.name} (driver only, every {run.interval_s:g} s)"
        if run.false_words:
            times = ", ".join(f"{at_s:.0f}" for at_s in run.fillings)
            found.append(f"{where}: filling said at {times} s, where nothing fills")
        if run.allows_lead and not run.is_said:
            found.append(f"{where}: filling not said 1 min before full at {run.full_s:.0f} s")
    return found


def as_trend_results(runs: Sequence[WatchedTrend]) -> dict[str, object]:
    """Return the scores as they stand in the JSON."""
    families = dict.fromkeys(run.family for run in runs)
    return {
        "all": _as_figures(runs),
        "by_family": {name: _as_figures([run for run in runs if run.family == name]) for name in families},
        "errors": list_trend_errors(runs),
    }


def _as_figures(runs: Sequence[WatchedTrend]) -> dict[str, object]:
    it = score_trends(runs)
    return asdict(it) | {"recall": it.recall, "false_per_100_hours": it.false_per_100_hours}
