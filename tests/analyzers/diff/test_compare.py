"""Runs held against each other: by step or by time, with restarts, gaps and what one of them lacks."""

import random
from itertools import chain

import msgspec
import pytest

from vramscope.analyzers.diff import compare_runs
from vramscope.engine.model import AllocatorReading, Finding, RankCoordinates, Sample
from vramscope.engine.units import GIB

from .runs import compare, steady, summarize, train, watch


def jump(rank: int, step: int) -> float:
    """Rank 1 needs 3 GiB more from step 60 on."""
    return 13.0 if rank == 1 and step >= 60 else 10.0


def test_two_runs_that_are_alike_differ_in_nothing() -> None:
    told = compare(train(), train(step_s=1.5, start_s=5.0, node="another"))
    assert (told.parts, told.first, told.aligned_by) == (False, None, "step")
    assert told.verdict == "No difference beyond the noise in steps 1 to 100 of 2 ranks or devices"
    assert [subject.name for subject in told.subjects] == ["rank 0", "rank 1"]
    assert (told.subjects[0].a_step_s, told.subjects[0].b_step_s) == (1.0, 1.5)


def test_the_rank_the_step_and_the_figure_that_part_first_are_told() -> None:
    told = compare(train(), train(jump))
    assert told.verdict == "They diverge at step 60: rank 1's allocated peak is 3.0 GiB (30.0 %) higher in B"
    assert (told.first, told.most) == ("rank 1", "rank 1")
    shown = told.subjects[1].shown
    assert shown is not None
    assert (shown.a_bytes, shown.b_bytes, shown.final_difference_bytes) == (10 * GIB, 13 * GIB, 3 * GIB)
    assert [each.parts_at for each in told.subjects[1].figures] == [60, 60, 60, 60]
    assert told.subjects[0].parting is None


def test_who_differs_most_is_told_where_another_parts_first() -> None:
    def later(rank: int, step: int) -> float:
        return 10.0 + (rank == 0) * (step >= 30) + 5 * (rank == 1) * (step >= 70)

    told = compare(train(later), train())
    assert told.verdict == (
        "They diverge at step 30: rank 0's allocated peak is 1.0 GiB (9.1 %) lower in B · "
        "rank 1 differs most: allocated peak by 5.0 GiB"
    )


def test_a_run_that_was_started_again_is_one_run() -> None:
    resumed = train(jump, steps=chain(range(1, 81), range(50, 101)))
    told = compare(train(), resumed)
    assert told.b.restarts == 1
    assert told.subjects[1].compared == 100
    shown = told.subjects[1].shown
    assert shown is not None
    assert shown.parts_at == 60
    counted_anew = train(jump, steps=chain(range(1, 101), range(1, 4)))
    assert compare(train(jump), counted_anew).parts is False


def test_only_steps_that_both_have_are_compared() -> None:
    told = compare(train(), train(jump, steps=range(40, 70)))
    assert (told.subjects[1].from_position, told.subjects[1].to_position) == (40, 69)
    shown = told.subjects[1].shown
    assert shown is not None
    assert shown.parts_at == 60
    apart = compare(train(), train(steps=range(500, 600)))
    assert (apart.aligned_by, apart.aligned_because) == ("time", "they share no steps")


def test_samples_that_met_other_steps_of_the_same_training_are_compared_by_step() -> None:
    told = compare(train(steps=range(1, 60, 7)), train(steps=range(3, 60, 7), step_s=2.0))
    assert (told.aligned_by, told.aligned_because, told.parts) == ("step", None, False)
    assert told.bin_width == 8


def test_ranks_of_one_run_only_are_named() -> None:
    told = compare(train(ranks=(0, 1, 2)), train(ranks=(0, 2, 7)))
    assert [subject.name for subject in told.subjects] == ["rank 0", "rank 2"]
    assert (told.only_in_a, told.only_in_b) == (("rank 1",), ("rank 7",))


def test_another_rank_on_the_same_device_is_another_one() -> None:
    def rename(sample: Sample) -> Sample:
        rank = msgspec.structs.replace(sample.ranks[0], coordinates=RankCoordinates(5))
        return msgspec.structs.replace(sample, ranks=(rank,))

    told = compare(train(ranks=(0,)), map(rename, train(ranks=(0,))))
    assert (told.subjects, told.only_in_a, told.only_in_b) == ((), ("rank 0",), ("rank 5",))


def test_a_device_is_its_rank_also_before_the_rank_reports() -> None:
    samples = list(train(ranks=(0,)))
    early = [msgspec.structs.replace(sample, ranks=()) for sample in samples[:9]]
    told = compare([*early, *samples[9:]], samples)
    assert ([subject.name for subject in told.subjects], told.only_in_a) == (["rank 0"], ())


def test_readings_that_were_held_say_nothing_of_how_peaks_were_read() -> None:
    def hold(sample: Sample) -> Sample:
        rank = sample.ranks[0]
        held = AllocatorReading(rank.allocator.allocated_bytes) if rank.allocator else None
        rank = msgspec.structs.replace(rank, allocator=held, age_s=9.0, peak_max_bytes=None, steps_within=0)
        return msgspec.structs.replace(sample, ranks=(rank,))

    samples = list(train(ranks=(0,)))
    often = [each for sample in samples for each in (sample, hold(sample), hold(sample))]
    assert compare(often, samples).subjects[0].figures[0].figure == "allocated_peak"


def test_a_cache_that_one_long_row_filled_is_explained_by_the_row() -> None:
    def fill(rank: int, step: int) -> float:
        return 20.0 if step == 30 else 10.0

    def keep(sample: Sample, step: int) -> Sample:
        held = (21 if step >= 30 else 11) * GIB
        rank = sample.ranks[0]
        reading = msgspec.structs.replace(rank.allocator or AllocatorReading(), reserved_bytes=held)
        rank = msgspec.structs.replace(rank, allocator=reading)
        return msgspec.structs.replace(sample, ranks=(rank,))

    b = [keep(sample, step) for step, sample in enumerate(train(fill, ranks=(0,)), 1)]
    told = compare(train(ranks=(0,)), b)
    reserved = told.subjects[0].of("reserved")
    assert reserved is not None
    assert (reserved.parts_at, reserved.final_difference_bytes) == (None, 10 * GIB)


def test_what_the_driver_tells_is_compared_with_a_run_that_tells_all() -> None:
    def used(since_s: float) -> float:
        return 12.0 if since_s < 50 else 20.0

    told = compare(train(ranks=(0,)), watch(used, interval_s=0.5))
    assert (told.aligned_by, told.aligned_because) == ("time", "B has no steps")
    assert [each.figure for each in told.subjects[0].figures] == ["used"]
    shown = told.subjects[0].shown
    assert shown is not None
    assert shown.parts_at == pytest.approx(50, abs=2)


def test_readings_at_another_rate_do_not_make_a_difference() -> None:
    chance = random.Random(7)

    def read(interval_s: float) -> list[Sample]:
        made: list[Sample] = []
        for one in watch(lambda since_s: 10 + 6 * chance.random(), interval_s=interval_s, length_s=400):
            device = one.devices[0]
            memory = msgspec.structs.replace(device.memory, used_min_bytes=None, used_max_bytes=None)
            device = msgspec.structs.replace(device, memory=memory)
            made.append(msgspec.structs.replace(one, devices=(device,)))
        return made

    told = compare(read(0.1), read(1.0))
    assert [each.figure for each in told.subjects[0].figures] == ["used_mean"]
    assert not told.parts


def test_nothing_is_made_of_what_was_not_measured() -> None:
    told = compare(watch(lambda since_s: None, interval_s=1.0), watch(lambda since_s: 3.0, interval_s=1.0))
    assert told.subjects[0].figures == ()
    assert told.verdict.startswith("Nothing can be compared")
    assert compare([], train()).only_in_b == ("rank 0", "rank 1")


def test_one_sample_of_each_can_be_compared() -> None:
    told = compare(train(steps=[5]), train(lambda rank, step: 11.0, steps=[5]))
    assert told.verdict.startswith("They diverge from the start: rank 0's allocated peak is 1.0 GiB")


def test_an_error_of_one_run_is_said_first_and_findings_of_both_are_left_out() -> None:
    def end(sample: Sample) -> Sample:
        ended = msgspec.structs.replace(sample.ranks[0], oom_s=1.0, state="ended")
        return msgspec.structs.replace(sample, ranks=(ended,))

    def finding(kind: str, opened_s: float) -> Finding:
        return Finding(kind, kind, "node", "node-1", "1", "high", f"It is {kind}.", opened_s, opened_s)

    samples = list(train())
    a, b = summarize(samples), summarize([*samples[:80], end(samples[80])])
    a.findings = [finding("leak", samples[9].time_s)]
    b.findings = [finding("leak", samples[5].time_s), finding("pressure", samples[20].time_s)]
    told = compare_runs(a, b, files=("a", "b")).difference
    assert told.found_only_in_a == ()
    assert [(one.kind, one.subject, one.at) for one in told.found_only_in_b] == [
        ("oom_met", "rank 0", 80),
        ("pressure", "rank 1", 21),
    ]
    assert told.verdict.startswith("rank 0 ran out of memory in B only, at step 80 · No difference")


def test_a_long_run_takes_bounded_memory_and_is_compared_in_bins() -> None:
    def late(rank: int, step: int) -> float:
        return steady(rank, step) + 2 * (step >= 15_000)

    a, b = (summarize(train(peak, steps=range(1, 20_001), ranks=(0,))) for peak in (steady, late))
    assert max(len(track.times) for track in a.tracks) <= 2048
    told = compare_runs(a, b, files=("a", "b")).difference
    assert told.bin_width == 16
    shown = told.subjects[0].shown
    assert shown is not None
    assert abs(14_992 - (shown.parts_at or 0)) <= 16


def test_samples_of_no_time_and_steps_at_random_are_survived() -> None:
    samples = list(train())
    odd = [
        msgspec.structs.replace(sample, time_s=time_s)
        for sample, time_s in zip(samples, (float("nan"), float("inf"), 1e300, 5.0, 6.0), strict=False)
    ]
    assert (compare(odd, samples).a.samples, compare(odd, samples).a.duration_s) == (2, 1.0)
    chance = random.Random(3)
    shuffled = train(steps=[chance.randrange(1 << 40) for _ in range(500)], ranks=(0,))
    assert compare(shuffled, train()).a.restarts > 200
