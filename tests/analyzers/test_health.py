"""Findings on errors of devices: what they mean, whom they ended, when they close; never out of memory."""

from collections.abc import Iterable

import pytest
from msgspec.structs import replace

from tests.analyzers.samples import device
from vramscope.analyzers.health.health import HealthAnalyzer
from vramscope.analyzers.out_of_memory import OutOfMemoryAnalyzer
from vramscope.analyzers.verdict import summarize
from vramscope.engine.model import (
    AllocatorReading,
    DeviceEvent,
    DeviceHardware,
    DeviceSample,
    Finding,
    RankSample,
    Sample,
)
from vramscope.engine.units import GIB


def xid(code: int, time_s: float = 100.0, **changes: object) -> DeviceEvent:
    made = DeviceEvent(time_s=time_s, kind="xid", source="kernel log", code=code, device_uuid="GPU-0")
    return replace(made, **changes)


def make(
    time_s: float,
    *events: DeviceEvent,
    ranks: tuple[RankSample, ...] = (),
    devices: tuple[DeviceSample, ...] | None = None,
) -> Sample:
    return Sample(
        node="n",
        seq=int(time_s),
        time_s=time_s,
        interval_s=1.0,
        devices=(device(), device(index=1)) if devices is None else devices,
        ranks=ranks,
        events=events,
    )


def find(samples: Iterable[Sample], analyzer: HealthAnalyzer | None = None) -> list[Finding]:
    analyzer = analyzer or HealthAnalyzer()
    return [finding for sample in samples for finding in analyzer.observe(sample)]


@pytest.mark.parametrize(
    ("code", "severity", "what", "to_do"),
    [
        (13, "medium", "invalid access or instruction", "mistake of the program"),
        (31, "medium", "address that is not mapped", "compute-sanitizer"),
        (43, "medium", "stopped the work", "mistake of the program"),
        (45, "low", "after an earlier error", "Look for the error before it"),
        (48, "critical", "ECC could not correct", "--gpu-reset -i 0"),
        (63, "medium", "a spare row replaces it", "when it is idle"),
        (64, "critical", "could not be marked", "--gpu-reset -i 0"),
        (74, "high", "NVLink", "nvidia-smi nvlink -e"),
        (79, "critical", "fell off the bus", "out of service"),
        (94, "high", "ended only the programs", "Restart the job"),
        (95, "critical", "every program", "--gpu-reset -i 0"),
        (119, "critical", "GSP", "--gpu-reset -i 0"),
        (120, "critical", "GSP", "--gpu-reset -i 0"),
        (777, "medium", "NVIDIA's catalogue", "kernel's log"),
    ],
)
def test_an_xid_says_what_it_means_and_what_to_do(code: int, severity: str, what: str, to_do: str) -> None:
    [opened] = find([make(100.0, xid(code))])
    assert (opened.kind, opened.severity, opened.device) == ("device_error", severity, "0")
    assert opened.title.startswith(f"GPU 0 XID {code}: ")
    assert what in opened.title
    assert to_do in opened.advice


def test_an_event_counts_once_however_long_samples_carry_it() -> None:
    event = xid(31)
    found = find([make(100.0 + n, event) for n in range(30)])
    assert len(found) == 1
    again = xid(31, 131.0)
    found = find([make(100.0, event), make(131.0, event, again), make(132.0, event, again)])
    assert [it.title.endswith(", 2 times") for it in found] == [False, True]
    assert found[0].id == found[1].id


def test_a_successor_does_not_count_again_what_it_adopted() -> None:
    event = xid(31)
    opened = find([make(100.0, event)])
    successor = HealthAnalyzer()
    successor.restore(opened)
    assert find([make(101.0, event)], successor) == []
    [counted] = find([make(140.0, xid(31, 139.0))], successor)
    assert counted.id == opened[0].id


@pytest.mark.parametrize(("code", "minutes"), [(31, 10), (79, 60)])
def test_a_finding_closes_after_a_quiet_time(code: int, minutes: int) -> None:
    times = [100.0 + 30 * n for n in range(2 * minutes + 5)]
    opened, closed = find([make(100.0, xid(code)), *(make(time_s) for time_s in times[1:])])
    assert closed.closed_s == pytest.approx(100.0 + 60 * minutes, abs=31.0)
    assert closed.id == opened.id


def rank(pid: int, number_bytes: int, state: str = "ok") -> RankSample:
    allocator = AllocatorReading(allocated_bytes=number_bytes, reserved_bytes=number_bytes, ooms=0)
    return replace(RankSample(pid=pid, device_uuid="GPU-0", allocator=allocator), state=state)


@pytest.mark.parametrize("names_process", [True, False])
def test_a_rank_that_an_xid_ended_is_never_out_of_memory(names_process: bool) -> None:
    event = xid(94, pid=4711 if names_process else None)
    nearly_full = (rank(4711, 79 * GIB), rank(4712, 10 * GIB))
    samples = [
        make(99.0, ranks=nearly_full[:1]),
        make(100.0, event, ranks=nearly_full[:1]),
        *(make(101.0 + n, event, ranks=(rank(4711, 79 * GIB, "ended"),)) for n in range(20)),
    ]
    found = find(samples)
    assert found[-1].title.endswith("process 4711 ended because of it")
    out_of_memory = OutOfMemoryAnalyzer()
    assert [it for sample in samples for it in out_of_memory.observe(sample)] == []
    text = summarize(samples[-1], found[-1:]).text(200)
    assert "XID 94" in text
    assert "ran out of memory" not in text


def test_a_rank_that_ends_long_after_an_error_did_not_end_because_of_it() -> None:
    samples = [make(100.0, xid(13)), make(140.0, ranks=(rank(1, GIB, "ended"),))]
    assert len(find(samples)) == 1


@pytest.mark.parametrize(
    ("kind", "severity", "word"),
    [
        ("hang", "medium", "did not end in time"),
        ("reset", "high", "reset"),
        ("wedged", "critical", "gave the GPU up"),
    ],
)
def test_errors_of_other_drivers(kind: str, severity: str, word: str) -> None:
    event = DeviceEvent(time_s=100.0, kind="hang", source="kernel log", pci_address="0000:c1:00.0")
    [opened] = find([make(100.0, replace(event, kind=kind))])
    assert (opened.severity, opened.device) == (severity, None)
    assert opened.title.startswith("GPU at 0000:c1:00.0")
    assert word in opened.title
    assert "nvidia" not in opened.advice.lower()


def hardware(**values: object) -> tuple[DeviceSample, ...]:
    return (replace(device(), hardware=replace(DeviceHardware(), **values)),)


def test_uncorrected_memory_errors_are_a_finding_when_their_count_rises() -> None:
    counts = [7, 7, 9, 9, 9]
    found = find([make(100.0 + n, devices=hardware(ecc_uncorrected=count)) for n, count in enumerate(counts)])
    [opened] = found
    assert (opened.kind, opened.severity) == ("memory_errors", "high")
    assert opened.title == "GPU 0: 2 new uncorrected memory errors"


def test_memory_that_waits_for_a_reset_is_a_finding_until_it_was_reset() -> None:
    states = [True, True, False, False]
    opened, closed = find(
        [make(100.0 + n, devices=hardware(is_repair_pending=state)) for n, state in enumerate(states)]
    )
    assert (opened.severity, opened.title) == (
        "medium",
        "GPU 0: memory with errors stays in use until it is reset",
    )
    assert (closed.id, closed.closed_s) == (opened.id, 102.0)


def test_a_flood_of_kinds_of_errors_is_bounded() -> None:
    analyzer = HealthAnalyzer()
    for number in range(100):
        events = tuple(xid(1000 + 16 * number + n, 100.0 + number) for n in range(16))
        analyzer.observe(make(100.0 + number, *events))
    assert len(analyzer._open) == 256
