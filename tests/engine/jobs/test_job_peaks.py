"""The peaks that processes of a job leave for their `vramscope run`."""

import json
from pathlib import Path

import pytest

from vramscope.engine.errors import RuntimeFolderError
from vramscope.engine.jobs.job_peaks import read_peaks, summary_folder
from vramscope.engine.model.outside import BACKWARD_FILTER, FORWARD, Convolution, GroupUse, OutsideUse
from vramscope.engine.probe.backends import Reading
from vramscope.engine.probe.peak_file import PeakFile
from vramscope.engine.units import GIB, MIB

HELLO = {"pid": 7, "is_simulated": False, "device": {"index": 1, "uuid": "GPU-1", "total_bytes": 80 * GIB}}


def test_the_highest_of_all_readings_is_kept_though_the_program_resets_its_peak(tmp_path: Path) -> None:
    peaks = PeakFile(str(tmp_path))
    peaks.note(Reading(allocated_bytes=2 * GIB, reserved_bytes=4 * GIB, peak_bytes=3 * GIB))
    peaks.note(Reading(allocated_bytes=1 * GIB, reserved_bytes=1 * GIB, peak_bytes=1 * GIB, ooms=1))
    assert peaks.is_due
    peaks.write(HELLO)
    assert not peaks.is_due
    peaks.note_statistics({"allocated_bytes.all.peak": MIB, "reserved_bytes.all.peak": 5 * GIB})
    assert peaks.is_due
    peaks.write(HELLO)
    (found,) = read_peaks(tmp_path)
    assert (found.pid, found.allocated_bytes, found.reserved_bytes, found.ooms) == (7, 3 * GIB, 5 * GIB, 1)
    assert found.device is not None
    assert found.device.total_bytes == 80 * GIB


def test_without_a_folder_nothing_is_written_and_a_folder_that_is_gone_harms_nothing(tmp_path: Path) -> None:
    for peaks in (PeakFile(None), PeakFile(str(tmp_path / "gone"))):
        peaks.note(Reading(allocated_bytes=GIB))
        peaks.write(HELLO)
        assert not peaks.is_due
    assert list(tmp_path.iterdir()) == []


def test_broken_files_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "1.json").write_text("{")
    (tmp_path / "2.json").write_text(json.dumps({"pid": "x"}))
    (tmp_path / "3.json").write_text(" " * 100_000)
    (tmp_path / "4.json.new").write_text("half")
    (tmp_path / "5.json").write_text(json.dumps({"pid": 5, "allocated_bytes": 1, "reserved_bytes": 2}))
    assert [it.pid for it in read_peaks(tmp_path)] == [5]


def test_the_folder_goes_at_the_end_and_those_of_killed_starters_with_the_next(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir(mode=0o700)
    left = folder / "summary-4194304999-abc"
    left.mkdir()
    with summary_folder(folder) as summary:
        assert list(folder.iterdir()) == [summary]
        (summary / "7.json").write_text("{}")
    assert list(folder.iterdir()) == []
    folder.chmod(0o755)
    with pytest.raises(RuntimeFolderError, match="chmod 700"), summary_folder(folder):
        pass


def test_what_takes_more_of_a_card_than_tensors_is_kept_for_a_simulated_job(tmp_path: Path) -> None:
    peaks = PeakFile(str(tmp_path))
    peaks.note(Reading(allocated_bytes=GIB, reserved_bytes=GIB))
    group = {"ranks": 2, "is_collective": True, "peers": 0}
    sizes = [1, 2, 8, 8], [4, 2, 3, 3], [1, 4, 8, 8]
    convolution = [*sizes, 1, False, "float16", True, False, True]
    peaks.write(HELLO, {"convolutions": [[convolution, 5]], "groups": [group], "has_graphs": True})
    (found,) = read_peaks(tmp_path)
    known = GroupUse(ranks=2, is_collective=True, peers=0)
    noted = Convolution(
        input_shape=(1, 2, 8, 8),
        weight_shape=(4, 2, 3, 3),
        output_shape=(1, 4, 8, 8),
        groups=1,
        is_transposed=False,
        dtype="float16",
        is_channels_last=True,
        has_benchmark=False,
        allows_tf32=True,
    )
    assert found.uses == OutsideUse(
        convolutions=((noted, FORWARD | BACKWARD_FILTER),), groups=(known,), has_graphs=True
    )
