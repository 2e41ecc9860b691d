"""Runs as they are compared: samples of ranks that train, and of devices alone."""

from collections.abc import Callable, Iterable, Iterator, Sequence

from vramscope.analyzers.diff import RunDifference, RunSummarizer, RunSummary, compare_runs
from vramscope.engine.model import (
    AllocatorReading,
    DeviceSample,
    MemoryReading,
    RankCoordinates,
    RankSample,
    Sample,
    StepReading,
)
from vramscope.engine.units import GIB

Peak = Callable[[int, int], float]
"""GiB that a rank needs in a step."""


def steady(rank: int, step: int) -> float:
    """Return the same for every rank and step."""
    return 10.0


def train(
    peak: Peak = steady,
    *,
    steps: Iterable[int] = range(1, 101),
    ranks: Sequence[int] = (0, 1),
    step_s: float = 1.0,
    start_s: float = 1_700_000_000.0,
    node: str = "node",
) -> Iterator[Sample]:
    """Yield a sample for each step that has ended, each rank on a device of its own."""
    for seq, step in enumerate(steps):
        time_s = start_s + seq * step_s
        devices = tuple(_device(rank, peak(rank, step) + 2, f"{node}-{rank}") for rank in ranks)
        told = tuple(_rank(rank, step, peak(rank, step), time_s, step_s, node) for rank in ranks)
        yield Sample(node, seq, time_s, step_s, devices, ranks=told)


def watch(
    used: Callable[[float], float | None], *, interval_s: float, length_s: float = 100.0
) -> Iterator[Sample]:
    """Yield samples of one device of which the driver alone tells, by seconds since the start."""
    for seq in range(int(length_s / interval_s)):
        since_s = seq * interval_s
        yield Sample(
            "node", seq, 1_700_000_000.0 + since_s, interval_s, (_device(0, used(since_s), "GPU-a"),)
        )


def compare(a: Iterable[Sample], b: Iterable[Sample]) -> RunDifference:
    """Return what is said of two runs."""
    return compare_runs(*map(summarize, (a, b)), files=("a.vscope", "b.vscope")).difference


def summarize(samples: Iterable[Sample]) -> RunSummary:
    """Return the summary of a run."""
    summarizer = RunSummarizer()
    for sample in samples:
        summarizer.observe(sample)
    return summarizer.finish()


def _device(index: int, used_gib: float | None, uuid: str) -> DeviceSample:
    used = None if used_gib is None else round(used_gib * GIB)
    return DeviceSample(uuid, index, memory=MemoryReading(80 * GIB, used, None, used, used))


def _rank(rank: int, step: int, peak_gib: float, time_s: float, step_s: float, node: str) -> RankSample:
    peak = round(peak_gib * GIB)
    floor = peak - 4 * GIB
    return RankSample(
        pid=100 + rank,
        device_uuid=f"{node}-{rank}",
        coordinates=RankCoordinates(rank),
        allocator=AllocatorReading(floor, peak, peak + GIB),
        step=StepReading(step, time_s, step_s, floor, peak, is_peak_exact=True),
        steps_within=1,
        floor_min_bytes=floor,
        peak_max_bytes=peak,
    )
