"""Logs of nvidia-smi: with and without units and header, joined, cut, and with GPUs that fall off the bus."""

import os
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from vramscope.engine.errors import InputFileError
from vramscope.engine.files.base.series_reader import SeriesRecord
from vramscope.engine.files.series.nvidia_smi import NvidiaSmiLog
from vramscope.engine.units import GIB, MIB

from .series_files import LOG_HEADER, play, used, write_lines

AT_TEN = datetime(2025, 6, 23, 10, 30, tzinfo=UTC).timestamp()
STAMP = "2025/06/23 10:30"


@pytest.fixture(autouse=True)
def zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """Read local times as universal ones, until a test says otherwise."""
    before = os.environ.get("TZ")
    set_zone(monkeypatch, "UTC")
    yield monkeypatch
    monkeypatch.undo()
    assert os.environ.get("TZ") == before
    time.tzset()


def set_zone(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv("TZ", name)
    time.tzset()


def read(path: Path) -> tuple[list[SeriesRecord], tuple[str, ...]]:
    log = NvidiaSmiLog(path)
    records = list(log.records())
    return records, log.notes[1:]


@pytest.mark.parametrize(
    ("header", "row"),
    [
        pytest.param(LOG_HEADER, f"{STAMP}:00.500, 1, 2048 MiB, 81920 MiB", id="csv"),
        pytest.param(LOG_HEADER, f"{STAMP}:00.500, 1, 2048, 81920", id="csv,nounits"),
        pytest.param(None, f"{STAMP}:00.500, 1, 2048 MiB, 81920 MiB", id="csv,noheader"),
        pytest.param(None, f"{STAMP}:00.500, 1, 2048, 81920", id="csv,noheader,nounits"),
        pytest.param(
            "memory.total [MiB], index, timestamp, memory.used [MiB]",
            f"81920 MiB, 1, {STAMP}:00.500, 2048 MiB",
            id="another order",
        ),
        pytest.param(LOG_HEADER, "2025-06-23T10:30:00.5,1,2 GiB,80 GiB", id="other units and dates"),
    ],
)
def test_each_way_to_write_a_log(tmp_path: Path, header: str | None, row: str) -> None:
    lines = [row] if header is None else [header, row]
    ((record,), notes) = read(write_lines(tmp_path / "smi.csv", *lines))
    assert record.time_s == AT_TEN + 0.5
    assert (record.device.index, record.device.uuid, record.device.is_uuid_real) == (1, "index-1", False)
    assert (record.used_bytes, record.total_bytes, record.state) == (2 * GIB, 80 * GIB, "ok")
    assert notes == ()


def test_more_columns_are_used_where_they_are_known(tmp_path: Path) -> None:
    uuid = "GPU-8f1c2d3e-0000-1111-2222-333344445555"
    header = (
        "timestamp, name, uuid, index, pstate, memory.used [MiB], memory.free [MiB], memory.total [MiB], "
        "utilization.gpu [%], temperature.gpu, power.draw [W]"
    )
    row = f"{STAMP}:01.000, NVIDIA H100, {uuid}, 4, P0, 100 MiB, 800 MiB, 1000 MiB, 97 %, 61, 512.25 W"
    source, (sample,) = play(write_lines(tmp_path / "smi.csv", header, row))
    (device,) = sample.devices
    assert (device.uuid, device.index, device.name) == (uuid, 4, "NVIDIA H100")
    assert source.real_uuid(device.uuid) == uuid
    assert source.label(device.uuid) == "4"
    assert (device.memory.used_bytes, device.memory.free_bytes) == (100 * MIB, 800 * MIB)
    assert (device.utilization_percent, device.temperature_c, device.power_w) == (97, 61, 512.25)
    assert (device.allocator, sample.clock, sample.time_s) == (None, "wall", AT_TEN + 1)


@pytest.mark.parametrize(
    ("cell", "state"),
    [
        ("[N/A]", "unsupported"),
        ("[Not Supported]", "unsupported"),
        ("", "unsupported"),
        ("[Unknown Error]", "lost"),
        ("[GPU is lost]", "lost"),
        ("ERR!", "lost"),
    ],
)
def test_words_in_place_of_memory_are_a_state_and_no_figure(tmp_path: Path, cell: str, state: str) -> None:
    path = write_lines(
        tmp_path / "smi.csv",
        LOG_HEADER,
        f"{STAMP}:00.000, 0, 100 MiB, 1000 MiB",
        f"{STAMP}:01.000, 0, {cell}, {cell}",
        f"{STAMP}:02.000, 0, 200 MiB, 1000 MiB",
    )
    _, samples = play(path)
    states = [sample.devices[0].state for sample in samples]
    assert states == ["ok", state, "ok"]
    assert used(samples) == [100 * MIB, None, 200 * MIB]
    assert cell in (samples[1].devices[0].reason or "")


def test_joined_logs_repeat_their_header(tmp_path: Path) -> None:
    path = write_lines(
        tmp_path / "smi.csv",
        "nohup: ignoring input",
        LOG_HEADER,
        f"{STAMP}:00.000, 0, 100 MiB, 1000 MiB",
        LOG_HEADER,
        f"{STAMP}:01.000, 0, 200 MiB, 1000 MiB",
        "index, timestamp, memory.used [GiB]",
        f"0, {STAMP}:02.000, 3",
    )
    records, notes = read(path)
    assert [record.used_bytes for record in records] == [100 * MIB, 200 * MIB, 3 * GIB]
    assert [record.total_bytes for record in records] == [1000 * MIB, 1000 * MIB, None]
    assert notes == ("1 record was left out: line 1: 'nohup: ignoring input' is not a record",)


def test_a_log_without_a_column_for_the_gpu_is_of_one_gpu(tmp_path: Path) -> None:
    path = write_lines(
        tmp_path / "smi.csv",
        "timestamp, name, memory.used [MiB], memory.total [MiB]",
        *(f"{STAMP}:{second:02d}.{7 * second:03d}, NVIDIA L4, {second} MiB, 1000 MiB" for second in range(9)),
    )
    records, _ = read(path)
    assert {(it.device.index, it.device.name) for it in records} == {(0, "NVIDIA L4")}
    assert [it.used_bytes for it in records] == [second * MIB for second in range(9)]
    reader, _ = play(path)
    assert "no column says which GPU a record is of: all were read as of one" in reader.notes


def test_a_joined_log_that_no_longer_names_its_gpus_is_left_out(tmp_path: Path) -> None:
    path = write_lines(
        tmp_path / "smi.csv",
        LOG_HEADER,
        f"{STAMP}:00.000, 1, 100 MiB, 1000 MiB",
        "timestamp, memory.used [MiB]",
        f"{STAMP}:01.000, 200 MiB",
    )
    records, notes = read(path)
    assert [(it.device.index, it.used_bytes) for it in records] == [(1, 100 * MIB)]
    assert notes[0].startswith("2 records were left out, the first at line 3")


def test_what_nvidia_smi_says_between_records_is_counted(tmp_path: Path) -> None:
    path = write_lines(
        tmp_path / "smi.csv",
        LOG_HEADER,
        f"{STAMP}:00.000, 0, 100 MiB, 1000 MiB",
        "Unable to determine the device handle for GPU 0000:03:00.0: GPU is lost.  Reboot the system",
        f"{STAMP}:01.000, 0, lots, 1000 MiB",
        f"{STAMP}:01.000, zero, 1 MiB, 1000 MiB",
        "2025/13/45 10:30:02.000, 0, 1 MiB, 1000 MiB",
        "yesterday, 0, 1 MiB, 1000 MiB",
        f"{STAMP}:03.000, 0, 100 MiB, 10",
    )
    path.write_text(path.read_text().removesuffix("\n"))
    records, notes = read(path)
    assert len(records) == 1
    assert notes == (
        "2 records were left out, the first at line 6: timestamp is '2025/13/45 10:30:02.000', which "
        "is not a valid time",
        "1 record was left out: line 3: 'Unable to determine t...' is not a record",
        "1 record was left out: line 4: memory.used is 'lots', expected memory such as 1234 MiB",
        "1 record was left out: line 5: index is 'zero', expected the number of a GPU",
        "1 record was left out for other reasons",
    )


def test_a_last_record_that_was_cut_off_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "smi.csv"
    path.write_text(f"{LOG_HEADER}\n{STAMP}:00.000, 0, 100 MiB, 1000 MiB\n{STAMP}:01.000, 0, 100 MiB, 10")
    records, notes = read(path)
    assert len(records) == 1
    assert notes[0].startswith("1 record was left out: line 3: the last line has no end")


@pytest.mark.parametrize(
    ("lines", "complaint"),
    [
        (
            [
                "timestamp, memory.used [MiB]",
                *(f"{STAMP}:0{second}.{ms}, 1 MiB" for second in range(4) for ms in ("104", "131")),
            ],
            "line 1: no column index, uuid or pci.bus_id, and records 27 ms apart, as of several GPUs;",
        ),
        (["timestamp, index, memory.total [MiB]"], "line 1: no column memory.used; expected what nvidia-smi"),
        (["index, memory.used [MiB]"], "line 1: no column timestamp; expected what nvidia-smi"),
        ([f"{STAMP}:00.000, 5, 100, 1000, 20"], "has no header before it, so its 5 columns are unknown;"),
        ([f"{STAMP}:00.000, 0, 1000, 100"], "has no header before it, so its 4 columns are unknown;"),
        ([LOG_HEADER], "no record after the header; expected at least one line of data"),
        (
            [LOG_HEADER, "x, 0, 1, 2"],
            "no usable record among 1; the first at line 2: timestamp is 'x'",
        ),
    ],
)
def test_a_log_that_cannot_be_told_is_refused_with_what_to_do(
    tmp_path: Path, lines: list[str], complaint: str
) -> None:
    path = write_lines(tmp_path / "smi.csv", *lines)
    with pytest.raises(InputFileError) as caught:
        play(path)
    assert str(path) in str(caught.value)
    assert complaint in str(caught.value)


def test_the_hour_that_comes_twice_is_two_hours(tmp_path: Path, zone: pytest.MonkeyPatch) -> None:
    set_zone(zone, "Europe/Berlin")
    stamps = [f"2025/10/26 02:{minute:02d}:00.000" for minute in range(60)] * 2
    stamps += ["2025/10/26 03:00:00.000"]
    rows = [f"{stamp}, 0, 1 MiB, 9 MiB" for stamp in stamps]
    records, notes = read(write_lines(tmp_path / "smi.csv", LOG_HEADER, *rows))
    start = datetime(2025, 10, 26, 0, tzinfo=UTC).timestamp()
    assert [record.time_s - start for record in records] == [minute * 60 for minute in range(121)]
    assert notes == (
        "the clock went back by an hour before 2025/10/26 02:00:00.000; later times continue from there",
    )


def test_every_autumn_has_its_hour(tmp_path: Path, zone: pytest.MonkeyPatch) -> None:
    set_zone(zone, "Europe/Berlin")
    days = ["2024/10/27", "2025/10/26"]
    hours = ["01:30", "02:15", "02:45", "02:15", "02:45", "03:15"]
    rows = [f"{day} {hour}:00.000, 0, 1 MiB, 9 MiB" for day in days for hour in hours]
    records, _ = read(write_lines(tmp_path / "smi.csv", LOG_HEADER, *rows))
    for first in (0, 6):
        start = records[first].time_s
        seconds = [record.time_s - start for record in records[first : first + 6]]
        assert [each / 60 for each in seconds] == [0, 45, 75, 105, 135, 165]


def test_joined_logs_whose_clock_goes_back_are_no_autumn(tmp_path: Path) -> None:
    stamps = [f"2025/06/23 12:{minute:02d}:00.000" for minute in range(50)]
    rows = [f"{stamp}, 0, 1 MiB, 9 MiB" for stamp in [*stamps, *stamps]]
    records, notes = read(write_lines(tmp_path / "smi.csv", LOG_HEADER, *rows))
    assert records[50].time_s == records[0].time_s
    assert notes == ()


def test_an_hour_that_comes_twice_elsewhere_is_two_hours_too(tmp_path: Path) -> None:
    stamps = [f"2025/11/02 01:{minute:02d}:00.000" for minute in range(60)] * 2 + ["2025/11/02 02:00:00.000"]
    rows = [f"{stamp}, 0, 1 MiB, 9 MiB" for stamp in stamps]
    records, _ = read(write_lines(tmp_path / "smi.csv", LOG_HEADER, *rows))
    start = records[0].time_s
    assert [record.time_s - start for record in records] == [minute * 60 for minute in range(121)]
