"""What is scored: anything that makes claims and forecasts of samples; ours is the host of all analyzers."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from vramscope.engine.agent.analyzer_host import AnalyzerHost
from vramscope.engine.model import Analyzer, Assessment, Sample
from vramscope.engine.plugins import make_analyzers

HORIZON_S = 600.0
"""Where our analyzers name none."""
OURS = "vramscope"
SEVERE = ("high", "critical")
FAULTS = ("leak", "host_leak", "oom", "fragmentation", "divergence", "idle_held")
"""Kinds that claim a fault; the others (pressure, retries, an error that was met, capacity) state facts."""


@dataclass
class Claim:
    """One finding of a detector; times in the samples' own clock."""

    id: str
    kind: str
    opened_s: float
    closed_s: float | None = None
    severity: str = ""


class Forecast(NamedTuple):
    """What a detector forecasts at one moment; times from that moment on."""

    probability: float | None
    """Of an error within the horizon; None where it says that it does not know."""
    horizon_s: float
    oom_in_s: float | None = None
    low_s: float | None = None
    high_s: float | None = None
    """Upper end of the 80 % interval; with a lower end alone it is open."""
    within_steps: float | None = None
    steps_ahead: int | None = None
    level: str | None = None
    """Level of risk; None for detectors that have none."""


class Ours:
    """All analyzers of the entry points in one host."""

    name = OURS

    def __init__(self) -> None:
        self.claims: list[Claim] = []
        self._host = AnalyzerHost(gather_analyzers())
        self._by_id: dict[str, Claim] = {}
        self._newest: Assessment | None = None
        self._severe: set[str] = set()
        self.alarms: list[tuple[float, float | None]] = []
        """When the risk, or an open finding that claims a fault, was high or critical: from and to."""

    @property
    def failure(self) -> str | None:
        """Why an analyzer was set aside, where one was."""
        return self._host.reason

    def observe(self, sample: Sample) -> None:
        """Take one sample."""
        for finding in self._host.observe(sample):
            claim = self._by_id.get(finding.id)
            if claim is None:
                claim = self._by_id[finding.id] = Claim(finding.id, finding.kind, finding.opened_s)
                self.claims.append(claim)
            claim.closed_s, claim.severity = finding.closed_s, finding.severity
            if finding.is_open and finding.severity in SEVERE and finding.kind in FAULTS:
                self._severe.add(finding.id)
            else:
                self._severe.discard(finding.id)
        for assessment in self._host.assess():
            if self._newest is None or assessment.time_s >= self._newest.time_s:
                self._newest = assessment
        is_severe = bool(self._severe) or (self._newest is not None and self._newest.level in SEVERE)
        is_open = bool(self.alarms) and self.alarms[-1][1] is None
        if is_severe and not is_open:
            self.alarms.append((sample.time_s, None))
        elif is_open and not is_severe:
            self.alarms[-1] = (self.alarms[-1][0], sample.time_s)

    def forecast(self, time_s: float) -> Forecast:
        """Return the newest assessment as a forecast from some moment on."""
        newest = self._newest
        if newest is None:
            return Forecast(None, HORIZON_S)
        age_s = time_s - newest.time_s
        times = (newest.oom_in_s, newest.oom_in_low_s, newest.oom_in_high_s)
        left = [None if at is None else max(at - age_s, 0.0) for at in times]
        return Forecast(
            newest.probability,
            newest.horizon_s or HORIZON_S,
            left[0],
            left[1],
            left[2],
            newest.probability_within_steps,
            newest.steps_ahead,
            newest.level,
        )


def gather_analyzers() -> Sequence[Analyzer]:
    """Return a new analyzer of every entry point.

    Raises:
        RuntimeError: One could not be made; a score without it would be wrong.
    """
    plugins = make_analyzers()
    if plugins.notes:
        raise RuntimeError(" ".join(plugins.notes))
    return plugins.made
