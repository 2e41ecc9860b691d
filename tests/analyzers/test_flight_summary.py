"""What a flight record comes to: shares of the device, the trend of the floors, sentences and advice."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.readers.flight_records import GIB, MIB, STACK, STATS, record, write_record
from vramscope.analyzers.flight_summary import FlightSummary, summarize_flight_record
from vramscope.analyzers.flight_summary.trend import measure_trend
from vramscope.engine.model.flight_record import FlightRecord, FlightStep
from vramscope.engine.readers.flight_record import read_flight_record


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
    assert sentences[2] == "47% of the allocated bytes (9.0 GiB) come from block at /job/model.py:40"
    assert sentences[-1].startswith("the allocator had flushed its cache 3 times")


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
    assert "3.5 GiB of the device are not in this process's allocator" in text
    small = {"total_bytes": 4 * GIB}
    assert "not in this process's allocator" not in advice_of(
        tmp_path, device=small, failure={"device_used_bytes": 4 * GIB}, stats=fewer(4 * GIB - 700 * MIB)
    )


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ({"grad_sample_bytes": 5 * GIB}, "per-sample gradients hold 5.0 GiB"),
        ({"optimizer_bytes": 9 * GIB}, "optimizer state holds 9.0 GiB"),
        ({}, "11.0 GiB are neither parameters, gradients nor optimizer state"),
    ],
)
def test_what_the_model_holds_is_named(tmp_path: Path, state: dict[str, int], expected: str) -> None:
    assert expected in advice_of(tmp_path, model={**record()["model"], **state})


def test_blocks_that_wait_for_streams_are_named(tmp_path: Path) -> None:
    stats = {**record()["stats"], "allocated_bytes.all.current": 16 * GIB}
    assert "3.0 GiB are freed and wait for another stream" in advice_of(tmp_path, stats=stats)


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
