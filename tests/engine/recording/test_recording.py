"""What was recorded is what is read: while it is written, afterwards, by time, by minute."""

import math
import os
import sqlite3
import stat
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings

from vramscope.engine.errors import InputFileError, OutputFileError
from vramscope.engine.model import DeviceEvent, Sample
from vramscope.engine.recording import OverviewMinute, Recording, RecordingWriter
from vramscope.engine.recording import sqlite as connection
from vramscope.engine.recording.writer import TARGET_DEVICE_SAMPLES
from vramscope.engine.text import clean_texts

from .samples import IDENTITY, START_S, arbitrary_samples, make_assessment, make_finding, make_sample, write


def test_a_recording_can_be_read_while_it_is_written_and_is_one_file_afterwards(tmp_path: Path) -> None:
    path, devices = tmp_path / "run.vscope", 16
    samples = [make_sample(tick, devices) for tick in range(700)]
    with RecordingWriter(path, IDENTITY) as writer:
        for tick, sample in enumerate(samples):
            writer.append(sample)
            if tick in (0, 100, 600):
                writer.flush()
                with Recording(path) as recording:
                    assert recording.is_unfinished
                    assert list(recording.samples()) == samples[: tick + 1]
                    assert recording.sample_at(START_S + 1e6) == sample
    assert list(tmp_path.iterdir()) == [path]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert path.stat().st_size < 40 * 700 * devices
    with Recording(path) as recording:
        assert not recording.is_unfinished
        assert list(recording.samples()) == samples
        assert recording.span == (samples[0].time_s, samples[-1].time_s)
        assert (recording.sample_count, recording.damage.sentence) == (700, None)
        assert [device.uuid for device in recording.devices] == [f"GPU-{index}" for index in range(devices)]
        assert recording.identity.jobs == ("job",)


@settings(
    deadline=None,
    max_examples=15,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(arbitrary_samples)
def test_any_samples_of_any_nodes_come_back_in_order(tmp_path: Path, samples: list[Sample]) -> None:
    path = tmp_path / "run.vscope"
    path.unlink(missing_ok=True)
    expected = msgspec.msgpack.encode(clean_texts(samples))
    with RecordingWriter(path, IDENTITY) as writer:
        for sample in samples:
            writer.append(sample)
        writer.flush()
        with Recording(path) as recording:
            assert msgspec.msgpack.encode(list(recording.samples())) == expected
    with Recording(path) as recording:
        assert msgspec.msgpack.encode(list(recording.samples())) == expected
        recording.overview()


def test_rows_that_become_a_block_while_they_are_read_are_read_once(tmp_path: Path) -> None:
    path = tmp_path / "run.vscope"
    samples = [make_sample(tick, 8) for tick in range(700)]
    with RecordingWriter(path, IDENTITY) as writer:
        for sample in samples[:300]:
            writer.append(sample)
        writer.flush()
        with Recording(path) as recording:
            walk = recording.samples()
            read = [next(walk) for _ in range(280)]
            for sample in samples[300:]:
                writer.append(sample)
            writer.flush()
            read += walk
    assert read == samples


def test_a_block_larger_than_any_reader_takes_is_written_in_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run.vscope"
    samples = [make_sample(tick) for tick in range(100)]
    monkeypatch.setattr("vramscope.engine.recording.writer.MOST_RAW_BYTES", 5000)
    with RecordingWriter(path, IDENTITY) as writer:
        for sample in samples:
            writer.append(sample)
        writer.tell("node", [make_finding(1)])
    database = sqlite3.connect(path)
    parts, largest = database.execute("SELECT count(*), max(raw_bytes) FROM blocks").fetchone()
    database.close()
    assert parts > 2
    assert largest <= 5000
    with Recording(path) as recording:
        assert list(recording.samples()) == samples
        assert len(list(recording.told())) == 1


def test_samples_are_found_by_time_in_blocks_and_in_rows(tmp_path: Path) -> None:
    path, ticks = tmp_path / "run.vscope", TARGET_DEVICE_SAMPLES // 8 + 50
    samples = [make_sample(tick, 8) for tick in range(ticks)]
    with RecordingWriter(path, IDENTITY) as writer:
        for sample in samples:
            writer.append(sample)
        writer.flush()
        with Recording(path) as recording:
            for tick in (0, 1, ticks - 60, ticks - 50, ticks - 1):
                assert recording.sample_at(samples[tick].time_s) == samples[tick]
                assert recording.sample_at(samples[tick].time_s + 0.5) == samples[tick]
            assert recording.sample_at(START_S - 1) is None
            low, high = samples[ticks - 60].time_s, samples[ticks - 40].time_s
            assert list(recording.samples(low, high)) == samples[ticks - 60 : ticks - 39]


def test_a_clock_that_was_set_back_keeps_the_order_and_every_time_is_found(tmp_path: Path) -> None:
    path = tmp_path / "run.vscope"
    times = [*range(100, 900), *range(300, 1100)]
    samples = [make_sample(tick, 1, time_s=float(at)) for tick, at in enumerate(times)]
    write(path, samples)
    with Recording(path) as recording:
        assert [sample.time_s for sample in recording.samples()] == times
        assert recording.span == (100.0, 1099.0)
        for at in (100, 299, 300, 650, 899, 900, 1099):
            found = recording.sample_at(at + 0.25)
            assert found is not None
            assert found.time_s == at
        twice = recording.sample_at(500.0)
        assert twice is not None
        assert twice.seq == 1000, "of two samples of one time the later counts"
        assert [minute.samples for minute in recording.overview(540, 550)] == [120]


def test_a_day_is_drawn_from_minutes_without_reading_its_blocks(tmp_path: Path) -> None:
    path = tmp_path / "run.vscope"
    samples = [make_sample(tick, 3) for tick in range(650)]

    def expect(part: list[Sample]) -> list[OverviewMinute]:
        minutes: dict[tuple[float, str], list[Sample]] = {}
        for sample in part:
            for device in sample.devices:
                minutes.setdefault((sample.time_s // 60 * 60, device.uuid), []).append(sample)
        return [
            OverviewMinute(start_s, "node", uuid, len(found), min(lows), max(highs), None)
            for (start_s, uuid), found in sorted(minutes.items())
            for memories in [[it.memory for s in found for it in s.devices if it.uuid == uuid]]
            for lows in [[it.used_min_bytes or 0 for it in memories]]
            for highs in [[it.used_max_bytes or 0 for it in memories]]
        ]

    with RecordingWriter(path, IDENTITY) as writer:
        for sample in samples[:630]:
            writer.append(sample)
        writer.flush()
        with Recording(path) as recording:
            assert recording.overview() == expect(samples[:630])
        for sample in samples[630:]:
            writer.append(sample)
    with Recording(path) as recording:
        assert recording.overview() == expect(samples)
        first = samples[0].time_s // 60 * 60
        part = recording.overview(first + 70, first + 150)
        assert {it.start_s for it in part} == {first + 60, first + 120}


def test_findings_assessments_and_events_are_kept_as_they_were_told(tmp_path: Path) -> None:
    path = tmp_path / "run.vscope"
    with RecordingWriter(path, IDENTITY) as writer:
        for tick in range(1300):
            findings = [make_finding(1)] if tick == 10 else []
            writer.append(
                make_sample(tick, 2), findings, [make_assessment(tick)] if tick % 100 == 0 else None
            )
        writer.tell("node", [make_finding(1, closed_s=START_S + 1300), make_finding(2)])
        writer.add_event("source_changed", "the agent ended")
        writer.flush()
        with Recording(path) as recording:
            assert [it.id for it in recording.findings()] == ["id1", "id2"]
    with Recording(path) as recording:
        assert recording.findings() == (make_finding(1, closed_s=START_S + 1300), make_finding(2))
        told = list(recording.told())
        assert [it.assessments for it in told if it.assessments] == [
            (make_assessment(tick),) for tick in range(0, 1300, 100)
        ]
        assert [it.findings for it in told if it.findings] == [
            (make_finding(1),),
            (make_finding(1, closed_s=START_S + 1300), make_finding(2)),
        ]
        assert [it.kind for it in recording.events()] == [
            "recording_started",
            "rank_attached",
            "source_changed",
            "recording_stopped",
        ]
        steps = [it.step for it in recording.events(START_S + 500, START_S + 503.5, kinds=["step"])]
        assert steps == [500, 501, 502, 503]
        assert [it.text for it in recording.events(START_S + 500, START_S + 501.5, kinds={"phase"})] == [
            "backward",
            "forward",
        ]


def test_what_happened_between_samples_is_told_from_them(tmp_path: Path) -> None:
    path = tmp_path / "run.vscope"
    first, second = make_sample(5), make_sample(6)
    rank = msgspec.structs.replace(second.ranks[0], oom_s=START_S, state="ended", reason="exit code 1")
    lost = msgspec.structs.replace(second.devices[0], state="lost", reason="it fell off the bus")
    ended = msgspec.structs.replace(second, seq=9, ranks=(rank,), devices=(lost, second.devices[1]))
    write(path, [first, ended, make_sample(1, 0)])
    with Recording(path) as recording:
        events = {it.kind: it for it in recording.events()}
    assert list(events) == [
        "recording_started",
        "rank_attached",
        "samples_dropped",
        "rank_ended",
        "oom",
        "device_state",
        "hub_restarted",
        "recording_stopped",
    ]
    assert events["samples_dropped"].count == 3
    assert events["oom"].rank == 0
    assert events["device_state"].text == "device 0 is lost: it fell off the bus"


def test_each_error_of_a_device_is_one_event_at_its_own_time(tmp_path: Path) -> None:
    path = tmp_path / "run.vscope"
    uuid = make_sample(0).devices[0].uuid
    early = DeviceEvent(START_S - 20.0, "xid", "kernel log", uuid, code=63)
    nvml = DeviceEvent(START_S + 7.0, "xid", "nvml", uuid, code=79)
    written = DeviceEvent(START_S + 5.5, "xid", "kernel log", uuid, "0000:01:00.0", 79, 4242, "NVRM: Xid: 79")
    again = msgspec.structs.replace(written, time_s=START_S + 30.0)
    reset = DeviceEvent(START_S + 31.0, "reset", "kernel log", pci_address="0000:c1:00.0")
    carried = (
        [(early,)] * 7 + [(early, nvml), (early, written)] + [(written,)] * 21 + [(written, again, reset)]
    )
    samples = [
        msgspec.structs.replace(make_sample(tick), events=events) for tick, events in enumerate(carried)
    ]
    write(path, samples)
    with Recording(path) as recording:
        found = [(it.time_s - START_S, it.text) for it in recording.events(kinds=["device_error"])]
        assert [it.events for it in recording.samples()] == carried
    assert found == [
        (-20.0, "device 0: XID 63"),
        (7.0, "device 0: XID 79"),
        (30.0, "device 0: XID 79 (process 4242)"),
        (31.0, "a device at 0000:c1:00.0: reset"),
    ]


def test_an_error_without_a_possible_time_is_at_its_sample_and_does_not_end_the_recording(
    tmp_path: Path,
) -> None:
    path = tmp_path / "run.vscope"
    error = DeviceEvent(math.nan, "xid", "kernel log", code=79)
    samples = [make_sample(tick) for tick in range(3)]
    samples[1] = msgspec.structs.replace(samples[1], events=(error,))
    write(path, samples)
    with Recording(path) as recording:
        assert recording.sample_count == 3
        assert [it.time_s for it in recording.events(kinds=["device_error"])] == [samples[1].time_s]


def test_a_recording_is_continued_where_it_ended(tmp_path: Path) -> None:
    path = tmp_path / "run.vscope"
    samples = [make_sample(tick) for tick in range(40)]
    write(path, samples[:20])
    write(path, samples[20:])
    with Recording(path) as recording:
        assert list(recording.samples()) == samples
        assert [it.kind for it in recording.events() if it.kind.startswith("recording")] == [
            "recording_started",
            "recording_stopped",
        ] * 2


def test_a_sample_that_no_file_can_hold_is_counted_and_costs_nothing(tmp_path: Path) -> None:
    path = tmp_path / "run.vscope"
    with RecordingWriter(path, IDENTITY) as writer:
        writer.append(make_sample(1, time_s=float("nan")))
        writer.append(msgspec.structs.replace(make_sample(1), notes=("\udc80",)))
        writer.append(msgspec.structs.replace(make_sample(1), seq=1 << 70))
        writer.append(make_sample(2, time_s=-5.0))
        assert writer.left_out == 3
    with Recording(path) as recording:
        assert [it.seq for it in recording.samples()] == [2]
        assert recording.span == (-5.0, -5.0)


def test_on_a_network_file_system_a_journal_takes_the_place_of_the_log_and_that_is_said(
    tmp_path: Path,
) -> None:
    path = tmp_path / "run.vscope"
    with RecordingWriter(path, IDENTITY, find_type=lambda _: "nfs4") as writer:
        assert "network file system (nfs4)" in writer.notes[0]
        writer.append(make_sample(1))
        writer.flush()
        assert not (tmp_path / "run.vscope-wal").exists()
        with Recording(path) as recording:
            assert list(recording.samples()) == [make_sample(1)]
        writer.append(make_sample(2))
    with Recording(path) as recording:
        assert list(recording.samples()) == [make_sample(1), make_sample(2)]


@pytest.mark.parametrize("kind", ["link", "folder", "pipe", "text", "absent folder"])
def test_only_a_file_of_its_own_is_written_to(kind: str, tmp_path: Path) -> None:
    path, other = tmp_path / "run.vscope", tmp_path / "other.vscope"
    if kind == "link":
        write(other, [make_sample(1)])
        path.symlink_to(other)
    elif kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "text":
        path.write_text("time_s,device\n" * 99)
    else:
        path = tmp_path / "absent" / "run.vscope"
    before = path.read_bytes() if kind == "text" else b""
    with pytest.raises((OutputFileError, InputFileError)) as refusal:
        RecordingWriter(path, IDENTITY)
    assert str(refusal.value).startswith(str(path))
    assert "\n" not in str(refusal.value)
    assert kind != "text" or path.read_bytes() == before


def test_a_link_that_is_put_in_the_place_of_the_file_is_not_written_through(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, victim = tmp_path / "run.vscope", tmp_path / "victim.vscope"
    write(path, [make_sample(1)])
    write(victim, [make_sample(2)])
    before = victim.read_bytes()
    connect = connection._connect

    def swap(name: Path, mode: str) -> sqlite3.Connection:
        """Put a link where the file was, between its locking and its opening by SQLite."""
        path.rename(tmp_path / "moved")
        path.symlink_to(victim)
        return connect(name, mode)

    monkeypatch.setattr(connection, "_connect", swap)
    with pytest.raises(OutputFileError, match="was replaced while it was opened"):
        RecordingWriter(path, IDENTITY)
    assert victim.read_bytes() == before


def test_a_short_recording_is_small_and_is_continued_as_any_other(tmp_path: Path) -> None:
    path = tmp_path / "run.vscope"
    write(path, [make_sample(tick, 1) for tick in range(60)])
    assert path.stat().st_size < 30_000, "the tables alone would be 56 KiB of SQLite's usual pages"
    with Recording(path) as reader:
        write(path, [make_sample(tick, 1) for tick in range(60, 120)])  # a reader is there at its end
        assert reader.sample_count == 120
    write(path, [make_sample(tick, 1) for tick in range(120, 180)])
    with Recording(path) as reader:
        assert [sample.seq for sample in reader.samples()] == list(range(180))
        assert reader.damage.sentence is None
    assert path.stat().st_size < 45_000
    assert list(tmp_path.iterdir()) == [path]
