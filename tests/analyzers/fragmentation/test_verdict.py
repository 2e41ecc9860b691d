"""Findings on fragmentation: told when it costs, never for a cache, on jobs of the allocator model."""

import pytest

from vramscope.analyzers.allocator_model import AllocatorOutOfMemoryError
from vramscope.analyzers.fragmentation import FragmentationAnalyzer
from vramscope.engine.model import (
    AllocatorReading,
    DeviceSample,
    Finding,
    MemoryReading,
    RankSample,
    Sample,
    StepReading,
)
from vramscope.engine.units import GIB, MIB

from ..restart import last_words, restart, watch
from .jobs import Job, vary

LENGTHS = (4000, 12000)


def found_in(job: Job, steps: int) -> list[Finding]:
    analyzer = FragmentationAnalyzer()
    found: list[Finding] = []
    try:
        for sample in job.run(steps):
            found.extend(analyzer.observe(sample))
    except AllocatorOutOfMemoryError:
        pytest.fail("the job was meant to fit")
    return found


@pytest.mark.parametrize("capacity_mib", [4096, 1200, 1000])
def test_a_cache_of_variable_lengths_is_no_finding_with_much_room_or_little(capacity_mib: int) -> None:
    job = Job(capacity_mib * MIB, vary(1, *LENGTHS))
    assert found_in(job, 300) == []
    if capacity_mib == 4096:
        assert job.allocator.reserved_bytes > 1.6 * 620 * MIB, "the job was to keep a large cache"


def test_a_refusal_while_enough_is_stranded_is_critical_at_once_and_closes_once_it_is_over() -> None:
    opened, *_, last = found_in(Job(1300 * MIB, vary(1, *LENGTHS), keep=200), 600)
    assert (opened.kind, opened.severity, opened.device) == ("fragmentation", "critical", "0")
    assert opened.title == "rank 0 was refused memory once while 95 MiB of its own were stranded in segments"
    assert opened.opened_s < 100.0
    assert (last.id, last.is_open) == (opened.id, False)
    assert "expandable_segments" in opened.advice


def test_expandable_segments_leave_nothing_to_tell_in_the_same_job() -> None:
    job = Job(1300 * MIB, vary(1, *LENGTHS), keep=200, settings="expandable_segments:True")
    assert found_in(job, 300) == []


def pinned(
    time_s: float, stranded_gib: float | None, *, peak_gib: float = 65.0, retries: int | None = 0
) -> Sample:
    """Return a sample of a process on a card of 80 GiB whose reserved memory has grown to 78 GiB."""
    stranded = None if stranded_gib is None else round(stranded_gib * GIB)
    allocator = AllocatorReading(
        allocated_bytes=round(peak_gib * GIB),
        reserved_bytes=78 * GIB,
        inactive_split_bytes=stranded,
        retries=retries,
    )
    step = StepReading(int(time_s / 2), time_s)
    rank = RankSample(pid=7, started_s=1.0, device_uuid="GPU-0", allocator=allocator, step=step)
    memory = MemoryReading(total_bytes=80 * GIB, used_bytes=78 * GIB, free_bytes=2 * GIB)
    return Sample("n", int(time_s), time_s, 2.0, (DeviceSample("GPU-0", 0, memory=memory),), ranks=(rank,))


def run_of(*parts: tuple[int, Sample]) -> list[Sample]:
    """Return so many samples of each kind, one every two seconds."""
    run: list[Sample] = []
    for count, kind in parts:
        allocator = kind.ranks[0].allocator
        assert allocator is not None
        stranded = allocator.inactive_split_bytes
        for _ in range(count):
            run.append(
                pinned(
                    2.0 * len(run),
                    None if stranded is None else stranded / GIB,
                    peak_gib=(allocator.allocated_bytes or 0) / GIB,
                    retries=allocator.retries,
                )
            )
    return run


NEAR, FAR, FREE = pinned(0, 12.0), pinned(0, 12.0, peak_gib=50.0), pinned(0, 1.0)


def test_much_stranded_with_little_room_beside_it_opens_late_and_low() -> None:
    (opened,) = watch(FragmentationAnalyzer(), run_of((400, NEAR)))
    assert opened.severity == "low"
    assert (
        opened.title == "process 7 has 12.0 GiB stranded in segments even at its peaks, and only 3.0 GiB left"
    )
    assert 300 <= opened.opened_s <= 400


@pytest.mark.parametrize("kind", [FAR, FREE, pinned(0, None)])
def test_as_much_stranded_with_room_beside_it_or_little_stranded_is_nothing(kind: Sample) -> None:
    assert watch(FragmentationAnalyzer(), run_of((600, kind))) == []


def stepping(time_s: float, stranded_gib: float, *, peak_gib: float = 70.0, retries: int = 0) -> Sample:
    """Return a sample between steps from 40 GiB to a peak, on a card of 80 GiB; 78 GiB are reserved."""
    allocator = AllocatorReading(
        allocated_bytes=40 * GIB,
        reserved_bytes=78 * GIB,
        inactive_split_bytes=round(stranded_gib * GIB),
        retries=retries,
    )
    rank = RankSample(
        pid=7,
        started_s=1.0,
        device_uuid="GPU-0",
        allocator=allocator,
        step=StepReading(int(time_s / 2), time_s),
        steps_within=1,
        floor_min_bytes=40 * GIB,
        peak_max_bytes=round(peak_gib * GIB),
    )
    memory = MemoryReading(total_bytes=80 * GIB, used_bytes=78 * GIB, free_bytes=2 * GIB)
    return Sample("n", int(time_s), time_s, 2.0, (DeviceSample("GPU-0", 0, memory=memory),), ranks=(rank,))


@pytest.mark.parametrize(("most_gib", "severity"), [(14.0, "medium"), (24.0, "high")])
def test_steps_that_run_only_because_changing_holes_fit_them_are_at_risk_before_any_refusal(
    most_gib: float, severity: str
) -> None:
    # Between steps 40 GiB are live and up to 14 or 24 GiB stranded, and a step takes 30: 84 or 94 of 80 GiB.
    run = [stepping(2.0 * n, 6.0 if n % 60 < 30 else most_gib) for n in range(200)]
    opened = watch(FragmentationAnalyzer(), run)[0]
    assert (opened.severity, opened.opened_s <= 180.0) == (severity, True)
    missing_gib = 40 + most_gib + 30 - 80
    assert opened.title.endswith(
        f"stranded in segments, and its largest step needs {missing_gib:.1f} GiB of it"
    )


@pytest.mark.parametrize(("refused_s", "severity"), [(0.0, "medium"), (1500.0, "high")])
def test_changing_holes_are_a_high_risk_at_less_need_within_half_an_hour_of_a_refusal(
    refused_s: float, severity: str
) -> None:
    # The counter rises while nothing is stranded, so that no finding is about the refusal itself; later 85 of
    # 80 GiB are needed.
    run = []
    for n in range(1200):
        stranded_gib = 0.0 if n < 1000 else (6.0 if n % 60 < 30 else 15.0)
        run.append(stepping(2.0 * n, stranded_gib, retries=int(0 < refused_s <= 2.0 * n)))
    found = watch(FragmentationAnalyzer(), run)
    assert {it.severity for it in found if it.is_open} == {severity}


def test_less_than_the_limit_is_enough_where_much_is_stranded_even_at_the_peaks() -> None:
    # Between steps 40 GiB are live and 9 to 12 GiB stranded, and a step takes 26 GiB: 78 of 80 GiB.
    much = [stepping(2.0 * n, 9.0 if n % 60 < 30 else 12.0, peak_gib=66.0) for n in range(200)]
    opened = watch(FragmentationAnalyzer(), much)[0]
    assert opened.severity == "medium"
    assert opened.title.endswith("stranded in segments, and its largest step leaves 2.0 GiB")


def test_holes_that_stay_as_they_are_serve_steps_that_stay_as_they_are() -> None:
    same = [stepping(2.0 * n, 14.0) for n in range(600)]
    assert "high" not in {it.severity for it in watch(FragmentationAnalyzer(), same)}


def test_changing_holes_are_nothing_where_the_largest_step_has_room_without_them() -> None:
    run = [stepping(2.0 * n, 2.0 if n % 60 < 30 else 9.0, peak_gib=65.0) for n in range(600)]
    assert watch(FragmentationAnalyzer(), run) == []


def test_the_risk_is_high_while_holes_that_were_needed_once_may_be_needed_again() -> None:
    # A gathering of results every twelve minutes pins 24 GiB for a minute.
    run = [stepping(2.0 * n, 24.0 if n % 360 >= 330 else 2.0) for n in range(1500)]
    found = watch(FragmentationAnalyzer(), run)
    first = next(it for it in found if it.severity == "high")
    later = [it.severity for it in found if it.updated_s > first.updated_s]
    assert set(later) <= {"high"}


def test_shorter_batches_now_and_then_hide_nothing() -> None:
    short = pinned(0, 1.0, peak_gib=40.0)
    (opened,) = watch(FragmentationAnalyzer(), run_of(*[(30, NEAR), (30, short)] * 8))
    assert opened.title.startswith("process 7 has 12.0 GiB stranded")


def test_it_closes_with_room_and_does_not_ring_twice_in_between() -> None:
    between = pinned(0, 9.0, peak_gib=66.0)
    found = watch(FragmentationAnalyzer(), run_of((300, NEAR), (300, between), (300, NEAR), (300, FAR)))
    assert len({finding.id for finding in found}) == 1
    assert found[-1].closed_s is not None
    assert found[-1].evidence[-1].value == "enough room is left besides the stranded bytes"


def test_refusals_that_come_every_few_minutes_are_one_finding() -> None:
    parts = []
    for count in range(6):
        parts += [(10, pinned(0, 8.0, peak_gib=70.0, retries=count)), (190, pinned(0, 1.0, retries=count))]
    found = watch(FragmentationAnalyzer(), run_of(*parts, (600, pinned(0, 1.0, retries=5))))
    assert len({finding.id for finding in found}) == 1
    assert found[0].severity == "critical"
    last_refusal_s = 5 * 400.0
    assert found[-1].closed_s is not None
    assert found[-1].closed_s >= last_refusal_s + 900


def test_a_count_that_was_reset_is_no_refusal() -> None:
    run = run_of((100, pinned(0, 12.0, peak_gib=60.0, retries=9)), (100, pinned(0, 12.0, peak_gib=60.0)))
    assert watch(FragmentationAnalyzer(), run) == []


def test_a_process_that_ends_closes_its_finding() -> None:
    run = run_of((300, NEAR))
    device = run[0].devices
    empty = [Sample("n", 1000 + n, 600.0 + 2 * n, 2.0, device) for n in range(10)]
    found = watch(FragmentationAnalyzer(), [*run, *empty])
    assert found[-1].evidence[-1].value == "the process has ended"


def test_a_gap_starts_the_window_anew() -> None:
    run = run_of((600, NEAR))
    with_gap = [sample for sample in run if not 200 <= sample.time_s < 230]
    (opened,) = watch(FragmentationAnalyzer(), with_gap)
    assert opened.opened_s >= 230 + 300


@pytest.mark.parametrize("at", [1, 100, 200, 300, 450, 700, 899])
def test_a_restarted_worker_goes_on_with_the_same_finding(at: int) -> None:
    run = run_of((400, NEAR), (500, FAR))
    expected = last_words(watch(FragmentationAnalyzer(), run))
    assert last_words(restart(FragmentationAnalyzer, run, at)) == expected


def _refused_twice(later_peak_gib: float) -> list[str]:
    """Return the severities after a second refusal, which comes an hour after a first one went well."""
    first = (30, pinned(0, 9.0, peak_gib=68.0)), (30, pinned(0, 9.0, peak_gib=68.0, retries=1))
    calm = (1800, pinned(0, 1.0, retries=1))
    again = (
        (60, pinned(0, 9.0, peak_gib=later_peak_gib, retries=1)),
        (60, pinned(0, 9.0, peak_gib=later_peak_gib, retries=2)),
    )
    found = watch(FragmentationAnalyzer(), run_of(*first, calm, *again))
    assert "critical" in {it.severity for it in found if it.updated_s < 200.0}
    return [it.severity for it in found if it.updated_s > 3800.0]


def test_a_refusal_is_less_severe_where_as_much_was_needed_before_and_served() -> None:
    assert set(_refused_twice(68.0)) == {"medium"}


def test_a_refusal_is_critical_again_where_more_is_needed_than_ever_before() -> None:
    assert "critical" in _refused_twice(71.0)
