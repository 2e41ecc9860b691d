"""Recordings of the simulated device, and measured traces: what is kept, and what may not be found."""

from pathlib import Path

import pytest

from benchmarks.verdict_detectors import Ours
from benchmarks.verdict_runs.measured import TRACES, find_measured_runs
from benchmarks.verdict_runs.recorded import (
    COLUMNS,
    Recording,
    find_recordings,
    read_recording,
    write_recording,
)

RECORDINGS = find_recordings()
LABELS: dict[str, object] = {
    "name": "made",
    "interval_s": 1.0,
    "duration_s": 9.5,
    "leaks": [{"onset_s": 3.0, "end_s": 9.5}],
    "oom_s": 9.5,
    "growth_s": 3.0,
}


def write(path: Path) -> None:
    rows: list[dict[str, int | float | None]] = [dict.fromkeys(COLUMNS) for _ in range(2)]
    rows[0] |= {"time_s": 0.0, "total_bytes": 1024, "used_bytes": 512, "allocated_bytes": 256}
    rows[1] |= rows[0] | {"time_s": 1.0, "step": 4, "step_ended_s": 0.75, "step_floor_bytes": 128}
    rows[1] |= {"steps_within": 4, "floor_min_bytes": 128, "peak_max_bytes": 256, "retries": 1}
    write_recording(path, LABELS, iter(rows))


def test_a_recording_comes_back_as_it_was_and_unmeasured_stays_unmeasured(tmp_path: Path) -> None:
    write(tmp_path / "made.csv.gz")
    recording = read_recording(tmp_path / "made.csv.gz")
    assert (recording.name, recording.truth.precursor_s, recording.truth.oom_s) == ("recorded/made", 6.5, 9.5)
    first, second = recording.samples()
    rank = second.ranks[0]
    assert first.ranks[0].step is None
    assert first.devices[0].memory.free_bytes == 512
    assert rank.step is not None
    assert (rank.step.index, rank.step.floor_bytes, rank.step.peak_bytes) == (4, 128, None)
    assert rank.step.ended_s == recording.epoch_s + 0.75
    assert (rank.steps_within, rank.floor_min_bytes, rank.peak_max_bytes) == (4, 128, 256)
    assert rank.allocator is not None
    assert (rank.allocator.retries, rank.allocator.reserved_bytes) == (1, None)
    assert second.time_s - first.time_s == 1.0


def test_the_same_recording_gives_the_same_bytes(tmp_path: Path) -> None:
    write(tmp_path / "a")
    write(tmp_path / "b")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


@pytest.mark.parametrize("recording", RECORDINGS, ids=lambda recording: recording.title)
def test_what_is_kept_is_small_and_true_to_its_labels(recording: Recording) -> None:
    assert recording.path.stat().st_size <= 200 * 1024
    samples = list(recording.samples())
    times = [sample.time_s - recording.epoch_s for sample in samples]
    assert times == sorted(set(times))
    assert times[-1] <= recording.duration_s <= times[-1] + 10
    assert sum(sample.ranks[0].steps_within for sample in samples) > 100
    assert recording.title.startswith("healthy") == recording.truth.is_benign
    if recording.truth.oom_s is not None:
        assert recording.truth.precursor_s > 60


def test_nothing_is_found_wrong_with_measured_runs() -> None:
    runs = find_measured_runs()
    if not runs:
        pytest.skip(f"measured traces are not at hand: {TRACES}")
    for run in runs:
        ours = Ours()
        for sample in run.samples():
            ours.observe(sample)
        assert [claim for claim in ours.claims if claim.kind in ("leak", "oom", "host_leak")] == []
        assert ours.failure is None
