"""What a flight record comes to: shares of the device, the trend of the floors, sentences and advice."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engine.files.flight_records import GIB, MIB, STACK, STATS, record, write_record
from vramscope.analyzers.snapshot_summary.flight import FlightSummary, measure_trend, summarize_flight_record
from vramscope.engine.files.flight_record import read_flight_record
from vramscope.engine.model.memory_snapshot import FlightRecord, FlightStep


def summarize(tmp_path: Path, **fields: Any) -> FlightSummary:
    return summarize_flight_record(read_flight_record(write_record(tmp_path, record(**fields))))


def test_shares_add_up_to_the_device(tmp_path: Path) -> None:
    shares = summarize(tmp_path).shares
    assert (shares.allocated_bytes, shares.reserved_bytes) == (19 * GIB, 22 * GIB)
    assert (shares.stranded_bytes, shares.cached_bytes, shares.awaiting_bytes) == (2 * GIB, GIB, 0)
    assert (shares.other_bytes, shares.free_bytes) == (24 * GIB - 512 * MIB - 22 * GIB, 512 * MIB)
    parts = (
        shares.allocated_bytes,
        shares.awaiting_bytes,
        shares.stranded_bytes,
        shares.cached_bytes,
        shares.other_bytes,
        shares.free_bytes,
    )
    assert sum(part or 0 for part in parts) == shares.total_bytes


def test_newest_sample_stands_in_for_missing_statistics(tmp_path: Path) -> None:
    shares = summarize(tmp_path, stats=None).shares
    assert (shares.allocated_bytes, shares.reserved_bytes) == (19 * GIB, 22 * GIB)
    assert (shares.awaiting_bytes, shares.stranded_bytes, shares.cached_bytes) == (None, None, None)


def test_stranded_is_taken_from_the_segments_where_all_are_there(tmp_path: Path) -> None:
    assert summarize(tmp_path, truncated=None).shares.stranded_bytes == 8 * MIB


def test_expandable_segments_have_no_statistics_of_what_is_stranded(tmp_path: Path) -> None:
    content = record()
    content["segments"][0]["is_expandable"] = True
    assert summarize(tmp_path, segments=content["segments"]).shares.stranded_bytes is None


def test_record_of_which_nothing_is_known_has_no_figures() -> None:
    summary = summarize_flight_record(FlightRecord())
    assert summary.sentences == ("a request of unknown size failed",)
    assert (summary.advice, summary.stacks, summary.trend) == ((), (), None)


def test_sentences_begin_with_what_failed(tmp_path: Path) -> None:
    sentences = summarize(tmp_path).sentences
    assert sentences[0] == (
        "a request of 2.0 GiB failed on a device of 24.0 GiB; 19.0 GiB were allocated, 22.0 GiB reserved, "
        "512 MiB free on the device"
    )
    assert sentences[1] == "1.5 GiB more free on the device would have been enough"
    assert sentences[2] == "47 % of the allocated bytes (9.0 GiB) come from block at /job/model.py:40"
    assert sentences[-1].startswith("the allocator had flushed its cache 2 times before")


def small_request(tmp_path: Path, size_bytes: int = 4 * MIB, **fields: Any) -> tuple[str, ...]:
    failure = {"size_bytes": size_bytes, "device_free_bytes": 14 * MIB}
    return summarize(tmp_path, **{"failure": failure, "truncated": None, **fields}).sentences


def test_failure_names_the_segment_that_the_request_needed(tmp_path: Path) -> None:
    sentences = small_request(tmp_path, 9 * MIB)
    assert sentences[0] == (
        "a request of 9 MiB failed on a device of 24.0 GiB: it needed a new segment of 20 MiB, and 14 MiB "
        "were free; 19.0 GiB were allocated, 22.0 GiB reserved"
    )
    assert sentences[1] == "no cached block was large enough: the largest free one has 8 MiB"
    assert sentences[2] == "6 MiB more free on the device would have been enough"


def test_block_that_is_large_enough_explains_nothing(tmp_path: Path) -> None:
    assert not any("cached block" in each for each in small_request(tmp_path, 4 * MIB))


def test_free_blocks_are_those_of_the_pool_that_serves_the_request(tmp_path: Path) -> None:
    assert "no cached block was large enough: none was free" in small_request(tmp_path, MIB // 2)


def test_size_that_cuda_tells_is_the_segment_already(tmp_path: Path) -> None:
    sentences = small_request(tmp_path, 2 * MIB, process={"is_simulated": False})
    assert sentences[0].startswith("a request of 2 MiB failed on a device of 24.0 GiB; 19.0 GiB were")


def test_whether_other_settings_would_help_is_left_to_a_snapshot(tmp_path: Path) -> None:
    stranded = advice_of(tmp_path)
    levels = {name: STATS[name] for name in ("allocated_bytes.all.current", "reserved_bytes.all.current")}
    without_counters = advice_of(tmp_path, stats=levels, segments=[], samples=[])
    for said, cause in ((stranded, "are stranded"), (without_counters, "had no tensor, enough")):
        (line,) = [one for one in said.splitlines() if "expandable_segments:True" in one]
        assert cause in line
        assert "expandable_segments:True may free pages" in line
        assert "`vramscope inspect SNAPSHOT`" in line


def test_settings_of_the_allocator_change_what_is_needed(tmp_path: Path) -> None:
    divided = "roundup_power2_divisions:4"
    assert "a new segment of 40 MiB" in small_request(tmp_path, 33 * MIB, allocator_settings=divided)[0]
    expands = small_request(tmp_path, allocator_settings="expandable_segments:True")
    assert "segment of" not in expands[0]
    assert expands[1].startswith("segments expand here, by whole pages")
    assert "a new segment of 34 MiB" in small_request(tmp_path, 33 * MIB, allocator_settings="?")[0]


def test_request_beyond_the_device_is_told_so(tmp_path: Path) -> None:
    sentences = small_request(tmp_path, 64 * GIB)
    assert "no device of 24.0 GiB can serve it, however much is free" in sentences
    assert not any("enough" in each and "more free" in each for each in sentences)


def test_refusal_although_enough_was_free_points_at_a_limit(tmp_path: Path) -> None:
    sentences = summarize(tmp_path, failure={"size_bytes": GIB, "device_free_bytes": 5 * GIB}).sentences
    assert sentences[1].startswith("that much was free on the device: the process may have its own limit")


@pytest.mark.parametrize(
    ("retries", "expected"),
    [(0, None), (1, None), (2, "flushed its cache once before"), (4, "3 times before")],
)
def test_flush_of_the_failing_request_itself_tells_nothing_of_before(
    tmp_path: Path, retries: int, expected: str | None
) -> None:
    text = "\n".join(summarize(tmp_path, stats={**STATS, "num_alloc_retries": retries}).sentences)
    assert ("flushed" in text) is (expected is not None)
    assert expected is None or expected in text


def test_stacks_are_largest_first_whatever_the_file_says(tmp_path: Path) -> None:
    rows = [{"size_bytes": size * GIB, "count": 1, "stack": [["a.py", size, "f"]]} for size in (1, 3, 2)]
    assert [each.size_bytes for each in summarize(tmp_path, live_blocks=rows).stacks] == [
        3 * GIB,
        2 * GIB,
        GIB,
    ]


def test_frames_of_our_own_are_left_out(tmp_path: Path) -> None:
    ours = ["/opt/vramscope/analyzers/allocator_model/allocator.py", 66, "malloc"]
    rows = [{"size_bytes": GIB, "count": 2, "stack": stack} for stack in ([ours, *STACK], STACK)]
    (group,) = summarize(tmp_path, live_blocks=rows).stacks
    assert (group.size_bytes, group.count, len(group.frames)) == (2 * GIB, 4, len(STACK))


def advice_of(tmp_path: Path, **fields: Any) -> str:
    return "\n".join(summarize(tmp_path, **fields).advice)


def test_rising_floor_leads_the_advice(tmp_path: Path) -> None:
    assert advice_of(tmp_path).startswith("every step leaves about 64 MiB behind")
    assert "every step" not in advice_of(tmp_path, steps=None)


def test_fragmentation_is_named_where_it_matters(tmp_path: Path) -> None:
    assert "2.0 GiB are stranded between live blocks, enough for the request" in advice_of(tmp_path)
    little = {**record()["stats"], "inactive_split_bytes.all.current": 100 * MIB}
    assert "stranded" not in advice_of(tmp_path, stats=little)


def fewer(reserved_bytes: int) -> dict[str, int]:
    return {**STATS, "reserved_bytes.all.current": reserved_bytes}


def test_other_holders_of_the_device_are_named(tmp_path: Path) -> None:
    text = advice_of(tmp_path, stats=fewer(20 * GIB))
    assert "3.5 GiB of the device are outside this process's allocator" in text
    small = {"total_bytes": 4 * GIB}
    assert "outside this process's allocator" not in advice_of(
        tmp_path, device=small, failure={"device_used_bytes": 4 * GIB}, stats=fewer(4 * GIB - 700 * MIB)
    )


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ({"grad_sample_bytes": 5 * GIB}, "per-sample gradients take 5.0 GiB"),
        ({"optimizer_bytes": 9 * GIB}, "optimizer state takes 9.0 GiB"),
        ({}, "11.0 GiB are neither parameters, gradients nor optimizer state, so mostly activations"),
    ],
)
def test_what_the_model_holds_is_named(tmp_path: Path, state: dict[str, int], expected: str) -> None:
    steady = [[step, None, 1.0, 8 * GIB, 19 * GIB, True] for step in range(40)]
    assert expected in advice_of(tmp_path, model={**record()["model"], **state}, steps=steady)


LOSS = [["/job/train.py", 17, "train"]]
LEAK_STEPS = [[step, None, 1.0, (8 * GIB) + step * 250 * MIB, 19 * GIB, True] for step in range(1, 41)]


def test_memory_kept_from_step_to_step_is_not_called_activations(tmp_path: Path) -> None:
    rows = [
        {"size_bytes": 2 * GIB, "count": 2, "stack": STACK},
        {"size_bytes": 9 * GIB, "count": 40, "stack": LOSS},
        {"size_bytes": 1 * GIB, "count": 400, "stack": STACK[1:]},
    ]
    summary = summarize(tmp_path, steps=LEAK_STEPS, live_blocks=rows)
    assert summary.kept is not None
    assert summary.kept.size_bytes == 40 * 250 * MIB
    assert summary.advice[0].startswith(
        "every step leaves about 250 MiB behind, and 9.8 GiB are kept from step to step, the most (9.0 GiB) "
        "allocated by train at /job/train.py:17: find what keeps them"
    )
    assert "micro-batch" not in "\n".join(summary.advice)


@pytest.mark.parametrize(("size_gib", "count", "is_named"), [(9, 20, True), (4, 20, False), (9, 2, False)])
def test_line_that_leaks_every_few_steps_is_named_where_it_holds_most(
    tmp_path: Path, size_gib: int, count: int, is_named: bool
) -> None:
    rows = [{"size_bytes": size_gib * GIB, "count": count, "stack": LOSS}]
    kept = summarize(tmp_path, steps=LEAK_STEPS, live_blocks=rows).kept
    assert kept is not None
    assert (kept.holder is not None) is is_named


def test_what_is_neither_kept_nor_of_the_model_is_still_named(tmp_path: Path) -> None:
    slow = [[step, None, 1.0, (8 * GIB) + step * 64 * MIB, 19 * GIB, True] for step in range(1, 41)]
    text = advice_of(tmp_path, steps=slow)
    assert "2.5 GiB are kept from step to step: find" in text
    assert "8.5 GiB are neither parameters, gradients nor optimizer state, nor kept from step to step" in text


def test_growth_alone_tells_what_is_kept_where_the_model_is_unknown(tmp_path: Path) -> None:
    summary = summarize(tmp_path, steps=LEAK_STEPS, model=None)
    assert summary.kept is not None
    assert summary.kept.size_bytes == 30 * 250 * MIB


def test_blocks_that_wait_for_streams_are_named(tmp_path: Path) -> None:
    stats = {**record()["stats"], "allocated_bytes.all.current": 16 * GIB}
    assert "3.0 GiB are freed but wait for another stream" in advice_of(tmp_path, stats=stats)


def steps_of(floors: list[int]) -> list[FlightStep]:
    return [FlightStep(index=index, floor_bytes=floor) for index, floor in enumerate(floors)]


@pytest.mark.parametrize(
    ("floors", "is_rising"),
    [
        ([100] * 40, False),
        (list(range(40)), True),
        (list(range(40, 0, -1)), False),
        ([*range(20), *[20] * 20], False),  # a cache that has filled
        ([0, 50, *[60] * 38], False),  # optimizer state of the first steps
        ([step + (step % 5) * 7 for step in range(60)], True),
        ([0, 0, 10, 10, 5, 5, 20, 20, 30, 30, 40, 40], False),  # something was given back
        ([100 + (step % 7) for step in range(42)], False),
    ],
)
def test_floor_rises_only_steadily(floors: list[int], is_rising: bool) -> None:
    trend = measure_trend(steps_of(floors))
    assert trend is not None
    assert trend.is_rising is is_rising


def test_few_steps_have_no_trend() -> None:
    assert measure_trend(steps_of([1] * 11)) is None


@settings(deadline=None)
@given(st.lists(st.integers(0, 2**40), min_size=12, max_size=80), st.integers(1, 2**30))
def test_constant_growth_is_found_to_the_byte(noise: list[int], growth: int) -> None:
    trend = measure_trend(steps_of([growth * step for step in range(len(noise))]))
    assert trend is not None
    assert trend.is_rising
    assert trend.growth_bytes_per_step == growth


def test_a_growing_batch_is_told_by_its_peaks_and_not_by_its_floor() -> None:
    steps = tuple(
        FlightStep(index=at, floor_bytes=112 * MIB + 512 * (at % 3), peak_bytes=(400 + 20 * at) * MIB)
        for at in range(36)
    )
    sentences = " ".join(summarize_flight_record(FlightRecord(steps=steps)).sentences)
    assert "the floor of a step stayed at 112 MiB over 36 steps" in sentences
    assert "the peak of a step rose from 400 MiB to 1,000 MiB over 36 steps" in sentences
    assert "not steadily" not in sentences
