"""The profile: the original's fields, with what was not measured as null."""

import json
from typing import Any

from vramscope.exporters.json_lines import encode_report
from vramscope.exporters.reports.log import RunLog
from vramscope.exporters.reports.profile import build_profile

from .logs import DRIVER, GIB, INPUT, TOTAL, make_device, make_finding, make_log, make_sample
from .shapes import check_shape


def build(log: RunLog, *, is_input: bool = False) -> dict[str, Any]:
    """Return the report as a reader of the file gets it."""
    report: dict[str, Any] = json.loads(encode_report(build_profile(log, INPUT if is_input else DRIVER)))
    check_shape("profile", report)
    return report


def test_device_memory_alone_gives_every_field_it_can() -> None:
    samples = [make_sample(t, make_device((8 + t) * GIB), make_device(2 * GIB, index=1)) for t in range(3)]
    report = build(make_log(samples))
    first = report["devices"]["0"]
    assert first["current_memory"] == {
        "allocated": 10 * GIB,
        "free": 70 * GIB,
        "total": TOTAL,
        "utilization": 12.5,
        "used": 10 * GIB,
        "reserved": None,
    }
    assert (first["memory_source"], first["peak_memory"], first["headroom"]) == ("device", 10 * GIB, 70 * GIB)
    assert first["statistics"] == {
        "avg_utilization": 11.25,
        "max_utilization": 12.5,
        "avg_fragmentation": None,
        "max_fragmentation": None,
        "num_snapshots": 3,
    }
    assert report["summary"] == {
        "total_devices": 2,
        "total_current_memory": 12 * GIB,
        "total_peak_memory": 12 * GIB,
        "monitoring_duration": 2.0,
    }
    assert report["evidence"]["source"] == "driver"


def test_an_allocator_gives_allocated_and_fragmentation_from_0_to_1() -> None:
    device = make_device(40 * GIB, allocated=20 * GIB, reserved=32 * GIB, stranded=8 * GIB)
    report = build(make_log([make_sample(0, device)]))["devices"]["0"]
    assert report["memory_source"] == "allocator"
    assert report["current_memory"]["allocated"] == 20 * GIB
    assert report["current_memory"]["utilization"] == 50.0
    assert report["statistics"]["avg_fragmentation"] == 0.25


def test_a_device_that_tells_nothing_has_nulls_and_no_zeros() -> None:
    report = build(make_log([make_sample(0, make_device(state="unsupported", reason="not supported"))]))
    device = report["devices"]["0"]
    assert set(device["current_memory"].values()) == {None}
    assert (device["peak_memory"], device["statistics"]["avg_utilization"]) == (None, None)
    assert report["summary"]["total_current_memory"] is None


def test_findings_of_every_kind_stand_in_the_order_in_which_they_opened() -> None:
    log = make_log([make_sample(0, make_device(GIB))])
    log.take([make_finding("leak", opened_s=9.0), make_finding("pressure", opened_s=3.0, closed_s=8.0)])
    findings = build(log)["findings"]
    assert [(it["kind"], it["opened_s"], it["closed_s"]) for it in findings] == [
        ("pressure", 3.0, 8.0),
        ("leak", 9.0, None),
    ]
    assert findings[0]["evidence"] == {"peak": {"value": 5, "unit": "bytes"}}
    assert (findings[0]["device"], findings[0]["device_uuid"]) == (0, "GPU-0")


def test_an_input_without_uuids_has_none_in_its_report() -> None:
    log = make_log([make_sample(0, make_device(GIB))])
    log.take([make_finding()])
    report = build(log, is_input=True)
    assert report["devices"]["0"]["device_uuid"] is None
    assert report["findings"][0]["device_uuid"] is None
    assert (report["evidence"]["input"], report["evidence"]["format"]) == ("series.csv", "series CSV")


def test_an_empty_period_is_an_empty_report() -> None:
    report = build(make_log([]))
    assert report["devices"] == {}
    assert report["summary"]["monitoring_duration"] == 0.0
