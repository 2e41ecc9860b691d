"""A recording in several files: each can be read alone, and only its own old ones go."""

import os
import shutil
from pathlib import Path

import msgspec
import pytest

from tests.clocks import HandClock
from vramscope.engine.recording import Recording, RecordingIdentity
from vramscope.engine.recording.series import KEEP_LOOK_S, PLACE_LOOK_S, RecordingSeries
from vramscope.engine.recording.sqlite import RecordingStoppedError

from .samples import IDENTITY, START_S, make_assessment, make_finding, make_sample, write

ROTATE_BYTES = 1 << 20
IN_SERIES = msgspec.structs.replace(IDENTITY, series="a")


def record(series: RecordingSeries, first: int, count: int) -> int:
    """Record samples of many devices until `count` more files have begun; return the number of the next."""
    files, tick = series.files + count, first
    while series.files < files:
        series.append(make_sample(tick, 64))
        series.flush()
        tick += 1
    return tick


def test_another_file_begins_at_the_size_and_each_can_be_read_alone(tmp_path: Path) -> None:
    series = RecordingSeries(tmp_path / "run.vscope", IN_SERIES, rotate_bytes=ROTATE_BYTES)
    series.tell("node", [make_finding(1), make_finding(2)], [make_assessment(1)])
    series.tell("node", [make_finding(2, closed_s=START_S)])
    last = record(series, 0, 2)
    series.append(make_sample(last, 64))
    series.close("the test is over")
    paths = [tmp_path / name for name in ("run.vscope", "run.0001.vscope", "run.0002.vscope")]
    assert sorted(tmp_path.iterdir()) == sorted(paths)
    assert "run.vscope is full; recording into run.0001.vscope" in series.notes
    seqs = []
    for number, path in enumerate(paths):
        with Recording(path) as recording:
            assert (recording.identity.series, recording.identity.number) == ("a", number)
            seqs += [sample.seq for sample in recording.samples()]
            told = next(iter(recording.told()))
            assert [it.id for it in recording.findings()] == (["id1"] if number else ["id1", "id2"])
            assert told.assessments == (make_assessment(1),)
            assert not recording.is_unfinished
    assert seqs == list(range(last + 1))


def test_the_newest_file_of_a_series_is_continued(tmp_path: Path) -> None:
    path = tmp_path / "run.vscope"
    series = RecordingSeries(path, IN_SERIES, rotate_bytes=ROTATE_BYTES)
    tick = record(series, 0, 1)
    series.close("stopped")
    path.unlink()  # as --keep does with the oldest
    other = RecordingIdentity("node", START_S, "test", series="b")
    again = RecordingSeries(path, other, rotate_bytes=ROTATE_BYTES)
    assert again.path == tmp_path / "run.0001.vscope"
    assert again.identity.series == "a"
    record(again, tick, 1)
    again.close("stopped")
    with Recording(tmp_path / "run.0002.vscope") as recording:
        assert recording.identity.series == "a"


def test_old_files_of_the_series_go_and_all_others_stay(tmp_path: Path) -> None:
    clock = HandClock()
    path = tmp_path / "run.vscope"
    series = RecordingSeries(path, IN_SERIES, rotate_bytes=ROTATE_BYTES, keep_s=3600.0, clock=clock)
    tick = record(series, 0, 2)
    strangers = [tmp_path / name for name in ("run.0007.vscope", "run.0008.vscope", "run.0009.vscope")]
    write(strangers[0], [make_sample(1)])  # a recording, of no series
    strangers[1].write_text("a note of somebody")
    strangers[2].symlink_to(path)
    (tmp_path / "run.00x1.vscope").write_bytes(path.read_bytes())
    clock.now_s += KEEP_LOOK_S
    series.append(make_sample(tick + 1, time_s=START_S + 3500))
    series.flush()
    assert path.exists(), "it is not old enough"
    clock.now_s += KEEP_LOOK_S
    series.append(make_sample(tick + 2, time_s=START_S + 2 * 3600))
    series.flush()
    series.close("stopped")
    left = {it.name for it in tmp_path.iterdir()}
    assert left == {"run.0002.vscope", "run.00x1.vscope", *(it.name for it in strangers)}
    assert "deleted run.vscope: older than the time to keep" in series.notes


@pytest.mark.parametrize("kind", ["ext4", "nfs4"])
@pytest.mark.parametrize("name", ["removed", "renamed", "replaced"])
def test_a_file_that_is_taken_away_is_noticed_within_a_second_and_the_recording_goes_on(
    name: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vramscope.engine.recording.writer.is_network", lambda _: kind == "nfs4")
    path, other, clock = tmp_path / "run.vscope", tmp_path / "kept.vscope", HandClock()
    series = RecordingSeries(path, IN_SERIES, clock=clock)
    spare = tmp_path / "spare"
    write(spare, [make_sample(100, node="other")])
    series.tell("node", [make_finding(1)])
    for tick in range(5):
        series.append(make_sample(tick))
    series.flush()
    if name == "removed":
        path.unlink()
    else:
        path.rename(other)
    if name == "replaced":
        spare.rename(path)
    clock.now_s += PLACE_LOOK_S
    series.flush()
    told = {"removed": "removed", "renamed": f"renamed to {other}", "replaced": f"renamed to {other}"}[name]
    where = "the file that now has its name" if name == "replaced" else "a new file"
    assert series.moved == f"{path} was {told}; the recording continues in {where}"
    assert series.notes[-1] == series.moved
    for tick in range(5, 8):
        series.append(make_sample(tick))
    clock.now_s += PLACE_LOOK_S
    series.flush()
    series.close("the test is over")
    expected = {path: [5, 6, 7], other: [0, 1, 2, 3, 4]}
    if name == "removed":
        del expected[other]
    if name == "replaced":
        expected[path].insert(0, 100)
    for file, ticks in expected.items():
        with Recording(file) as recording:
            assert [sample.seq for sample in recording.samples()] == ticks
            assert [it.id for it in recording.findings()] == ["id1"]
            # Without a write-ahead log SQLite refuses to end what has been renamed; every sample is in it.
            assert recording.is_unfinished == (file == other and kind == "nfs4")
    assert {it.name for it in tmp_path.glob("run.*") if it.stat().st_size} == {"run.vscope"}


def test_a_file_whose_folder_is_gone_ends_the_recording_in_one_line(tmp_path: Path) -> None:
    folder, clock = tmp_path / "runs", HandClock()
    folder.mkdir()
    series = RecordingSeries(folder / "run.vscope", IN_SERIES, clock=clock)
    series.append(make_sample(1))
    series.flush()
    shutil.rmtree(folder)
    clock.now_s += PLACE_LOOK_S
    with pytest.raises(
        RecordingStoppedError, match="was removed while it was recorded, and a new file cannot be created"
    ):
        series.flush()
    series.close("it failed")
    assert series.size_bytes > 0


def test_a_file_that_is_emptied_ends_the_recording_in_one_line(tmp_path: Path) -> None:
    path, clock = tmp_path / "run.vscope", HandClock()
    series = RecordingSeries(path, IN_SERIES, clock=clock)
    series.append(make_sample(1))
    series.flush()
    os.truncate(path, 0)
    clock.now_s += PLACE_LOOK_S
    with pytest.raises(RecordingStoppedError, match="another program emptied the file"):
        series.flush()
    series.close("it failed")
