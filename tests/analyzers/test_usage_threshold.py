"""Thresholds of the user: each crossing is one finding, said with the first sample above."""

from vramscope.analyzers.usage_threshold import UsageThresholdAnalyzer
from vramscope.engine.model import AllocatorReading, Finding, RankSample

from ..exporters.reports.logs import GIB, make_device, make_sample


def play(
    *used_gib: float, most_gib: float | None = None, rank: RankSample | None = None
) -> list[tuple[int, Finding]]:
    """Return what is found of a device with thresholds of 75 % and 95 %, sample by sample, one a second."""
    analyzer = UsageThresholdAnalyzer(75.0, 95.0)
    found = []
    for time_s, used in enumerate(used_gib):
        most = None if most_gib is None or time_s else round(most_gib * GIB)
        device = make_device(round(used * GIB), used_max=most)
        sample = make_sample(time_s, device, ranks=() if rank is None else (rank,))
        found += [(time_s, it) for it in analyzer.observe(sample)]
    return found


def test_the_first_sample_above_opens_and_the_critical_threshold_makes_it_graver() -> None:
    found = play(58.0, 60.0, 61.0, 77.0)
    assert [(at, it.severity, it.is_open) for at, it in found] == [
        (1, "medium", True),
        (2, "medium", True),
        (3, "critical", True),
    ]
    assert len({it.id for _, it in found}) == 1
    assert found[0][1].title == "GPU 0 at 75.0 % of its memory, above the threshold of 75 %: 60.0 of 80.0 GiB"
    assert "above the critical threshold of 95 %" in found[-1][1].title


def test_a_device_that_swings_around_a_threshold_crosses_it_once() -> None:
    found = play(*([61.0, 59.5, 57.0] * 20))
    assert len({it.id for _, it in found}) == 1
    assert all(it.is_open for _, it in found)


def test_a_crossing_ends_after_a_while_below_and_the_next_is_another() -> None:
    found = play(61.0, *[50.0] * 15, 61.0)
    assert [(at, it.is_open) for at, it in found] == [(0, True), (11, False), (16, True)]
    assert found[0][1].id == found[1][1].id != found[2][1].id


def test_a_spike_between_two_samples_crosses() -> None:
    ((at, finding),) = play(40.0, most_gib=77.0)
    assert (at, finding.severity) == (0, "critical")


def test_the_advice_uses_what_the_probe_tells() -> None:
    reading = AllocatorReading(30 * GIB, 30 * GIB, 74 * GIB, inactive_split_bytes=4 * GIB)
    rank = RankSample(pid=1, device_uuid="GPU-0", allocator=reading)
    ((_, known),) = play(77.0, rank=rank)
    assert "live tensors 30.0 GiB" in known.advice
    assert "can still use 40.0 GiB of its cache" in known.advice
    ((_, unknown),) = play(77.0)
    assert "3.0 GiB is left" in unknown.advice
