"""One run before all detectors: what each claimed, and what it forecast at the same moments."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from vramscope.engine.model import Sample

from .verdict_baselines import RULES, Baseline, Watch
from .verdict_detectors import OURS, Claim, Forecast, Ours
from .verdict_runs import Shape, Truth

MOMENTS = 40
"""Moments of every run at which all are asked for a forecast."""
LIFE_SHARES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
"""And of the time from the onset of growth to the error."""


class Labelled(Protocol):
    """A run with its labels: made up, recorded or measured."""

    @property
    def family(self) -> str:
        """What it is of."""

    @property
    def name(self) -> str:
        """What it is called."""

    @property
    def shape(self) -> Shape:
        """How it is seen."""

    @property
    def truth(self) -> Truth:
        """What is true of it."""

    @property
    def duration_s(self) -> float:
        """How long it lasts."""

    @property
    def epoch_s(self) -> float:
        """What the clock of its samples says at its start."""

    def samples(self) -> Iterator[Sample]:
        """Yield its samples."""


@dataclass(frozen=True)
class Moment:
    """What was forecast at one moment, in seconds from the start of the run."""

    time_s: float
    step: int | None
    life_share: float | None
    """Of the growth that led to an error; None for a moment of the even spacing."""
    forecasts: dict[str, Forecast]


@dataclass(frozen=True)
class Watched:
    """What all detectors made of one run; times of claims from its start."""

    family: str
    name: str
    shape: Shape
    truth: Truth
    duration_s: float
    sample_count: int
    device_count: int
    last_step: int | None
    claims: dict[str, list[Claim]]
    moments: list[Moment]
    failure: str | None = None
    """Why one of our analyzers was set aside."""
    alarms: tuple[tuple[float, float], ...] = ()
    """When we said that the risk is high or critical, from and to."""

    @property
    def false_alarms(self) -> int:
        """Alarms that began, or still stood, while nothing grew."""
        quiet = self.find_quiet()
        return sum(any(begun < end and ended > start for start, end in quiet) for begun, ended in self.alarms)

    @property
    def quiet_hours(self) -> float:
        """Device-hours in which nothing grew."""
        return sum(end - start for start, end in self.find_quiet()) * self.device_count / 3600

    def find_quiet(self) -> list[tuple[float, float]]:
        """Return the stretches in which nothing grows."""
        return self.truth.find_quiet(self.duration_s, self.shape.interval_s)

    @property
    def device_hours(self) -> float:
        """Hours of the run, times its devices."""
        return self.duration_s * self.device_count / 3600


def watch(run: Labelled, *, with_others: bool = True) -> Watched:
    """Feed a run to our analyzers, and to every baseline unless only ours are asked for."""
    ours, windows = Ours(), Watch()
    baselines = [Baseline(name) for name in RULES] if with_others else []
    due = _plan_moments(run)
    moments: list[Moment] = []
    count, devices, step = 0, 1, None
    for sample in run.samples():
        count += 1
        ours.observe(sample)
        window = windows.observe(sample) if baselines else None
        if window is not None:
            for baseline in baselines:
                baseline.judge(window)
        step = _read_step(sample, step)
        while due and sample.time_s >= due[-1][0]:
            moments.append(_ask(due.pop()[1], sample.time_s, run.epoch_s, step, ours, baselines))
        devices = max(devices, len(sample.devices))
    claims = {OURS: ours.claims, **{baseline.name: baseline.claims for baseline in baselines}}
    return Watched(
        run.family,
        run.name,
        run.shape,
        run.truth,
        run.duration_s,
        count,
        devices,
        step,
        {name: [_shift(claim, run.epoch_s) for claim in of_one] for name, of_one in claims.items()},
        moments,
        ours.failure,
        tuple(
            (begun - run.epoch_s, run.duration_s if ended is None else ended - run.epoch_s)
            for begun, ended in ours.alarms
        ),
    )


def _plan_moments(run: Labelled) -> list[tuple[float, float | None]]:
    """Return when to ask, latest first, in the samples' clock, with the share of the life where it is one."""
    even: list[tuple[float, float | None]] = [
        (run.epoch_s + run.duration_s * (at + 0.5) / MOMENTS, None) for at in range(MOMENTS)
    ]
    truth = run.truth
    if truth.growth_s is not None and truth.precursor_s > 0:
        start_s = run.epoch_s + truth.growth_s
        even += [(start_s + share * truth.precursor_s, share) for share in LIFE_SHARES]
    return sorted(even, key=lambda moment: -moment[0])


def _ask(
    life_share: float | None,
    time_s: float,
    epoch_s: float,
    step: int | None,
    ours: Ours,
    baselines: list[Baseline],
) -> Moment:
    """Ask all for the same horizon: that of our assessment."""
    first = ours.forecast(time_s)
    forecasts = {OURS: first}
    forecasts |= {it.name: it.forecast(time_s, first.horizon_s) for it in baselines}
    return Moment(time_s - epoch_s, step, life_share, forecasts)


def _read_step(sample: Sample, before: int | None) -> int | None:
    if sample.ranks:
        step = sample.ranks[0].step
        return before if step is None else step.index
    return sample.devices[0].step if sample.devices else before


def _shift(claim: Claim, epoch_s: float) -> Claim:
    closed_s = None if claim.closed_s is None else claim.closed_s - epoch_s
    return Claim(claim.id, claim.kind, claim.opened_s - epoch_s, closed_s, claim.severity)
