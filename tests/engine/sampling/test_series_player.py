"""The series player: records of several devices become ticks, and trouble in time is met and told."""

import random
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.engine.files.series_files import HEADER, allocated, play, used, write_lines
from vramscope.engine.errors import InputFileError
from vramscope.engine.sampling.series_player import HEAD_RECORDS, WINDOW_RECORDS
from vramscope.engine.sampling.series_source import open_series
from vramscope.engine.units import GIB

ROW = "time_s,device,allocated_bytes"


def write_rows(folder: Path, rows: Sequence[tuple[float, int, int]], name: str = "a.csv") -> Path:
    return write_lines(folder / name, ROW, *(f"{time_s!r},{device},{size}" for time_s, device, size in rows))


def test_devices_of_about_one_time_are_one_sample(tmp_path: Path) -> None:
    rows = [(tick + device * 0.01, device, tick * 10 + device) for tick in range(4) for device in (2, 0, 1)]
    source, samples = play(write_rows(tmp_path, sorted(rows)))
    assert [sample.time_s for sample in samples] == [0.02, 1.02, 2.02, 3.02]
    assert [[device.index for device in sample.devices] for sample in samples] == [[0, 1, 2]] * 4
    assert [round(device.age_s or 0, 9) for device in samples[1].devices] == [0.02, 0.01, 0.0]
    assert [sample.seq for sample in samples] == [0, 1, 2, 3]
    assert [sample.is_last for sample in samples] == [False, False, False, True]
    assert {(sample.node, sample.interval_s, sample.clock) for sample in samples} == {("a.csv", 1.0, "trace")}
    assert source.interval_s == 1.0


def test_a_device_of_another_time_is_in_a_sample_of_its_own(tmp_path: Path) -> None:
    rows = [(float(tick), 0, 1) for tick in range(10)] + [(9.4, 1, 2), (10.8, 2, 2)]
    _, samples = play(write_rows(tmp_path, rows))
    assert [sample.time_s for sample in samples[-3:]] == [8.0, 9.4, 10.8]
    assert [[device.index for device in sample.devices] for sample in samples[-3:]] == [[0], [0, 1], [2]]


def test_a_device_looks_as_a_live_one_does(tmp_path: Path) -> None:
    _, (sample,) = play(write_lines(tmp_path / "a.csv", HEADER, "5,0,100,200,300,1000,7"))
    (device,) = sample.devices
    assert (device.kind, device.state, device.step, device.age_s) == ("gpu", "ok", 7, 0.0)
    memory, allocator = device.memory, device.allocator
    assert (memory.total_bytes, memory.used_bytes, memory.free_bytes) == (1000, 300, 700)
    assert (memory.used_min_bytes, memory.used_max_bytes) == (300, 300)
    assert allocator is not None
    assert (allocator.allocated_bytes, allocator.allocated_max_bytes, allocator.reserved_bytes) == (
        100,
        100,
        200,
    )
    assert (sample.time_s, sample.is_last, sample.interval_s) == (5.0, True, 1.0)


def test_device_memory_alone_has_no_allocator_and_allocated_alone_no_used(tmp_path: Path) -> None:
    alone = write_lines(tmp_path / "a.csv", "time_s,device,used_bytes", "1,0,300")
    other = write_lines(tmp_path / "b.csv", "time_s,device,allocated_bytes,total_bytes", "1,0,300,900")
    _, (first,) = play(alone)
    _, (second,) = play(other)
    assert first.devices[0].allocator is None
    assert (second.devices[0].memory.used_bytes, second.devices[0].memory.total_bytes) == (None, 900)


def test_a_capacity_may_be_given_where_none_was_recorded(tmp_path: Path) -> None:
    path = write_rows(tmp_path, [(0.0, 0, 1), (1.0, 0, 2)])
    source = open_series(path, capacity_bytes=24 * GIB)
    assert [sample.devices[0].memory.total_bytes for sample in source.samples()] == [24 * GIB] * 2
    assert source.notes == ("capacity 24.0 GiB is given, not recorded",)
    source, _ = play(path)
    assert source.notes == ("capacity was not recorded",)


def test_a_capacity_that_some_devices_lack_is_said_of_these(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a.csv", "time_s,device,used_bytes,total_bytes", "1,0,3,900", "1,1,3,")
    source, _ = play(path)
    assert source.notes == ("capacity of 1 of 2 devices was not recorded",)
    source = open_series(path, capacity_bytes=24 * GIB)
    list(source.samples())
    assert source.notes == ("capacity 24.0 GiB of 1 of 2 devices is given, not recorded",)


def test_of_several_records_at_one_time_the_last_counts_and_the_extremes_stay(tmp_path: Path) -> None:
    rows = ["0,0,10,,50,,", "1,0,90,,95,,", "1,0,20,,60,,", "1,0,40,,5,,", "2,0,30,,30,,"]
    source, samples = play(write_lines(tmp_path / "a.csv", HEADER, *rows))
    assert allocated(samples) == [(0, 10), (1, 40), (2, 30)]
    device = samples[1].devices[0]
    assert device.allocator is not None
    assert device.allocator.allocated_max_bytes == 90
    assert (device.memory.used_min_bytes, device.memory.used_max_bytes) == (5, 95)
    assert "2 records repeat a time of the same device: the last one counts" in source.notes[0]


def test_records_out_of_order_are_put_in_place_as_far_as_the_window_reaches(tmp_path: Path) -> None:
    rows = [(float(tick), 0, tick) for tick in range(2000)]
    rows[700], rows[703] = rows[703], rows[700]
    late = rows.pop(100)
    rows.insert(100 + WINDOW_RECORDS + 50, late)
    source, samples = play(write_rows(tmp_path, rows))
    assert allocated(samples) == [(tick, tick) for tick in range(2000) if tick != 100]
    notes = "; ".join(source.notes)
    assert "3 records were out of order and sorted by time" in notes
    assert f"1 record was too far out of order and left out: from line {102 + WINDOW_RECORDS + 50}" in notes


def test_a_clock_that_starts_again_is_told_with_its_line(tmp_path: Path) -> None:
    rows = [(float(tick % 1000), 0, tick) for tick in range(1500)]
    source, samples = play(write_rows(tmp_path, rows))
    assert len(samples) >= 1000
    assert [sample.time_s for sample in samples] == sorted({sample.time_s for sample in samples})
    assert "too far out of order and left out: from line 1002 on the clock goes back by" in "; ".join(
        source.notes
    )


def test_one_time_from_the_far_future_hides_nothing(tmp_path: Path) -> None:
    rows = [(float(tick), 0, tick) for tick in range(3000)]
    rows[10] = (9e9, 0, 10)
    _, samples = play(write_rows(tmp_path, rows))
    assert [time_s for time_s, _ in allocated(samples)] == [float(t) for t in range(3000) if t != 10] + [9e9]


def test_gaps_are_told_and_left_in_the_times(tmp_path: Path) -> None:
    times = [*range(10), *range(100, 110), *range(115, 120)]
    source, samples = play(write_rows(tmp_path, [(float(time), 0, 1) for time in times]))
    assert [sample.time_s for sample in samples] == times
    assert {sample.interval_s for sample in samples} == {1.0}
    assert source.notes[0] == "2 gaps of more than 3.5 ticks, the longest of 91 s from 9 s on"


def test_a_new_pace_becomes_the_tick(tmp_path: Path) -> None:
    times = [*range(5000), *range(5000, 15000, 10)]
    _, samples = play(write_rows(tmp_path, [(float(time), device, 1) for time in times for device in (0, 1)]))
    assert [sample.time_s for sample in samples] == times
    assert {len(sample.devices) for sample in samples} == {2}
    assert samples[4990].interval_s == 1.0
    assert samples[-1].interval_s == 10.0


def test_a_capacity_that_changes_is_followed_and_told(tmp_path: Path) -> None:
    rows = [f"{tick},0,1,,,{(80 if tick < 5 else 40) * GIB}," for tick in range(10)]
    source, samples = play(write_lines(tmp_path / "a.csv", HEADER, *rows))
    totals = [sample.devices[0].memory.total_bytes for sample in samples]
    assert totals == [80 * GIB] * 5 + [40 * GIB] * 5
    assert source.notes == ("the capacity of device 0 changed from 80.0 GiB to 40.0 GiB at 5 s",)


def test_what_was_not_measured_stays_unmeasured(tmp_path: Path) -> None:
    _, samples = play(write_lines(tmp_path / "a.csv", HEADER, "0,0,1,,,,", "1,0,NaN,,,,", "2,0,3,,,,"))
    assert allocated(samples) == [(0, 1), (1, None), (2, 3)]
    assert used(samples) == [None, None, None]


def test_dates_make_the_wall_clock(tmp_path: Path) -> None:
    source, samples = play(write_rows(tmp_path, [(1750674600.0 + tick, 0, 1) for tick in range(3)]))
    assert source.clock == "wall"
    assert samples[0].time_s == 1750674600.0


def test_an_interval_that_is_given_is_kept(tmp_path: Path) -> None:
    source = open_series(write_rows(tmp_path, [(tick * 0.1, 0, 1) for tick in range(500)]), interval_s=2.0)
    assert {sample.interval_s for sample in source.samples()} == {2.0}


def test_progress_ends_at_the_end_and_a_source_may_be_left_early(tmp_path: Path) -> None:
    path = write_rows(tmp_path, [(float(tick), 0, random.randrange(10**12)) for tick in range(100_000)])
    source = open_series(path)
    assert 0 < source.read_share < 0.5
    samples = source.samples()
    next(samples)
    source.close()
    source, rest = play(path)
    assert len(rest) == 100_000
    assert source.read_share == 1.0


def test_damage_that_cannot_be_read_over_is_an_error(tmp_path: Path) -> None:
    path = write_rows(tmp_path, [(float(tick), 0, 1) for tick in range(HEAD_RECORDS * 20)])
    with path.open("ab") as file:
        file.write(b"x" * 600_000)
    source = open_series(path)
    with pytest.raises(InputFileError, match="longer than 65,536 characters"):
        list(source.samples())


fuzz = settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
times = st.floats(-100, 100, allow_nan=False).map(lambda value: round(value, 2))


@fuzz
@given(st.lists(st.tuples(times, st.integers(0, 3), st.integers(0, 2**40)), min_size=1, max_size=200))
def test_every_time_of_every_device_is_played_once_and_in_order(
    tmp_path: Path, rows: list[tuple[float, int, int]]
) -> None:
    _, samples = play(write_rows(tmp_path, rows))
    ends = [sample.time_s for sample in samples]
    assert ends == sorted(set(ends))
    for index in range(4):
        own = {time_s: size for time_s, device, size in rows if device == index}
        readings = [
            (sample.time_s - (device.age_s or 0.0), device.allocator.allocated_bytes)
            for sample in samples
            for device in sample.devices
            if device.index == index and device.allocator is not None
        ]
        assert [size for _, size in readings] == [own[time_s] for time_s in sorted(own)]
        assert [time_s for time_s, _ in readings] == pytest.approx(sorted(own), abs=1e-6)
