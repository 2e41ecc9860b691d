"""Series CSV: every dialect is read, every record that cannot be used is counted with its line."""

import gzip
from pathlib import Path

import pytest

from vramscope.engine.errors import InputFileError
from vramscope.engine.files.base.series_reader import SeriesRecord
from vramscope.engine.files.series.open import SeriesFile
from vramscope.engine.sampling.series_source import open_series

from .series_files import HEADER, allocated, play, write_lines


def read(path: Path) -> tuple[list[SeriesRecord], tuple[str, ...]]:
    file = SeriesFile(path)
    records = list(file.records())
    return records, file.notes


def test_every_column_is_read_as_it_is_named(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a.csv", HEADER, "0.5,3,100,200,300,400,7")
    ((record,), notes) = read(path)
    assert (record.time_s, record.device.index, record.device.label, record.step) == (0.5, 3, "3", 7)
    assert (record.allocated_bytes, record.reserved_bytes) == (100, 200)
    assert (record.used_bytes, record.total_bytes) == (300, 400)
    assert record.device.uuid == "index-3"
    assert not record.device.is_uuid_real
    assert notes == ()


@pytest.mark.parametrize(
    ("header", "row"),
    [
        pytest.param("allocated_bytes,time_s,device", "100,0.5,3", id="another order"),
        pytest.param("time_s;device;allocated_bytes", "0.5;3;100", id="semicolons"),
        pytest.param("time_s\tdevice\tallocated_bytes", "0.5\t3\t100", id="tabs"),
        pytest.param(" Time_S , device , allocated_bytes ", " 0.5 , 3 , 100 ", id="spaces"),
        pytest.param('"time_s","device","allocated_bytes"', '"0.5","3","100"', id="quotes"),
        pytest.param(
            "time_s,device,allocated_bytes", "5e-1,3.0,100.0", id="numbers as a data frame writes them"
        ),
        pytest.param("time_s,device,allocated_bytes", "0.5,cuda:3,1e2", id="a device of PyTorch"),
        pytest.param("time_s,device,allocated_bytes", "0.5,GPU 3,100", id="a device in words"),
    ],
)
def test_dialects_of_one_record(tmp_path: Path, header: str, row: str) -> None:
    (record,), _ = read(write_lines(tmp_path / "a.csv", header, row))
    assert (record.time_s, record.device.index, record.allocated_bytes) == (0.5, 3, 100)
    assert (record.used_bytes, record.total_bytes, record.step) == (None, None, None)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("is_packed", [False, True])
def test_encodings_line_ends_and_gzip(tmp_path: Path, encoding: str, end: str, is_packed: bool) -> None:
    lines = ["# made by hand", "", HEADER, *(f"{time},0,{time}00,,,," for time in range(20)), "# the end"]
    data = end.join([*lines, ""]).encode(encoding)
    path = tmp_path / "a.csv"
    path.write_bytes(gzip.compress(data) if is_packed else data)
    records, notes = read(path)
    assert [record.allocated_bytes for record in records] == [time * 100 for time in range(20)]
    assert records[0].line == 4
    assert notes == ()


@pytest.mark.parametrize("cell", ["", " ", "NaN", "nan", "inf", "-inf", "N/A", "[N/A]", "None", "null", "-"])
def test_what_was_not_measured_is_none(tmp_path: Path, cell: str) -> None:
    (record,), notes = read(
        write_lines(tmp_path / "a.csv", HEADER, f"1,0,{cell},{cell},{cell},{cell},{cell}")
    )
    assert (record.allocated_bytes, record.reserved_bytes, record.used_bytes) == (None, None, None)
    assert (record.total_bytes, record.step) == (None, None)
    assert notes == ()


def test_a_capacity_of_nothing_was_not_measured(tmp_path: Path) -> None:
    (record,), _ = read(write_lines(tmp_path / "a.csv", HEADER, "1,0,5,,,0,"))
    assert record.total_bytes is None


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        ("1,0,-5,,,,", "line 3: allocated_bytes is '-5', expected bytes from 0"),
        ("1,0,99999999999999999999,,,,", "line 3: allocated_bytes is '99999999999999999999', expected bytes"),
        ("1,0,many,,,,", "line 3: allocated_bytes is 'many', expected bytes"),
        ("1,0,5,,x,,", "line 3: used_bytes is 'x', expected bytes"),
        ("1,0,5,,,,1.2.3", "line 3: step is '1.2.3', expected a whole number"),
        ("1,0,5,,,,-1", "line 3: step is '-1', expected a whole number from 0 on"),
        ("later,0,5,,,,", "line 3: time_s is 'later', expected seconds"),
        ("nan,0,5,,,,", "line 3: time_s is 'nan', expected seconds"),
        ("1750674600123,0,5,,,,", "line 3: time_s is '1750674600123', expected seconds (not ms)"),
        ("1,,5,,,,", "line 3: device is empty, expected a number or a name"),
        ("1,0,5", "line 3: 3 cells, expected 7"),
        ("1,0,5,,,,,,", "line 3: 9 cells, expected 7"),
        ('1,0,"5,,,,', "line 3: '1,0,\"5,,,,' has an unclosed quote"),
        ("1,0,\x1b[2J,,,,", r"line 3: allocated_bytes is '\x1b[2J', expected bytes"),
    ],
)
def test_a_record_that_cannot_be_used_is_counted_with_its_line(
    tmp_path: Path, row: str, complaint: str
) -> None:
    records, notes = read(write_lines(tmp_path / "a.csv", HEADER, "0,0,1,,,,", row, "2,0,3,,,,"))
    assert [record.allocated_bytes for record in records] == [1, 3]
    (note,) = notes
    assert note.startswith(f"1 record was left out: {complaint}")


def test_many_bad_records_are_one_sentence_a_kind(tmp_path: Path) -> None:
    rows = ["0,0,1,,,,", *["1,0,x,,,,"] * 1500, "1,,5,,,,"]
    _, notes = read(write_lines(tmp_path / "a.csv", HEADER, *rows))
    assert notes == (
        "1,500 records were left out, the first at line 3: allocated_bytes is 'x', expected bytes",
        "1 record was left out: line 1503: device is empty, expected a number or a name",
    )


def test_columns_of_others_are_ignored_and_said_once(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a.csv", "time_s,host,device,used_bytes,loss", "1,a,0,5,2.5", "2,a,0,6,2.4")
    records, notes = read(path)
    assert [record.used_bytes for record in records] == [5, 6]
    assert notes == ("columns that no series has were ignored: 'host', 'loss'",)


def test_joined_files_may_change_their_columns(tmp_path: Path) -> None:
    path = write_lines(
        tmp_path / "a.csv", HEADER, "0,0,1,,,,", HEADER, "1,0,2,,,,", "device,time_s,used_bytes", "0,2,9"
    )
    records, notes = read(path)
    assert [(record.time_s, record.allocated_bytes, record.used_bytes) for record in records] == [
        (0, 1, None),
        (1, 2, None),
        (2, None, 9),
    ]
    assert notes == ()


@pytest.mark.parametrize(
    ("last", "count", "is_told"),
    [
        ("2,0,30000", 3, False),
        ("2,0,3000", 2, True),
        ("2,0", 2, True),
        ("2,0,30000\n", 3, False),
        ("2,0,9\n", 3, False),
    ],
)
def test_a_last_line_that_was_cut_off_is_left_out(
    tmp_path: Path, last: str, count: int, is_told: bool
) -> None:
    path = tmp_path / "a.csv"
    path.write_text(f"time_s,device,allocated_bytes\n0,0,10000\n1,0,20000\n{last}")
    records, notes = read(path)
    assert len(records) == count
    assert any("line 4: the last line has no end" in note for note in notes) == is_told


def test_a_gzip_that_was_cut_off_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    whole = "\n".join([HEADER, *(f"{time},0,{time * 7919 % 10007},,,," for time in range(40_000))]).encode()
    path = tmp_path / "a.csv.gz"
    path.write_bytes(gzip.compress(whole)[:-5000])
    records, notes = read(path)
    assert 20_000 < len(records) < 40_000
    assert notes[0] == "the compressed file is cut short; the rest is missing"


def test_names_of_devices_are_numbered_and_kept(tmp_path: Path) -> None:
    uuid = "GPU-8f1c2d3e-0000-1111-2222-333344445555"
    rows = ["0,node3/gpu2,1", f"0,{uuid},2", "0,node3/gpu1,3", "1,node3/gpu2,4"]
    source, samples = play(write_lines(tmp_path / "a.csv", "time_s,device,allocated_bytes", *rows))
    devices = samples[0].devices
    assert [(device.index, source.label(device.uuid)) for device in devices] == [
        (0, "node3/gpu2"),
        (1, uuid),
        (2, "node3/gpu1"),
    ]
    assert [source.real_uuid(device.uuid) for device in devices] == [None, uuid, None]
    assert allocated(samples) == [(0.0, 1), (1.0, 4)]
    assert any(note.startswith("devices without a number were numbered in order") for note in source.notes)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (f"{HEADER}\n", "no record after the header; expected at least one line of data"),
        (
            f"{HEADER}\n1,0,x,,,,\n",
            "no usable record among 1; the first at line 2: allocated_bytes is",
        ),
        (
            "time_s,device\n1,0\n",
            "line 1: no column allocated_bytes or used_bytes; expected a header such as",
        ),
        ("time_s,allocated_bytes\n1,0\n", "line 1: no column device; expected a header such as"),
        ("time_s,device,device,used_bytes\n1,0,0,5\n", "line 1: the column device appears twice"),
        ("note\ntime_s,device,used_bytes\n1,0,5\n", "line 1: 'note' is not a header; expected a header"),
    ],
)
def test_a_file_without_a_usable_record_is_refused_in_a_line(
    tmp_path: Path, text: str, complaint: str
) -> None:
    path = tmp_path / "a.csv"
    path.write_text(text)
    with pytest.raises(InputFileError) as caught:
        open_series(path)
    assert str(caught.value).startswith(f"{path}: {complaint}")
    assert "\n" not in str(caught.value)


def test_a_file_without_line_ends_is_not_held_whole(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a.csv", HEADER, "1,0,5,,,,")
    with path.open("ab") as file:
        file.write(b"7" * 3_000_000)
    with pytest.raises(InputFileError, match="line 3: longer than 65,536 characters"):
        open_series(path)


def test_a_column_with_a_device_a_row_is_no_column_of_devices(tmp_path: Path) -> None:
    records, notes = read(
        write_lines(
            tmp_path / "a.csv", "time_s,device,used_bytes", *(f"{row},{row},5" for row in range(5000))
        )
    )
    assert len(records) == 4096
    assert notes[0].startswith(
        "904 records were left out, the first at line 4098: device '4096': too many devices"
    )
