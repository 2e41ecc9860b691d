"""A recording in the formats of others: nothing is lost on the way, nothing unmeasured becomes a figure."""

import csv
import io
import math
from collections.abc import Iterable
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from vramscope.cli.verbs.export import ExportFormat, export_recording
from vramscope.engine.files.series.open import COLUMNS
from vramscope.engine.model import (
    AllocatorReading,
    DeviceSample,
    MemoryReading,
    NodeStatus,
    RankSample,
    Sample,
    StepReading,
)
from vramscope.engine.recording import RecordingIdentity, RecordingWriter
from vramscope.engine.sampling.series_source import open_series
from vramscope.exporters.recording.figures import FigureRecorder
from vramscope.exporters.recording.openmetrics import FAMILIES, write_metrics
from vramscope.exporters.recording.rows import DeviceRow, DeviceRowReader, write_csv

from ...components import missing
from ...engine.recording.samples import START_S, make_finding, make_sample, write

_SIZES = st.none() | st.integers(0, (1 << 50) - 1)
_UUIDS = (
    "GPU-11111111-2222-3333-4444-555555555555",
    "MIG-aaaaaaaa-bbbb",
    "cpu",
    "sim-1",
    'name-a,"b"',
    "x y",
)
_NUMBERS = ("index-0", "index-1", "index-7")


@st.composite
def _samples(draw: st.DrawFn) -> list[Sample]:
    """Samples of a few devices that come and go, read a little before each sample was made."""
    uuids = draw(st.sampled_from([_UUIDS, _NUMBERS]))
    start_s = draw(st.sampled_from([0.0, -3.0, START_S]))
    samples, time_ms = [], 0
    for seq in range(draw(st.integers(1, 8))):
        time_ms += draw(st.integers(1, 2500))
        present = draw(st.lists(st.sampled_from(uuids), unique=True, max_size=4))
        devices = tuple(draw(_device(uuid, uuids.index(uuid))) for uuid in sorted(present, key=uuids.index))
        samples.append(Sample("node", seq, round(start_s + time_ms / 1000, 6), 1.0, devices))
    return samples


@st.composite
def _device(draw: st.DrawFn, uuid: str, index: int) -> DeviceSample:
    return DeviceSample(
        uuid,
        index,
        state=draw(st.sampled_from(["ok", "ok", "ok", "stale"])),
        age_s=draw(st.none() | st.integers(0, 900).map(lambda it: it / 1000)),
        memory=MemoryReading(draw(_SIZES), draw(_SIZES), used_max_bytes=draw(_SIZES)),
        allocator=draw(
            st.none()
            | st.builds(
                AllocatorReading, allocated_bytes=_SIZES, allocated_max_bytes=_SIZES, reserved_bytes=_SIZES
            )
        ),
        step=draw(st.none() | st.integers(0, 1 << 40)),
    )


def _export(path: Path, kind: ExportFormat = "csv") -> Path:
    output = path.with_suffix(f".{kind}")
    export_recording(path, kind, output, start=None, end=None)
    return output


@given(samples=_samples().filter(lambda samples: any(it.devices for it in samples)))
def test_a_series_that_is_written_and_read_is_written_the_same(
    samples: list[Sample], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / "series.csv"
    path.write_text(_write_csv(samples), encoding="utf-8", newline="")
    source = open_series(path)
    # A device that was read earlier than those of the sample before comes after them, and is put in place.
    assert sorted(_write_csv(source.samples()).splitlines()) == sorted(path.read_text("utf-8").splitlines())
    assert not any("left out" in note for note in source.notes)


@given(_samples())
def test_a_row_says_what_a_device_said_and_nothing_more(samples: list[Sample]) -> None:
    rows = list(csv.DictReader(io.StringIO(_write_csv(samples))))
    said = [_tell(device) for sample in samples for device in sample.devices]
    assert {_values(row) for row in rows} <= set(said)
    first = {device.uuid: _tell(device) for sample in samples[::-1] for device in sample.devices}
    assert set(first.values()) <= {_values(row) for row in rows}


def _write_csv(samples: Iterable[Sample]) -> str:
    stream = io.StringIO(newline="")
    write_csv(DeviceRowReader(has_nodes=False).rows(samples), stream)
    return stream.getvalue()


def _tell(device: DeviceSample) -> tuple[str, ...]:
    """Return what a row must say of a device: nothing of its memory where it was not read."""
    memory, allocator = device.memory, device.allocator or AllocatorReading()
    if device.state != "ok":
        memory, allocator = MemoryReading(), AllocatorReading()
    figures = (
        allocator.allocated_bytes,
        allocator.reserved_bytes,
        memory.used_bytes,
        memory.total_bytes or None,
    )
    peaks = (
        allocator.allocated_bytes if allocator.allocated_max_bytes is None else allocator.allocated_max_bytes,
        memory.used_bytes if memory.used_max_bytes is None else memory.used_max_bytes,
    )
    return tuple("" if value is None else str(value) for value in (*figures, device.step, *peaks))


def _values(row: dict[str, str]) -> tuple[str, ...]:
    return tuple(row[name] for name in COLUMNS[2:])


def _rows() -> list[DeviceRow]:
    awkward = DeviceSample(
        'a"\\\nb', 3, memory=MemoryReading(used_bytes=5), utilization_percent=50.0, power_w=float("nan")
    )
    retried = DeviceSample("GPU-0", 0, allocator=AllocatorReading(7, ooms=2), state="ok", temperature_c=40.5)
    samples = [make_sample(tick, 2) for tick in range(20)]
    samples += [Sample("other", tick, START_S + tick, 1.0, (awkward, retried)) for tick in range(20, 30)]
    return list(DeviceRowReader(has_nodes=True).rows(samples))


def test_a_parser_of_openmetrics_reads_back_every_figure_and_nothing_else() -> None:
    rows = _rows()
    stream = io.BytesIO()
    write_metrics(rows, stream, held_bytes=5_000)
    whole = io.BytesIO()
    write_metrics(rows, whole)
    assert whole.getvalue() == stream.getvalue(), "what waits on disk comes out as what is held"
    read = {
        (found.name, found.labels["node"], found.labels["uuid"], float(found.timestamp)): found.value
        for family in text_string_to_metric_families(stream.getvalue().decode())  # type: ignore[no-untyped-call]
        for found in family.samples
    }
    expected = {
        (
            f"{family.name}{'_total' if family.kind == 'counter' else ''}",
            row.node,
            row.uuid,
            row.time_s,
        ): value
        for row in rows
        for family in FAMILIES
        if (value := family.read(row)) is not None and math.isfinite(value)
    }
    assert read == expected
    names = {name for name, *_ in read}
    assert {"vramscope_device_used_bytes", "vramscope_allocator_ooms_total"} <= names
    assert read["vramscope_device_utilization_ratio", "other", 'a"\\\nb', START_S + 20] == 0.5


def test_parquet_has_the_figures_of_the_csv_with_null_where_it_is_empty(tmp_path: Path) -> None:
    try:
        from pyarrow import parquet
    except ImportError:
        missing("pyarrow is not installed (pip install 'vramscope[parquet]')")
    rank = RankSample(7, device_uuid="GPU-1", step=StepReading(12, START_S))
    lone = DeviceSample("GPU-1", 1, memory=MemoryReading(used_bytes=5))
    write(
        tmp_path / "run.vscope",
        [make_sample(1), make_sample(2), Sample("node", 3, START_S + 9, 1.0, (lone,), ranks=(rank,))],
    )
    table = parquet.read_table(_export(tmp_path / "run.vscope", "parquet"))
    with _export(tmp_path / "run.vscope").open(encoding="utf-8") as file:
        expected = list(csv.DictReader(file))
    found = [
        {name: "" if row[name] is None else str(row[name]) for name in expected[0]}
        for row in table.to_pylist()
    ]
    assert found == expected
    assert (found[-1]["used_bytes"], found[-1]["total_bytes"], found[-1]["step"]) == ("5", "", "12")


def test_json_lines_say_what_stood_when_it_was_measured(tmp_path: Path) -> None:
    path, samples = tmp_path / "run.vscope", [make_sample(tick) for tick in range(6)]
    with RecordingWriter(path, RecordingIdentity("node", START_S, "test")) as writer:
        for tick, sample in enumerate(samples):
            writer.append(sample)
            if tick in (2, 4):
                writer.tell("node", [make_finding(1, closed_s=None if tick == 2 else sample.time_s)])
    lines = _export(path, "jsonl").read_bytes().splitlines()
    statuses = [msgspec.json.decode(line, type=NodeStatus) for line in lines]
    assert [(it.time, it.devices, it.ranks, it.host) for it in statuses] == [
        (it.time_s, it.devices, it.ranks, it.host) for it in samples
    ]
    said = [[finding.is_open for finding in it.findings] for it in statuses]
    assert said == [[], [], [True], [True], [False], []]


def test_devices_of_one_label_on_two_nodes_each_get_a_figure(tmp_path: Path) -> None:
    recorder = FigureRecorder("wall", 3.5)
    recorder.record(_rows())
    files = recorder.write([make_finding(1)], tmp_path, subtitle="two nodes")
    names = {path.name for path in files if path.suffix == ".png"}
    assert names == {
        "gpu_node_0_memory_usage.png",
        "gpu_node_1_memory_usage.png",
        "gpu_other_0_memory_usage.png",
        "gpu_other_3_memory_usage.png",
        "memory_heatmap.png",
        "memory_peaks.png",
    }
    assert all(path.stat().st_size > 1000 for path in files)


def test_a_reading_that_several_samples_hold_is_one_row() -> None:
    ages = ((0, 0.0), (1, 1.0), (2, 2.0), (3, 0.5), (4, 1.75))
    samples = [
        Sample("node", at, 1.0 + at, 1.0, (DeviceSample("cpu", 0, age_s=age_s),)) for at, age_s in ages
    ]
    reader = DeviceRowReader(has_nodes=False)
    assert [row.time_s for row in reader.rows(samples)] == [1.0, 3.5]
    assert reader.late == 1, "the last is older than the one before"
