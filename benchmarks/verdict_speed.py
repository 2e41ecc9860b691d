"""How many samples a second all analyzers together take on one core, and what each of them costs."""

import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass

from vramscope.engine.agent.analyzer_host import AnalyzerHost
from vramscope.engine.model import Analyzer, Sample

from .verdict_detectors import gather_analyzers
from .verdict_runs import make_run
from .verdict_runs.tuning import TUNING

SAMPLES_OF_A_RUN = 5000
FAMILIES = ("uniform_lengths", "kept_losses", "eval_staircase", "flat")


@dataclass(frozen=True)
class Speed:
    """Samples in a second of CPU time; all made before the clock starts."""

    samples: int
    samples_per_s: float
    live_per_s: float
    """Of live ranks alone."""
    series_per_s: float
    """Of series alone."""
    us_by_analyzer: dict[str, float]
    """Microseconds that each analyzer alone takes for one sample."""


def measure_speed() -> Speed:
    """Return the speed on samples of live ranks and of series; assessments are asked for too."""
    live, series = _make_samples("live"), _make_samples("series")
    both_s = [_time(gather_analyzers(), samples) for samples in (live, series)]
    count = len(live[0]) * len(live) + len(series[0]) * len(series)
    by_analyzer = {}
    for at, analyzer in enumerate(gather_analyzers()):
        seconds = sum(_time([gather_analyzers()[at]], samples) for samples in (live, series))
        by_analyzer[analyzer.name] = round(1e6 * seconds / count, 2)
    counts = [sum(map(len, samples)) for samples in (live, series)]
    return Speed(
        sum(counts), sum(counts) / sum(both_s), counts[0] / both_s[0], counts[1] / both_s[1], by_analyzer
    )


def _make_samples(kind: str) -> list[list[Sample]]:
    """Return the first samples of one run of each family."""
    chosen = []
    for family in TUNING:
        if family.name in FAMILIES:
            seed = next(at for at, shape in enumerate(family.shapes) if shape.kind == kind)
            chosen.append(list(itertools.islice(make_run(family, seed).samples(), SAMPLES_OF_A_RUN)))
    return chosen


def _time(analyzers: Sequence[Analyzer], runs: list[list[Sample]]) -> float:
    """Return the CPU seconds that analyzers take for some runs, one after another."""
    host = AnalyzerHost(analyzers)
    start = time.process_time()
    for run in runs:
        for sample in run:
            host.observe(sample)
            host.assess()
    return time.process_time() - start
