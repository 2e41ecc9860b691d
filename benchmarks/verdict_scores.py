"""Scores of detectors on watched runs: every figure as it is defined in docs/verdict-benchmark.md."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from statistics import fmean, median

from .verdict_detectors import FAULTS, OURS, Claim, Forecast
from .verdict_runs import Leak
from .verdict_watch import Moment, Watched

LEADS_S = (60.0, 300.0)
GRACE = 0.1
"""Of the length of a leak: how much later it may still be called."""
EVIDENCE_S = 60.0
"""Least growth that a series is judged on (`LEAST_S` of analyzers/floors)."""
BINS = (0.0, 0.05, 0.2, 0.5, 0.8, 0.95, 1.01)


@dataclass
class LeakScore:
    """Leaks that were called, that were not, and calls where none was."""

    found: int = 0
    missed: int = 0
    false: int = 0

    @property
    def precision(self) -> float | None:
        """Right calls of all calls."""
        return _share(self.found, self.found + self.false)

    @property
    def recall(self) -> float | None:
        """Leaks called of all leaks."""
        return _share(self.found, self.found + self.missed)

    @property
    def f1(self) -> float | None:
        """Harmonic mean of precision and recall."""
        return _share(2 * self.found, 2 * self.found + self.missed + self.false)

    def add(self, other: "LeakScore") -> None:
        """Add the counts of another."""
        self.found += other.found
        self.missed += other.missed
        self.false += other.false


@dataclass
class AlarmScore:
    """Alarms while nothing grows, of runs that are seen in one way."""

    runs: int
    quiet_hours: float
    false: int

    @property
    def false_per_1000_hours(self) -> float | None:
        """False alarms in a thousand device-hours in which nothing grows."""
        return 1000 * self.false / self.quiet_hours if self.quiet_hours else None


def score_alarms(runs: Iterable[Watched], kind: str) -> AlarmScore:
    """Return how often high or critical was said of runs of one kind while nothing grew."""
    found = [run for run in runs if run.shape.kind == kind]
    return AlarmScore(
        len(found), sum(run.quiet_hours for run in found), sum(run.false_alarms for run in found)
    )


def score_fragmented(runs: Iterable[Watched]) -> tuple[int, int]:
    """Return of how many live errors by fragmentation we warned a minute ahead, and how many there were.

    High or critical must have been said from a minute before the error until the error.
    """
    found = [run for run in runs if run.truth.is_fragmented and run.shape.kind == "live"]
    return sum(_is_alarmed(run, LEADS_S[0]) for run in found), len(found)


def _is_alarmed(run: Watched, lead_s: float) -> bool:
    oom_s = run.truth.oom_s
    slack_s = 2 * run.shape.interval_s
    return oom_s is not None and any(
        begun <= oom_s - lead_s and ended >= oom_s - slack_s for begun, ended in run.alarms
    )


@dataclass
class Score:
    """Everything about one detector."""

    leak: LeakScore = field(default_factory=LeakScore)
    host_leak: LeakScore = field(default_factory=LeakScore)
    benign_hours: float = 0.0
    benign_runs: int = 0
    false_runs: int = 0
    """Benign runs with any finding that claims a fault."""
    false: Counter[str] = field(default_factory=Counter)
    """Findings on benign runs, by kind; those of `FAULTS` are false."""
    warned: dict[float, int] = field(default_factory=dict)
    """Runs warned at each lead."""
    warnable: dict[float, int] = field(default_factory=dict)
    """Runs whose precursor is longer than the lead."""
    leads: list[float] = field(default_factory=list)
    """Of each leak that ended in an error: share of its life that was left at the first right finding."""
    covered: list[bool] = field(default_factory=list)
    errors: dict[float, list[float]] = field(default_factory=dict)
    """Error of the time to the error, relative to what was left, by the share of life that had passed."""
    brier: list[float] = field(default_factory=list)
    """Squared differences of probability and outcome."""
    squares_of_errors: list[float] = field(default_factory=list)
    """The same, of runs that end in an error alone."""
    brier_within_steps: list[float] = field(default_factory=list)
    reliability: dict[float, list[tuple[float, bool]]] = field(default_factory=dict)
    """Probabilities and outcomes, by the lower edge of their bin."""
    reliability_of_levels: dict[str, list[tuple[float, bool]]] = field(default_factory=dict)
    """The same, by the level of risk."""

    @property
    def false_per_1000_hours(self) -> float | None:
        """False findings of all kinds that claim a fault, in a thousand benign device-hours."""
        count = sum(self.false[kind] for kind in FAULTS)
        return 1000 * count / self.benign_hours if self.benign_hours else None

    def recall_at(self, lead_s: float) -> float | None:
        """Share of runs that were warned so long before."""
        return _share(self.warned.get(lead_s, 0), self.warnable.get(lead_s, 0))

    @property
    def coverage(self) -> float | None:
        """Share of 80 % intervals that hold the true time."""
        return fmean(self.covered) if self.covered else None

    def error_at(self, life_share: float) -> float | None:
        """Median relative error of the time to the error; what was not forecast counts as infinite."""
        errors = self.errors.get(life_share)
        return median(errors) if errors else None

    @property
    def brier_score(self) -> float | None:
        """Mean squared difference of probability and outcome."""
        return fmean(self.brier) if self.brier else None

    @property
    def brier_of_errors(self) -> float | None:
        """The same, over runs that end in an error alone."""
        return fmean(self.squares_of_errors) if self.squares_of_errors else None


def score(runs: Iterable[Watched], detector: str) -> Score:
    """Return the score of one detector over some runs."""
    total = Score()
    for run in runs:
        claims = run.claims[detector]
        if run.truth.is_benign:
            total.benign_hours += run.device_hours
            total.benign_runs += 1
            wrong = [claim for claim in claims if not _is_of_fill(run, claim)]
            total.false_runs += any(claim.kind in FAULTS for claim in wrong)
            total.false.update(claim.kind for claim in wrong)
        if run.shape.has_allocator:
            total.leak.add(match_leaks(run, claims, "leak"))
            _score_warnings(total, run, claims)
            _score_forecasts(total, run, detector)
        elif run.truth.is_benign:
            total.leak.false += sum(claim.kind == "leak" for claim in claims)
        if run.shape.kind == "live":
            total.host_leak.add(match_leaks(run, claims, "host_leak"))
    return total


def match_leaks(run: Watched, claims: Sequence[Claim], kind: str) -> LeakScore:
    """Count leaks that were called, each once; every other finding of the kind is false.

    A leak is called by a finding that opened within it (or a tenth of its length after its end), or that
    opened rightly within one before and still stands.
    """
    where = "device" if kind == "leak" else "host"
    leaks = [leak for leak in run.truth.leaks if leak.where == where]
    calls = [claim for claim in claims if claim.kind == kind]
    rightly: list[Claim] = []
    result = LeakScore()
    for leak in leaks:
        within = [call for call in calls if _is_within(call, leak, run.shape.interval_s)]
        standing = [call for call in rightly if (call.closed_s or run.duration_s) > leak.onset_s]
        rightly += within[:1]
        if within or standing:
            result.found += 1
        else:
            result.missed += 1
    result.false = len(calls) - len(rightly) - sum(_is_of_fill(run, call) for call in calls)
    return result


def _is_of_fill(run: Watched, call: Claim) -> bool:
    """Return whether a finding is about healthy growth that looks like a leak, and closed when that ended."""
    truth = run.truth
    interval_s = run.shape.interval_s
    return any(
        fill.onset_s - interval_s <= call.opened_s <= fill.end_s + GRACE * (fill.end_s - fill.onset_s)
        and (call.closed_s or run.duration_s) <= fill.end_s + truth.allow_s(fill, interval_s)
        for fill in truth.fills
    )


def _is_within(call: Claim, leak: Leak, interval_s: float) -> bool:
    latest_s = leak.end_s + GRACE * (leak.end_s - leak.onset_s)
    return leak.onset_s - interval_s <= call.opened_s <= latest_s


def is_warned(run: Watched, claims: Sequence[Claim], lead_s: float) -> bool:
    """Return whether a finding of kind oom stood from so long before the error until the error.

    One that opened before anything grew was no warning of it.
    """
    truth, slack_s = run.truth, 2 * run.shape.interval_s
    if truth.oom_s is None or truth.growth_s is None:
        return False
    return any(
        claim.kind == "oom"
        and truth.growth_s - slack_s <= claim.opened_s <= truth.oom_s - lead_s
        and (claim.closed_s is None or claim.closed_s >= truth.oom_s - slack_s)
        for claim in claims
    )


def _score_warnings(total: Score, run: Watched, claims: Sequence[Claim]) -> None:
    truth = run.truth
    for lead_s in LEADS_S:
        if truth.precursor_s > lead_s:
            total.warnable[lead_s] = total.warnable.get(lead_s, 0) + 1
            total.warned[lead_s] = total.warned.get(lead_s, 0) + is_warned(run, claims, lead_s)
    if truth.oom_s is None or truth.growth_s is None or not truth.leaks:
        return
    right = [
        claim.opened_s
        for claim in claims
        if claim.kind in ("leak", "oom") and claim.opened_s >= truth.growth_s - run.shape.interval_s
    ]
    total.leads.append((truth.oom_s - min(right)) / truth.precursor_s if right else 0.0)


def _score_forecasts(total: Score, run: Watched, detector: str) -> None:
    truth = run.truth
    for moment in run.moments:
        forecast = moment.forecasts[detector]
        if moment.life_share is None:
            is_near = truth.oom_s is not None and moment.time_s + forecast.horizon_s >= truth.oom_s
            _score_risk(total, forecast, is_near=is_near)
            if truth.oom_s is not None:
                total.squares_of_errors.append(total.brier[-1])
            _score_steps(total, run, moment, forecast)
        elif truth.oom_s is not None:
            left_s = truth.oom_s - moment.time_s
            _score_time(total, forecast, moment.life_share, left_s)


def _score_risk(total: Score, forecast: Forecast, *, is_near: bool) -> None:
    """Add the squared error of a probability; where there is none, people see no alarm: 0."""
    said = forecast.probability or 0.0
    total.brier.append((said - is_near) ** 2)
    edge = max(edge for edge in BINS if edge <= said)
    total.reliability.setdefault(edge, []).append((said, is_near))
    if forecast.level is not None and forecast.probability is not None:
        total.reliability_of_levels.setdefault(forecast.level, []).append((said, is_near))


def _score_steps(total: Score, run: Watched, moment: Moment, forecast: Forecast) -> None:
    known = (forecast.within_steps, forecast.steps_ahead, moment.step, run.last_step)
    within, ahead, step, last = known
    if within is None or ahead is None or step is None or last is None:
        return
    is_near = run.truth.oom_s is not None and step + ahead >= last + 1
    total.brier_within_steps.append((within - is_near) ** 2)


def _score_time(total: Score, forecast: Forecast, life_share: float, left_s: float) -> None:
    if left_s <= 0:
        return
    forecast_s = forecast.oom_in_s
    error = float("inf") if forecast_s is None else abs(forecast_s - left_s) / left_s
    total.errors.setdefault(life_share, []).append(error)
    if forecast.low_s is not None:
        high_s = float("inf") if forecast.high_s is None else forecast.high_s
        total.covered.append(forecast.low_s <= left_s <= high_s)


@dataclass(frozen=True)
class Miss:
    """One thing that a detector got wrong on one run."""

    measure: str
    run: Watched
    detail: str = ""

    @property
    def sentence(self) -> str:
        """What went wrong on which run, for whoever tunes it."""
        return f"{self.run.name} ({self.run.shape.name}): {self.measure}, {self.detail}".removesuffix(", ")


def find_misses(runs: Iterable[Watched], detector: str) -> Iterator[Miss]:
    """Yield each thing a detector got wrong."""
    for run in runs:
        claims = run.claims[detector]
        of_run = score([run], detector)
        wrong = [c for c in claims if run.truth.is_benign and c.kind in FAULTS and not _is_of_fill(run, c)]
        if run.false_alarms:
            times = ", ".join(f"{begun:.0f}-{ended:.0f}" for begun, ended in run.alarms)
            yield Miss("high or critical while nothing grows", run, f"at {times} s")
        for claim in wrong:
            yield Miss(f"false {claim.kind}", run, f"at {claim.opened_s:.0f} s")
        for kind, of_kind in (("leak", of_run.leak), ("host_leak", of_run.host_leak)):
            if of_kind.missed:
                yield Miss(f"{kind} missed", run, _word_growth(run))
            if of_kind.false and not run.truth.is_benign:
                times = ", ".join(f"{c.opened_s:.0f}" for c in claims if c.kind == kind)
                yield Miss(f"{kind} called too often", run, f"at {times} s")
        for lead_s, count in of_run.warnable.items():
            if count > of_run.warned[lead_s]:
                yield Miss(f"no standing warning {lead_s:.0f} s before the error", run, _word_growth(run))
        if score_fragmented([run]) == (0, 1):
            yield Miss("fragmentation not high 60 s before the error", run, f"lived {run.duration_s:.0f} s")


def count_too_short(runs: Iterable[Watched], lead_s: float) -> tuple[int, int]:
    """Return how many errors without a warning at a lead could not have had one in samples, and of how many.

    Samples show growth only over `EVIDENCE_S`; what grew for less than that and the lead is over before.
    """
    found = [
        run
        for run in runs
        if run.shape.kind == "series" and run.truth.precursor_s > lead_s and not _has_warning(run, lead_s)
    ]
    return sum(run.truth.precursor_s < lead_s + EVIDENCE_S for run in found), len(found)


def _has_warning(run: Watched, lead_s: float) -> bool:
    return is_warned(run, run.claims[OURS], lead_s)


def _word_growth(run: Watched) -> str:
    return f"grew for {run.truth.precursor_s:.0f} s" if run.truth.precursor_s else ""


def list_errors(runs: Iterable[Watched], detector: str) -> Iterator[str]:
    """Yield a sentence for each thing a detector got wrong: for whoever tunes it."""
    return (miss.sentence for miss in find_misses(runs, detector))


def _share(part: float, whole: float) -> float | None:
    return part / whole if whole else None
