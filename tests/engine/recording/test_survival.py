"""A recording outlives its writer, a full disk and a second writer; each with a real process."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests import REPOSITORY
from vramscope.engine.errors import OutputFileError
from vramscope.engine.recording import Recording, RecordingWriter

from .samples import IDENTITY, make_sample, write


@contextmanager
def recorder(how: str, path: Path, kind: str = "ext4") -> Iterator["subprocess.Popen[str]"]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.engine.recording.writing", how, str(path), kind],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def read_ticks(path: Path) -> list[int]:
    with Recording(path) as recording:
        samples = list(recording.samples())
        assert recording.damage.sentence is None
    assert samples == [make_sample(sample.seq, len(sample.devices)) for sample in samples]
    return [sample.seq for sample in samples]


@pytest.mark.parametrize("kind", ["ext4", "nfs4"])
def test_kill_9_costs_at_most_the_last_second(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "run.vscope"
    with recorder("killed", path, kind) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(75)]
        process.kill()
        rest = process.stdout.read()
    appended = [
        (int(tick), float(at_s)) for tick, at_s in (it.split() for it in [*lines, *rest.splitlines()])
    ]
    killed_s = appended[-1][1]
    ticks = read_ticks(path)
    assert ticks == list(range(len(ticks)))
    assert {tick for tick, at_s in appended if at_s < killed_s - 1.0} <= set(ticks)
    assert len(ticks) > 20
    with Recording(path) as recording:
        assert recording.is_unfinished
    write(path, [make_sample(9999, 4)])
    assert read_ticks(path) == [*ticks, 9999]
    assert [it.name for it in tmp_path.iterdir() if it.stat().st_size] == ["run.vscope"]


def test_a_writer_killed_within_a_transaction_leaves_the_state_before_it(tmp_path: Path) -> None:
    path = tmp_path / "run.vscope"
    with recorder("spilling", path, "nfs4") as process:
        assert process.stdout is not None
        assert process.stdout.read() == "spilt\n"
    assert (tmp_path / "run.vscope-journal").stat().st_size > 0
    assert read_ticks(path) == list(range(10))


@pytest.mark.parametrize("kind", ["ext4", "nfs4"])
def test_a_full_disk_ends_the_recording_in_one_line_and_leaves_it_readable(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "run.vscope"
    with recorder("starved", path, kind) as process:
        out, _ = process.communicate(timeout=60)
    *lines, last = out.splitlines()
    assert last.startswith(f"! {path}: recording stopped: the disk is full or cannot be written")
    assert "can be read" in last
    committed = [int(line.split()[0]) for line in lines]
    assert len(committed) > 20
    assert read_ticks(path)[: len(committed)] == committed


def test_a_second_writer_is_refused_and_told_who_the_first_is(tmp_path: Path) -> None:
    path = tmp_path / "run.vscope"
    with recorder("killed", path) as process:
        assert process.stdout is not None
        process.stdout.readline()
        with pytest.raises(OutputFileError) as refusal:
            RecordingWriter(path, IDENTITY)
        assert str(refusal.value) == (
            f"{path}: process {process.pid} is recording into it; choose another file with -o"
        )
    with RecordingWriter(path, IDENTITY):
        pass


def test_a_recording_that_was_read_at_its_end_is_whole_without_its_log(tmp_path: Path) -> None:
    path, copy = tmp_path / "run.vscope", tmp_path / "copy.vscope"
    with RecordingWriter(path, IDENTITY) as writer:
        writer.append(make_sample(0, 1))
        writer.flush()
        with Recording(path) as reader:
            writer.append(make_sample(1, 1))
            writer.close("the job has ended")
            copy.write_bytes(path.read_bytes())
            assert [it.seq for it in reader.samples()] == [0, 1]
    assert read_ticks(copy) == [0, 1]
