"""What a stage of a running pipeline needed at most: by rank, by step, by job."""

import msgspec

from tests.tui.canned import make_sample
from tests.tui.canned_ranks import make_allocator, make_job, make_rank
from vramscope.analyzers.stage_peaks import MAX_JOBS, StagePeaks
from vramscope.engine.model import RankCoordinates, RankSample, Sample
from vramscope.engine.units import GIB


def sampled(*ranks: RankSample, seq: int = 1) -> Sample:
    return msgspec.structs.replace(make_sample((), seq), ranks=ranks)


def test_a_stage_has_the_peak_of_its_fullest_rank_and_keeps_it() -> None:
    peaks = StagePeaks()
    peaks.observe(sampled(*make_job(8)[1]))
    lower = [msgspec.structs.replace(rank, step=None, allocator=None) for rank in make_job(8)[1]]
    peaks.observe(sampled(*lower, seq=2))
    told = peaks.tell()
    stages = told.stages
    assert told.pipeline == 4
    assert [(peak.stage, peak.ranks, peak.tensor_ranks) for peak in stages] == [
        (stage, 2, 2) for stage in range(4)
    ]
    assert stages[0].allocated_bytes == 51 * GIB + GIB // 2
    assert stages[0].reserved_bytes == 51 * GIB + int(6.8 * GIB)
    assert stages[0].whole_allocated_bytes == 102 * GIB, "50.5 GiB on one tensor rank, 51.5 on the other"
    assert not stages[0].is_simulated


def test_the_peak_of_a_step_counts_where_no_sample_saw_it() -> None:
    peaks = StagePeaks()
    peaks.observe(sampled(make_rank(0, allocator=make_allocator(10.0))))
    (stage,) = peaks.tell().stages
    assert stage.allocated_bytes == 50 * GIB


def test_ranks_without_a_pipeline_coordinate_and_figures_tell_nothing() -> None:
    peaks = StagePeaks()
    bare = make_rank(0, coordinates=None)
    peaks.observe(sampled(bare))
    assert peaks.tell().stages == ()
    peaks.observe(sampled(make_rank(2, allocator=None, step=None)))
    (stage,) = peaks.tell().stages
    assert (stage.stage, stage.allocated_bytes, stage.reserved_bytes) == (1, None, None)
    assert peaks.tell().pipeline is None, "seven ranks of eight were not seen"


def test_of_several_jobs_the_larger_one_is_told() -> None:
    peaks = StagePeaks()
    other = make_rank(9, pid=9, job="small", allocator=make_allocator(90.0))
    peaks.observe(sampled(other, *make_job(8)[1]))
    assert len(peaks.tell().stages) == 4


def test_jobs_that_come_and_go_for_days_are_not_all_kept() -> None:
    peaks = StagePeaks()
    for seq in range(20 * MAX_JOBS):
        job = make_rank(0, pid=seq, job=f"job {seq}", allocator=make_allocator(1.0 + seq % 50), step=None)
        peaks.observe(msgspec.structs.replace(sampled(job, seq=seq), time_s=60.0 * seq))
    assert len(peaks._jobs) == len(peaks._last_s) == len(peaks._world_sizes) == MAX_JOBS
    (stage,) = peaks.tell().stages
    assert stage.reserved_bytes == make_allocator(1.0 + (20 * MAX_JOBS - 1) % 50).reserved_bytes


def test_copies_of_a_stage_are_told_apart_or_nothing_is_said_of_a_whole_one() -> None:
    where = [RankCoordinates(rank, 4, tp=rank % 2, pp=0, dp=rank // 2) for rank in range(4)]
    apart = StagePeaks()
    apart.observe(sampled(*(make_rank(each.rank, coordinates=each) for each in where)))
    (stage,) = apart.tell().stages
    assert stage.whole_allocated_bytes == (52 + 53 + 1) * GIB, "the fuller copy"
    alike = StagePeaks()
    untold = [msgspec.structs.replace(each, dp=None) for each in where]
    alike.observe(sampled(*(make_rank(each.rank, coordinates=each) for each in untold)))
    (stage,) = alike.tell().stages
    assert (stage.whole_allocated_bytes, stage.allocated_bytes) == (None, 53 * GIB + GIB // 2)


def test_a_job_that_was_started_rank_by_rank_is_one_and_two_alike_are_two() -> None:
    peaks = StagePeaks()
    peaks.observe(sampled(*(make_rank(index, job=f"run-{index}") for index in range(8))))
    assert (peaks.tell().pipeline, len(peaks.tell().stages)) == (4, 4)
    peaks.observe(sampled(make_rank(0, job="another")))
    assert peaks.tell().pipeline is None, "rank 0 twice: who belongs to whom is not known"


def test_a_job_that_has_ended_gives_way_to_one_that_runs() -> None:
    peaks = StagePeaks()
    peaks.observe(sampled(*make_job(8)[1]))
    small = [make_rank(index, job="next", world=2) for index in (0, 2)]
    peaks.observe(sampled(*small, *make_job(8)[1], seq=2))
    assert len(peaks.tell().stages) == 4
    peaks.observe(sampled(*small, seq=60))
    assert len(peaks.tell().stages) == 2
