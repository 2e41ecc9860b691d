"""A recording plays as any other input does: recognized by its content, in order."""

from pathlib import Path

import msgspec
import pytest

from vramscope.engine.errors import InputFileError
from vramscope.engine.recording import RecordingWriter
from vramscope.engine.sampling.series_source import open_series

from ..recording.samples import GIB, IDENTITY, make_sample, write


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A recording of ten seconds under a name that says nothing."""
    path = tmp_path / "run"
    write(path, [make_sample(tick) for tick in range(5, 15)])
    return path


def test_a_recording_is_an_input_by_its_content_and_comes_back_as_it_was(path: Path) -> None:
    source = open_series(path)
    assert (source.format, source.node, source.clock, source.interval_s) == ("recording", "node", "wall", 1.0)
    samples = list(source.samples())
    assert [sample.seq for sample in samples] == list(range(10))
    assert [sample.is_last for sample in samples] == [False] * 9 + [True]
    assert [msgspec.structs.replace(it, seq=it.seq + 5, is_last=False) for it in samples] == [
        make_sample(tick) for tick in range(5, 15)
    ]
    assert (source.read_share, source.notes) == (1.0, ())
    assert (source.label("GPU-1"), source.real_uuid("GPU-1")) == ("1", "GPU-1")


def test_a_clock_that_was_set_back_and_other_nodes_are_left_out_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "run.vscope"
    times = [10.0, 11.0, 12.0, 11.5, 12.0, 13.0]
    with RecordingWriter(path, IDENTITY) as writer:
        for tick, time_s in enumerate(times):
            writer.append(make_sample(tick, time_s=time_s))
            writer.append(make_sample(tick, node="other", time_s=time_s))
    source = open_series(path)
    assert [sample.time_s for sample in source.samples()] == [10.0, 11.0, 12.0, 13.0]
    assert source.clock == "trace"
    assert source.notes == (
        "left out: samples of 1 other node than node",
        "left out: 2 samples not newer than the one before",
    )


def test_a_capacity_is_filled_in_where_none_was_recorded(tmp_path: Path) -> None:
    path = tmp_path / "run.vscope"
    sample = make_sample(1, 1)
    memory = msgspec.structs.replace(sample.devices[0].memory, total_bytes=None)
    device = msgspec.structs.replace(sample.devices[0], memory=memory)
    write(path, [msgspec.structs.replace(sample, devices=(device,))])
    source = open_series(path, capacity_bytes=24 * GIB)
    (played,) = source.samples()
    assert played.devices[0].memory.total_bytes == 24 * GIB
    assert source.notes == ("capacity 24.0 GiB is given, not recorded",)


def test_damage_is_told_with_the_samples_that_are_left(path: Path) -> None:
    data = bytearray(path.read_bytes())
    place = data.index(b"\x78\x9c", 4096)  # where the compressed columns begin
    data[place + 40] ^= 255
    path.write_bytes(data)
    with pytest.raises(InputFileError) as refusal:
        open_series(path)
    assert str(refusal.value) == f"{path}: no samples in it; left out: 1 damaged block with 10 samples"


def test_what_cannot_be_played_is_refused_in_one_line(path: Path, tmp_path: Path) -> None:
    write(tmp_path / "empty", [])
    with pytest.raises(InputFileError, match="no samples in it; expected at least one"):
        open_series(tmp_path / "empty")
    (tmp_path / "cut").write_bytes(path.read_bytes()[:300])
    with pytest.raises(InputFileError, match="cut: "):
        open_series(tmp_path / "cut")
