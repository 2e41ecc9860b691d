"""The host's memory where a GPU shares it: told in time, and silent while page cache and files fill it."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.analyzers.samples import device
from vramscope.analyzers.host_stall import HostStallAnalyzer
from vramscope.engine.model import Finding, HostSample, Sample
from vramscope.engine.units import GIB, MIB

# Available memory in MiB once a second, measured with `HostReader` on a machine with 23.5 GiB, Linux 6.1:
# 5 GiB were written to a file, so that the page cache filled; the file was mapped and read; a process
# allocated 128 MiB a second. Other programs ran meanwhile.
MACHINE_BYTES = 24_683_652 * 1024
RECORDED_FILL = (
    *(
        22409,
        22409,
        22391,
        22357,
        22326,
        22306,
        22310,
        22304,
        22303,
        22251,
        22197,
        22161,
        22485,
        22374,
        22370,
    ),
    *(22346, 22325, 22291, 22616, 22523, 22475, 22439, 22355, 22289, 22213, 22191, 22129),
)
RECORDED_MAP = (
    *(
        22075,
        22020,
        22005,
        21982,
        21794,
        21829,
        21794,
        21755,
        21716,
        21704,
        21697,
        21683,
        21657,
        21963,
        21939,
    ),
    *(21910, 21886),
)
RECORDED_GROWTH = (
    *(
        21725,
        21885,
        21771,
        21640,
        21636,
        21501,
        21364,
        21290,
        21077,
        20911,
        20889,
        20755,
        20714,
        20514,
        20356,
    ),
    *(20202, 20036, 19938, 19904, 19938, 19849, 19849, 19799, 19773, 19970, 19962),
)


def make(
    available: Sequence[float],
    *,
    total_bytes: int = 128 * GIB,
    kind: str = "unified",
    host: HostSample | None = None,
    start_s: float = 100.0,
) -> list[Sample]:
    """Return a sample a second with so many bytes available."""
    card = replace(device(), kind=kind)
    return [
        Sample(
            node="spark",
            seq=number,
            time_s=start_s + number,
            interval_s=1.0,
            devices=(card,),
            host=replace(host or HostSample(), total_bytes=total_bytes, available_bytes=round(bytes_)),
        )
        for number, bytes_ in enumerate(available)
    ]


def find(samples: Iterable[Sample], analyzer: HostStallAnalyzer | None = None) -> list[Finding]:
    analyzer = analyzer or HostStallAnalyzer()
    return [finding for sample in samples for finding in analyzer.observe(sample)]


def fall(rate: float, *, since: float = 100 * GIB, seconds: int = 6000) -> list[float]:
    """Return what is available while it falls steadily down to nothing."""
    return [max(0.0, since - rate * second) for second in range(seconds) if since - rate * (second - 1) > 0]


@pytest.mark.parametrize("recorded", [RECORDED_FILL, RECORDED_MAP, RECORDED_GROWTH])
def test_page_cache_mapped_files_and_slow_growth_far_from_the_end_are_silent(
    recorded: tuple[int, ...],
) -> None:
    assert find(make([it * MIB for it in recorded], total_bytes=MACHINE_BYTES)) == []


RECORDED = json.loads(Path(__file__).with_name("recorded_stalls.json").read_text())
"""Of real processes in a control group with 512 MiB and swap on a disk, by `python -m benchmarks.host_stall`
(Linux 6.18): once a second MiB available, percent of time stalled, MB a second from swap."""
GROUP_BYTES = 512 * MIB


def replay(name: str) -> tuple[list[Finding], float | None]:
    """Return the findings on a recorded run, and when all its processes waited for half of a second."""
    analyzer = HostStallAnalyzer()
    samples = make([mib * MIB for mib, _, _ in RECORDED[name]], total_bytes=GROUP_BYTES)
    found: list[Finding] = []
    for sample, (_, stall, swap_mb) in zip(samples, RECORDED[name], strict=True):
        swap = None if swap_mb is None else swap_mb * 1e6
        host = replace(sample.host or HostSample(), stall_percent=stall, swap_in_bytes_per_s=swap)
        found += analyzer.observe(replace(sample, host=host))
    stalls = (
        it.time_s for it, (_, stall, _) in zip(samples, RECORDED[name], strict=True) if (stall or 0) >= 50
    )
    return found, next(stalls, None)


@pytest.mark.parametrize(("percent", "high_ahead_s"), [("0.2", 80.0), ("0.4", 40.0), ("0.8", 20.0)])
def test_a_real_thrash_is_told_30_s_ahead_and_is_critical_when_it_has_begun(
    percent: str, high_ahead_s: float
) -> None:
    found, stalled_s = replay(f"grows by {percent} % a second")
    assert stalled_s is not None
    assert stalled_s - found[0].opened_s >= 30.0
    assert stalled_s - next(it for it in found if it.severity == "high").updated_s >= high_ahead_s
    assert found[-1].severity == "critical"
    assert len({it.id for it in found}) == 1


@pytest.mark.parametrize("name", ["writes and reads a file", "maps a file", "training steps"])
def test_real_page_cache_mapped_files_and_steps_are_silent_though_processes_wait(name: str) -> None:
    assert replay(name) == ([], None)
    most_stalled = max(stall or 0.0 for _, stall, _ in RECORDED[name])
    assert (most_stalled > 25.0) == (name != "training steps"), "files larger than memory do stall"


def test_a_real_model_that_is_loaded_is_low_at_most() -> None:
    found, stalled_s = replay("loads a model")
    assert stalled_s is None
    assert {it.severity for it in found} == {"low"}


@pytest.mark.parametrize("rate_mib", [20, 50, 100, 250, 500, 1000, 1500])
def test_a_steady_fall_is_told_at_least_30_s_before_nothing_is_left(rate_mib: int) -> None:
    available = fall(rate_mib * MIB)
    found = find(make(available))
    stalls_s = 100.0 + next(number for number, it in enumerate(available) if it < 0.02 * 128 * GIB)
    assert found
    assert stalls_s - found[0].opened_s >= 30.0
    assert found[-1].severity == "high"
    assert "host memory, which is the GPU's too, is used up in" in found[0].title


@pytest.mark.parametrize("rate_mib", [20, 50, 100, 250])
def test_what_is_slow_enough_to_act_on_is_told_as_high_30_s_before(rate_mib: int) -> None:
    available = fall(rate_mib * MIB)
    stalls_s = 100.0 + next(number for number, it in enumerate(available) if it < 0.02 * 128 * GIB)
    high = next(it for it in find(make(available)) if it.severity == "high")
    assert stalls_s - high.updated_s >= 30.0


def test_a_model_that_is_loaded_and_fits_is_never_more_than_low() -> None:
    loading = fall(1.5 * GIB, since=115 * GIB)[:43]
    found = find(make([*loading, *[loading[-1]] * 60]))
    assert {it.severity for it in found} <= {"low"}
    assert not [it for it in found if it.is_open] or not found[-1].is_open


def test_one_allocation_at_once_is_no_trend() -> None:
    assert find(make([*[60 * GIB] * 30, *[25 * GIB] * 60])) == []


@pytest.mark.parametrize("period_s", [3, 7, 13])
def test_ups_and_downs_of_training_steps_are_no_trend(period_s: int) -> None:
    steps = [(20 - 8 * (number % period_s) / period_s) * GIB for number in range(300)]
    assert find(make(steps)) == []


@pytest.mark.parametrize("period_s", [40, 100])
def test_long_ups_and_downs_are_told_once_at_most(period_s: int) -> None:
    steps = [(14 - 12 * (number % period_s) / period_s) * GIB for number in range(600)]
    assert len({it.id for it in find(make(steps))}) <= 1


@pytest.mark.parametrize(
    "host", [HostSample(stall_percent=20.0), HostSample(swap_in_bytes_per_s=200e6, stall_percent=1.0)]
)
def test_a_stall_with_little_left_is_critical(host: HostSample) -> None:
    opened = find(make([5 * GIB] * 30, host=host))[0]
    assert opened.severity == "critical"
    assert "the host stalls" in opened.title
    assert opened.opened_s <= 106.0


def test_a_stall_with_much_left_is_something_else() -> None:
    assert find(make([60 * GIB] * 30, host=HostSample(stall_percent=40.0, swap_in_bytes_per_s=1e9))) == []


def test_a_short_stall_is_none() -> None:
    samples = make([5 * GIB] * 30, host=HostSample(stall_percent=0.0))
    bad = replace(samples[10], host=replace(samples[10].host or HostSample(), stall_percent=20.0))
    assert find([*samples[:10], bad, *samples[11:]]) == []


def test_it_closes_once_it_has_been_calm() -> None:
    falling = fall(200 * MIB, since=18 * GIB)[:50]
    found = find(make([*falling, *[60 * GIB] * 60]))
    assert found[-1].closed_s is not None
    assert {it.id for it in found} == {found[0].id}


def test_other_nodes_are_not_judged() -> None:
    assert find(make(fall(500 * MIB), kind="gpu")) == []


def test_inside_a_control_group_only_a_stall_counts() -> None:
    """There page cache that is in use counts as used, so what is left falls for nothing."""
    assert find(make(fall(500 * MIB)[:-12], host=HostSample(limit="cgroup"))) == []
    assert find(make([5 * GIB] * 30, host=HostSample(limit="cgroup", stall_percent=30.0)))


def test_a_successor_goes_on_with_the_same_finding() -> None:
    samples = make(fall(200 * MIB, since=25 * GIB))
    opened = find(samples[:60])
    successor = HostStallAnalyzer()
    successor.restore(opened[-1:])
    later = find(samples[60:], successor)
    assert {it.id for it in (*opened, *later)} == {opened[0].id}


def test_a_gap_is_no_fall() -> None:
    before = make([100 * GIB] * 20)
    after = make([10 * GIB] * 20, start_s=400.0)
    assert find([*before, *after]) == []
