"""Which format an input is in, by its content, and what is said of one that is none."""

import json
import pickle
from pathlib import Path

import pytest

from vramscope.engine.errors import InputFileError, UsageError
from vramscope.engine.files.series.format import recognize_series
from vramscope.engine.sampling.series_source import open_series

from .series_files import HEADER, LOG_HEADER, play, used, write_lines
from .traces import rank_name, require_measured, trace, write_trace

EXPORT = {
    "metadata": {"export_time": "2025-06-23T10:30:00", "sampling_interval": 1.0, "devices": [0, 1]},
    "snapshots": {
        "0": [
            {
                "timestamp": 1750674600.0 + tick,
                "allocated": tick * 10,
                "free": 1000 - tick * 10,
                "total": 1000,
            }
            for tick in range(5)
        ],
        "1": [{"timestamp": 1750674600.25 + tick, "allocated": 7, "total": 1000} for tick in range(5)],
    },
}


def test_exported_snapshots_play_as_device_memory(tmp_path: Path) -> None:
    path = tmp_path / "snapshots.json"
    path.write_text(json.dumps(EXPORT))
    source, samples = play(path)
    assert (source.format, source.clock, source.interval_s) == ("snapshot export", "wall", 1.0)
    assert [sample.time_s - 1750674600 for sample in samples] == [tick + 0.25 for tick in range(5)]
    assert used(samples, 0) == [0, 10, 20, 30, 40]
    assert used(samples, 1) == [7] * 5
    assert {device.allocator for sample in samples for device in sample.devices} == {None}
    assert samples[1].devices[0].memory.free_bytes == 990
    assert source.read_share == 1.0


def test_a_reading_that_cannot_be_used_is_counted(tmp_path: Path) -> None:
    path = tmp_path / "snapshots.json"
    readings = [{"timestamp": 1.0, "allocated": 5}, {"timestamp": 2.0, "allocated": -5}, {"allocated": 5}, 7]
    path.write_text(json.dumps({"snapshots": {"0": readings}}))
    source, samples = play(path)
    assert used(samples) == [5]
    assert source.notes[1].startswith("3 records were left out, the first at $.snapshots['0'][1]: expected")


def test_memory_traces_play_from_their_folder_and_file(tmp_path: Path) -> None:
    write_trace(tmp_path, rank_name(0, "_wd1_tp1_pp1"), trace([(0.05, 700.0, 600.0), (0.35, 800.0, 500.0)]))
    for path in (tmp_path, tmp_path / rank_name(0, "_wd1_tp1_pp1")):
        source, samples = play(path)
        assert (source.format, source.clock, source.interval_s) == ("memory trace", "trace", 0.1)
        assert [sample.time_s for sample in samples] == [0.1, 0.2, 0.3, 0.4]
        uuid = samples[0].devices[0].uuid
        assert (source.label(uuid), source.real_uuid(uuid)) == ("0", None)
        assert samples[-1].is_last


def test_a_measured_run_plays_whole() -> None:
    source, samples = play(require_measured("real_30b_pp4_tp2"))
    assert {len(sample.devices) for sample in samples} == {8}
    assert samples[-1].time_s - samples[0].time_s > 10
    assert source.notes[0].startswith("recorded values of 8 ranks")


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "the file is empty: its writer may not have finished; expected a recording, a memory snapshot"),
        (b"\n\n# nothing\n", "the file has only comments: its writer may not have finished; expected"),
        (
            pickle.dumps({"segments": []}),
            "the memory snapshot is empty: no segments and no events; expected one that was made while",
        ),
        (b'{"schema": "x", "devices": {}}', "JSON that is not a series"),
        (b"[1, 2]", "JSON that is not a series"),
        (b"hello world\n", "line 1: 'hello world' is not a header of a series; expected a series CSV"),
        (b"1.0,0,500\n2.0,0,600\n", "line 1: '1.0,0,500' is not a header of a series; expected a series CSV"),
        (b'{"snapshots": {"0": 5}}', "expected `array`, got `int`"),
        (b'{"snapshots": {}}', "no usable reading"),
    ],
)
def test_what_is_no_series_is_refused_with_what_is_accepted(
    tmp_path: Path, content: bytes, complaint: str
) -> None:
    path = tmp_path / "input"
    path.write_bytes(content)
    with pytest.raises(InputFileError) as caught:
        open_series(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert complaint in str(caught.value)
    assert "\n" not in str(caught.value)


def test_absent_files_and_folders_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputFileError, match="cannot be read: no such file"):
        open_series(tmp_path / "absent.csv")
    with pytest.raises(InputFileError, match="no memory trace"):
        open_series(tmp_path)


@pytest.mark.parametrize(("capacity_bytes", "interval_s"), [(0, None), (-1, None), (None, 0.0), (None, 1e9)])
def test_settings_that_make_no_sense_are_refused(
    tmp_path: Path, capacity_bytes: int | None, interval_s: float | None
) -> None:
    path = write_lines(tmp_path / "a.csv", HEADER, "1,0,5,,,,")
    with pytest.raises(UsageError, match="is out of range"):
        open_series(path, capacity_bytes=capacity_bytes, interval_s=interval_s)


@pytest.mark.parametrize("first", ["# a comment", "", LOG_HEADER])
def test_a_log_is_known_by_its_columns(tmp_path: Path, first: str) -> None:
    path = write_lines(tmp_path / "a.txt", first, LOG_HEADER, "2025/06/23 10:30:00.000, 0, 1 MiB, 2 MiB")
    assert recognize_series(path) == "nvidia-smi log"
