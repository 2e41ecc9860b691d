"""Reports of Tiny-Torch's tools: what was read from a device is a sample, what was drawn at random is not."""

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vramscope.engine.errors import InputFileError
from vramscope.engine.files.base.series_reader import MOST_BYTES
from vramscope.engine.files.memory_report import MemoryReport
from vramscope.engine.sampling.series_source import open_series

from .series_files import play

MIB, GIB = 1 << 20, 1 << 30
STAMP = "2025-06-23T10:30:00.5"
WHEN_S = datetime(2025, 6, 23, 10, 30, 0, 500_000).timestamp()
MEMORY = {"allocated": 8 * GIB, "free": 16 * GIB, "total": 24 * GIB, "utilization": 33.3}
PROFILE = {
    "current_memory": MEMORY,
    "peak_memory": 9 * GIB,
    "statistics": {"avg_fragmentation": 0.3, "max_fragmentation": 15.3},
}
NEWER = {"current_usage": {**MEMORY, "utilization_percent": 33.3}, "fragmentation": 12.0}
OOM = {
    "risk_assessment": {"risk_level": "high", "current_usage_percent": 33.3},
    "memory_trends": {"min_memory": GIB, "max_memory": 9 * GIB, "current_memory": 8 * GIB},
}
LEAK = {"gpu_memory": {"start_mb": 1024.0, "end_mb": 8192.0}, "leak_risk": "low"}
FRAGMENT = {"current_metrics": {"fragmentation_ratio": 0.7, "largest_free_block_mb": 512.0}}
NODE = {"total_gb": 24.0, "used_gb": 8.0, "free_gb": 16.0, "usage_ratio": 0.33}


def write_report(path: Path, **fields: Any) -> Path:
    """Write a report."""
    path.write_text(json.dumps({"timestamp": STAMP, **fields}, indent=2))
    return path


@pytest.mark.parametrize(
    ("fields", "peak_bytes", "total_bytes"),
    [
        ({"devices": {"1": PROFILE}}, 9 * GIB, 24 * GIB),
        ({"devices": {"1": NEWER}}, 8 * GIB, 24 * GIB),
        ({"devices": {"1": OOM}}, 9 * GIB, None),
        ({"devices": {"1": LEAK}}, 8 * GIB, None),
        (
            {
                "report_type": "distributed_memory_monitoring",
                "node_details": {"node_id": "a_1", "devices": {"1": NODE}},
            },
            8 * GIB,
            24 * GIB,
        ),
    ],
    ids=["profile", "newer profile", "oom", "leak", "distributed"],
)
def test_a_report_is_one_sample(
    tmp_path: Path, fields: dict[str, Any], peak_bytes: int, total_bytes: int | None
) -> None:
    source, samples = play(write_report(tmp_path / "report.json", **fields))
    assert (source.format, source.clock) == ("memory report", "wall")
    assert [sample.time_s for sample in samples] == [WHEN_S]
    device = samples[0].devices[0]
    assert (device.index, device.allocator) == (1, None)
    memory = device.memory
    assert (memory.used_bytes, memory.used_max_bytes, memory.total_bytes) == (
        8 * GIB,
        peak_bytes,
        total_bytes,
    )
    assert any("allocated is device used in this format" in note for note in source.notes)


def test_ours_tells_the_allocator_apart(tmp_path: Path) -> None:
    device = {
        "device_uuid": "GPU-12345678-1234-1234-1234-123456789abc",
        "memory_source": "allocator",
        "current_memory": {**MEMORY, "used": 10 * GIB, "reserved": 9 * GIB},
        "peak_memory": 9 * GIB,
    }
    path = tmp_path / "report.json"
    path.write_text(
        json.dumps({"schema": "vramscope.profile/1", "timestamp": STAMP, "devices": {"0": device}})
    )
    source, samples = play(path)
    shown = samples[0].devices[0]
    assert shown.allocator is not None
    assert (shown.allocator.allocated_bytes, shown.allocator.allocated_max_bytes) == (8 * GIB, 9 * GIB)
    assert (shown.allocator.reserved_bytes, shown.memory.used_bytes) == (9 * GIB, 10 * GIB)
    assert source.real_uuid(shown.uuid) == device["device_uuid"]


def test_several_reports_are_one_series_of_one_device(tmp_path: Path) -> None:
    from vramscope.engine.sampling.series_source import JoinedSeries

    paths = []
    for number in range(3):
        profile = {**PROFILE, "current_memory": {**MEMORY, "allocated": number * GIB}}
        path = tmp_path / f"{number}.json"
        path.write_text(json.dumps({"timestamp": WHEN_S + 60 * number, "devices": {"0": profile}}))
        paths.append(path)
    joined = JoinedSeries([(path.name, open_series(path)) for path in reversed(paths)], "node")
    samples = [sample for _, sample in joined.samples()]
    assert [sample.time_s for sample in samples] == [WHEN_S, WHEN_S + 60, WHEN_S + 120]
    assert {device.uuid for sample in samples for device in sample.devices} == {"index-0"}
    assert [sample.devices[0].memory.used_bytes for sample in samples] == [0, GIB, 2 * GIB]


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"devices": {"0": FRAGMENT}}, "which Tiny-Torch draws at random, and no bytes in use"),
        ({"devices": {"0": {"risk_assessment": {}}}}, "$.devices['0']: no bytes in use"),
        ({"devices": {"0": {"peak_memory": -1}}}, "$.devices['0']: expected `float` >= 0"),
        ({"devices": {"0": {"peak_memory": 2**60}}}, "$.devices['0']: expected `float` < "),
        ({"devices": {}}, "no reading of a device"),
        (
            {"timestamp": "yesterday", "devices": {}},
            "invalid isoformat string: 'yesterday'; expected a report",
        ),
        ({"timestamp": 1e300, "devices": {}}, "expected seconds since 1970"),
    ],
)
def test_a_report_without_a_reading_is_refused(tmp_path: Path, fields: dict[str, Any], why: str) -> None:
    path = write_report(tmp_path / "report.json", **fields)
    with pytest.raises(InputFileError) as caught:
        open_series(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert why in str(caught.value)


VALUES = st.one_of(st.none(), st.booleans(), st.integers(-9, 2**70), st.floats(), st.text(max_size=9))
KEYS = st.sampled_from(
    [*PROFILE, *NEWER, *OOM, *LEAK, *NODE, *MEMORY, "end_mb", "device_uuid", "memory_source"]
)
TREES = st.recursive(VALUES, lambda inner: st.dictionaries(KEYS, inner, max_size=4), max_leaves=12)


@given(
    devices=st.dictionaries(st.text(max_size=3), TREES, max_size=4), stamp=st.one_of(st.just(STAMP), VALUES)
)
def test_any_report_is_figures_of_memory_or_refused(
    devices: dict[str, Any], stamp: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / "any-report.json"
    path.write_text(json.dumps({"timestamp": stamp, "devices": devices}))
    records, refusal = [], ""
    try:
        reader = MemoryReport(path)
        records = list(reader.records())
    except InputFileError as error:
        refusal = str(error)
    assert not refusal or refusal.startswith(f"{path}: ")
    for record in records:
        sizes = (record.allocated_bytes, record.used_bytes, record.total_bytes, record.free_bytes)
        assert all(size is None or 0 <= size <= MOST_BYTES for size in sizes)
