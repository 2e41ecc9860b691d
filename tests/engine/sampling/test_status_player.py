"""A kept stream of `vramscope --json`: read again it gives the samples that were measured."""

import gzip
import json
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from tests.engine.files.series_files import play
from vramscope.engine.errors import InputFileError
from vramscope.engine.model import (
    AllocatorReading,
    DeviceSample,
    HostSample,
    MemoryReading,
    RankSample,
    Sample,
    StepReading,
)
from vramscope.engine.sampling.series_source import open_series
from vramscope.engine.units import GIB
from vramscope.exporters.json_lines import encode_line
from vramscope.exporters.status.document import describe_sample

START_S = 1750674600.0
UUID = "GPU-8f1c2d3e-0000-1111-2222-333344445555"


def make_sample(seq: int, node: str = "node7") -> Sample:
    """Return a sample as a hub publishes it: a device, and a rank whose step has ended."""
    allocator = AllocatorReading(allocated_bytes=seq * 1000, allocated_max_bytes=seq * 2000, retries=0)
    step = StepReading(index=seq + 1, ended_s=START_S + seq, floor_bytes=10 * seq, peak_bytes=99 * seq)
    return Sample(
        node=node,
        seq=seq,
        time_s=START_S + seq * 0.5,
        interval_s=0.5,
        devices=(DeviceSample(UUID, 3, "NVIDIA H100", memory=MemoryReading(80 * GIB, seq, 80 * GIB - seq)),),
        host=HostSample(),
        ranks=(RankSample(pid=4711, device_uuid=UUID, allocator=allocator, step=step),),
    )


def write_stream(path: Path, samples: Sequence[Sample]) -> Path:
    path.write_bytes(b"".join(encode_line(describe_sample(sample)) for sample in samples))
    return path


@pytest.mark.parametrize("is_packed", [False, True])
def test_samples_are_what_they_were(tmp_path: Path, is_packed: bool) -> None:
    made = [make_sample(seq) for seq in range(200)]
    path = write_stream(tmp_path / "run.jsonl", made)
    if is_packed:
        path.write_bytes(gzip.compress(path.read_bytes()))
    source, samples = play(path)
    assert samples[:-1] == made[:-1]
    assert samples[-1] == msgspec.structs.replace(made[-1], is_last=True)
    assert (source.format, source.node, source.clock) == ("status stream", "node7", "wall")
    assert (source.label(UUID), source.real_uuid(UUID), source.interval_s) == ("3", UUID, 0.5)
    assert source.notes == ()
    assert source.read_share == 1.0


def test_modelled_devices_have_no_uuid_of_the_driver(tmp_path: Path) -> None:
    sample = make_sample(0)
    device = msgspec.structs.replace(sample.devices[0], uuid="sim-0", kind="simulated")
    path = write_stream(tmp_path / "run.jsonl", [msgspec.structs.replace(sample, devices=(device,))])
    source, samples = play(path)
    assert samples[0].devices[0].kind == "simulated"
    assert (source.real_uuid("sim-0"), source.label("sim-0")) == (None, "sim3")


def test_a_capacity_may_be_given_where_none_was_told(tmp_path: Path) -> None:
    sample = make_sample(0)
    bare = DeviceSample("GPU-1", 1)
    path = write_stream(
        tmp_path / "run.jsonl", [msgspec.structs.replace(sample, devices=(*sample.devices, bare))]
    )
    source = open_series(path, capacity_bytes=GIB)
    (played,) = source.samples()
    assert [device.memory.total_bytes for device in played.devices] == [80 * GIB, GIB]
    assert source.notes == ("capacity 1.0 GiB is given, not recorded",)


def test_what_cannot_be_used_is_counted(tmp_path: Path) -> None:
    made = [
        make_sample(0),
        make_sample(1),
        make_sample(1),
        make_sample(0),
        make_sample(2, "other"),
        make_sample(3),
    ]
    path = write_stream(tmp_path / "run.jsonl", made)
    lines = path.read_bytes().splitlines()
    lines[4:4] = [b"a warning of a shell", b"", b'{"schema": "vramscope.status/1", "node": 5}']
    path.write_bytes(b"\n".join(lines) + b'\n{"schema": "vramscope.status/1", "ti')
    source, samples = play(path)
    assert [sample.time_s - START_S for sample in samples] == [0, 0.5, 1.5]
    assert [sample.seq for sample in samples] == [0, 1, 2]
    assert source.notes[:2] == (
        "left out: 2 statuses not newer than the one before",
        "left out: 1 statuses of other nodes than node7",
    )
    assert source.notes[2].startswith("2 records were left out, the first at line 5: JSON is malformed")
    assert source.notes[3].startswith("1 record was left out: line 10: the last line has no end")


def test_a_size_that_no_device_has_is_no_figure(tmp_path: Path) -> None:
    device = DeviceSample(UUID, 3, memory=MemoryReading(80 * GIB, -5))
    bad = msgspec.structs.replace(make_sample(1), devices=(device,))
    source, samples = play(write_stream(tmp_path / "run.jsonl", [make_sample(0), bad, make_sample(2)]))
    assert [sample.time_s - START_S for sample in samples] == [0, 1]
    assert source.notes == ("1 record was left out: line 2: -5 bytes, expected memory of a device",)


def test_a_newer_version_is_refused_in_a_line(tmp_path: Path) -> None:
    path = write_stream(tmp_path / "run.jsonl", [make_sample(0)])
    status = json.loads(path.read_bytes())
    path.write_text(json.dumps({**status, "schema": "vramscope.status/99"}) + "\n")
    with pytest.raises(
        InputFileError, match=r"line 1: schema vramscope\.status/99; expected vramscope\.status/1"
    ):
        open_series(path)


def test_a_stream_without_any_status_is_refused_in_a_line(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text('{"schema": "vramscope.status/1"}\n')
    with pytest.raises(InputFileError, match="no usable status; line 1: object missing required"):
        open_series(path)
