"""From the steps of samples to what stands in the assessment of their process."""

import random
from collections.abc import Iterator

from vramscope.analyzers.headroom import HeadroomAnalyzer, StepSize, estimate_headroom
from vramscope.engine.agent.analyzer_host import AnalyzerHost
from vramscope.engine.model import (
    AllocatorReading,
    Assessment,
    DeviceSample,
    Finding,
    MemoryReading,
    RankSample,
    Sample,
    StepReading,
)
from vramscope.engine.units import GIB, MIB

CARD = DeviceSample("GPU-0", 0, memory=MemoryReading(80 * GIB, 30 * GIB, 50 * GIB))
FLOOR = 10 * GIB


def step_of(index: int, batch: int, *, is_exact: bool = True, tokens: int | None = None) -> StepReading:
    """Return a step that takes 1 GiB for each sample."""
    peak = FLOOR + batch * GIB
    return StepReading(index, 1000.0 + index, 1.0, FLOOR, peak, is_exact, tokens, batch)


def sample_of(time_s: float, *steps: StepReading, pid: int = 7) -> Sample:
    allocator = AllocatorReading(FLOOR, FLOOR, 30 * GIB, ooms=0)
    rank = RankSample(pid, 1.0, device_uuid="GPU-0", allocator=allocator, step=None, sized_steps=steps)
    return Sample("n", round(time_s), time_s, 1.0, (CARD,), ranks=(rank,))


def assessment_of(time_s: float, pid: int = 7) -> Assessment:
    return Assessment("n", "GPU-0", "0", time_s, "low", "", pid, 1.0, capacity_bytes=60 * GIB)


def test_the_estimate_stands_in_the_assessment_of_its_process_alone() -> None:
    analyzer = HeadroomAnalyzer()
    for time_s, batch in enumerate((8, 2, 4, 6, 10, 12), 1):
        assert analyzer.observe(sample_of(time_s, step_of(time_s, batch))) == ()
    mine, other = analyzer.annotate([assessment_of(6.0), assessment_of(6.0, pid=8)])
    assert other.headroom == ()
    (estimate,) = mine.headroom
    assert (estimate.unit, estimate.sizes, estimate.per_unit_bytes) == ("samples", 5, GIB)
    assert estimate.largest_seen == 12, "the first step is left out"
    assert estimate.limit_bytes == 60 * GIB
    # Of 30 GiB that were reserved 22 were live at most: so much of 60 GiB is sure, of the 80 all is possible.
    assert estimate.largest_size == 33
    assert estimate.too_large_size is None, "70 samples are farther than four times what was seen"
    assert estimate.sentence.startswith(
        "Estimate: 1,024.00 MiB a sample over 10.0 GiB; 33 samples would fit 60.0"
    )


def test_what_is_told_again_counts_once_and_a_late_worker_learns_from_it() -> None:
    steps = [step_of(index, batch) for index, batch in enumerate((2, 4, 6, 8), 2)]
    analyzer = HeadroomAnalyzer()
    for time_s in (1.0, 11.0, 21.0):
        analyzer.observe(sample_of(time_s, *steps))
    (word,) = analyzer.annotate([assessment_of(21.0)])
    assert word.headroom[0].steps == 4
    late = HeadroomAnalyzer()
    late.observe(sample_of(20.0, step_of(90, 8, is_exact=False)))
    late.observe(sample_of(21.0, *steps))
    assert late.annotate([assessment_of(21.0)])[0].headroom[0].sizes == 4


class _Calm:
    """Assesses once, and has nothing more to say."""

    name = "calm"

    def __init__(self) -> None:
        self._words = [assessment_of(1.0)]

    def observe(self, sample: Sample) -> tuple[Finding, ...]:
        return ()

    def restore(self, findings: object) -> None: ...

    def assess(self) -> list[Assessment]:
        words, self._words = self._words, []
        return words


def test_an_estimate_that_comes_later_is_told_although_nothing_else_has_changed() -> None:
    host = AnalyzerHost([_Calm(), HeadroomAnalyzer()])
    told = []
    for time_s, batch in enumerate((1, 2, 4, 6, 8), 1):
        host.observe(sample_of(time_s, step_of(time_s, batch)))
        told.append([[it.largest_size for it in word.headroom] for word in host.assess()])
    assert told == [[[]], [[None]], [[None]], [[21]], [[25]]]
    assert host.reason is None


def test_a_process_that_is_gone_is_forgotten() -> None:
    analyzer = HeadroomAnalyzer()
    for time_s, batch in enumerate((2, 4, 6, 8), 1):
        analyzer.observe(sample_of(time_s, step_of(time_s + 1, batch)))
    analyzer.observe(sample_of(200.0, pid=8))
    assert analyzer.annotate([assessment_of(200.0)])[0].headroom == ()


def sampled(size: int, count: int, numbers: random.Random) -> Iterator[StepSize]:
    """Yield steps of which one moment was sampled while their memory rose to 4 MiB for each token."""
    for _ in range(count):
        yield StepSize(size, FLOOR + round(numbers.random() * size * 4 * MIB), FLOOR, is_exact=False)


def test_sampled_peaks_tell_once_there_are_many_and_do_not_tell_too_little_memory() -> None:
    numbers = random.Random(5)
    few = [step for size in (1000, 2000, 4000) for step in sampled(size, 20, numbers)]
    refused = estimate_headroom(few, 80 * GIB)
    assert refused.reason == (
        "the peaks of 0 of 3 sizes are known well enough; at least 3 different ones are needed"
    )
    slopes = []
    for seed in range(40):
        numbers = random.Random(seed)
        many = [step for size in (1000, 2000, 4000) for step in sampled(size, 100, numbers)]
        estimate = estimate_headroom(many, 80 * GIB)
        assert estimate.sampled_sizes == 3
        slopes.append(estimate.per_unit_bytes or 0.0)
    assert abs(sum(slopes) / len(slopes) - 4 * MIB) < 0.02 * 4 * MIB


def test_small_sizes_whose_peak_is_that_of_the_optimizer_do_not_bend_the_line() -> None:
    points = [
        StepSize(size, FLOOR + max(8 * GIB, size * 4 * MIB), FLOOR)
        for size in (128, 256, 512, 1024, 2500, 4000, 5000, 6000)
    ]
    estimate = estimate_headroom(points, 80 * GIB)
    assert estimate.per_unit_bytes == 4 * MIB
    assert estimate.largest_seen == 6000
