"""Files that nobody recorded: one clear line or counted damage, bounded memory, nothing executed."""

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vramscope.engine.errors import InputFileError
from vramscope.engine.recording import Recording, RecordingWriter
from vramscope.engine.recording.schema import TABLES

from .samples import IDENTITY, make_assessment, make_finding, make_sample

fuzz = settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])


@cache
def recorded(*, ticks: int = 1210, is_ended: bool = False) -> bytes:
    """Return a recording with findings and events, in blocks and rows; in blocks alone once it has ended."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.vscope"
        with RecordingWriter(path, IDENTITY) as writer:
            for tick in range(ticks):
                told = tick % 50 == 0
                writer.append(
                    make_sample(tick),
                    [make_finding(tick)] if told else [],
                    [make_assessment(tick)] if told else None,
                )
            writer.flush()
            writer._tidy()  # all in one file, rows still rows
            shutil.copy(path, path.with_name("copy.vscope"))
        return (path if is_ended else path.with_name("copy.vscope")).read_bytes()


def read_all(path: Path) -> tuple[int, bool]:
    """Read whatever is there; return how many samples there are, and whether anything was left out."""
    with Recording(path) as recording:
        count = len(list(recording.samples()))
        span = recording.span
        if span is not None:
            recording.sample_at(sum(span) / 2)
        recording.overview()
        recording.findings()
        list(recording.told())
        list(recording.events(kinds=["step", "oom"]))
        return count, recording.damage.sentence is not None


def refusal_of(path: Path) -> str:
    with pytest.raises(InputFileError) as refusal:
        read_all(path)
    text = str(refusal.value)
    assert text.startswith(str(path))
    assert "\n" not in text
    return text.removeprefix(f"{path}: ")


def test_the_recording_that_is_damaged_below_is_sound(tmp_path: Path) -> None:
    path = tmp_path / "run.vscope"
    path.write_bytes(recorded())
    assert read_all(path) == (1210, False)


@fuzz
@given(st.lists(st.tuples(st.integers(0, 1 << 30), st.integers(1, 255)), min_size=1, max_size=8))
def test_flipped_bits_are_refused_or_counted(tmp_path: Path, flips: list[tuple[int, int]]) -> None:
    path = tmp_path / "run.vscope"
    data = bytearray(recorded())
    for place, mask in flips:
        data[place % len(data)] ^= mask
    path.write_bytes(data)
    check_read(path)


@fuzz
@given(st.integers(0, 1 << 30), st.binary(max_size=64))
def test_a_file_that_was_cut_off_is_refused_or_counted(tmp_path: Path, length: int, tail: bytes) -> None:
    path = tmp_path / "run.vscope"
    data = recorded()
    path.write_bytes(data[: length % len(data)] + tail)
    check_read(path)


def check_read(path: Path) -> None:
    """Read it; a refusal must be one line that names the file."""
    try:
        read_all(path)
    except InputFileError as error:
        refusal = str(error)
    else:
        return
    assert refusal.startswith(str(path))
    assert "\n" not in refusal


def test_a_damaged_block_costs_its_own_samples_and_is_counted(tmp_path: Path) -> None:
    path = tmp_path / "run.vscope"
    path.write_bytes(recorded())
    change(path, "UPDATE blocks SET body = zeroblob(5000), told = 9, told_body = zeroblob(50) WHERE id = 1")
    with Recording(path) as recording:
        assert len(list(recording.samples())) == 610
        list(recording.told())
        assert recording.damage.sentence == "left out: 1 damaged block with 600 samples"


Change = Callable[[Path], None]


def change(path: Path, script: str) -> None:
    connection = sqlite3.connect(path)
    connection.executescript(script)
    connection.close()


@pytest.mark.parametrize(
    ("script", "told"),
    [
        ("PRAGMA user_version = 2000", "a recording of schema version 2; expected 1"),
        ("PRAGMA application_id = 1", "an SQLite database, but not a vramscope recording"),
        (
            "CREATE TRIGGER t AFTER INSERT ON meta BEGIN DELETE FROM meta; END",
            "has 't', which no recording",
        ),
        ("DROP TABLE findings; CREATE VIEW findings AS SELECT 1", "has 'findings', which no recording has"),
        ("CREATE VIRTUAL TABLE v USING fts5(a)", "which no recording has"),
        ("PRAGMA user_version = 1001; CREATE VIEW v AS SELECT 1", "has 'v', which no recording has"),
        ("DROP TABLE overview", "has no overview"),
        ("DELETE FROM meta", "damaged, its identity is missing"),
        ("UPDATE meta SET value = 'x'", "damaged, its identity is missing"),
    ],
)
def test_what_no_writer_makes_is_refused_in_one_line(tmp_path: Path, script: str, told: str) -> None:
    path = tmp_path / "run.vscope"
    path.write_bytes(recorded())
    change(path, script)
    assert told in refusal_of(path)


def test_a_newer_minor_version_with_a_table_of_its_own_is_read(tmp_path: Path) -> None:
    path = tmp_path / "run.vscope"
    path.write_bytes(recorded())
    change(path, "PRAGMA user_version = 1001; CREATE TABLE marks (id INTEGER PRIMARY KEY)")
    assert read_all(path) == (1210, False)


@pytest.mark.parametrize(
    "script",
    [
        "PRAGMA writable_schema = 1; UPDATE sqlite_master SET sql = CAST(x'41ff' AS TEXT)",
        "UPDATE nodes SET name = CAST(x'ff' AS TEXT)",
        "UPDATE blocks SET start_s = 'x', end_s = 'y'",
        "UPDATE blocks SET start_s = 9e999, end_s = -9e999",
        "UPDATE blocks SET samples = 1000000000000, raw_bytes = 1 << 60",
        "UPDATE blocks SET samples = 'many', layout = 'none'",
        "UPDATE blocks SET layout = 77",
        "UPDATE layouts SET columns = x'81a7'",
        "UPDATE blocks SET told = 1 << 40, told_body = zeroblob(50)",
        "UPDATE ticks SET sample = 'text', time_s = -1e308",
        "UPDATE ticks SET sample = zeroblob(1000)",
        "UPDATE nodes SET name = x'ff'",
        "DELETE FROM nodes",
        "UPDATE overview SET figures = 7",
        "UPDATE findings SET finding = x'c1'",
        "UPDATE findings SET finding = zeroblob(2000000)",
        "UPDATE meta SET value = zeroblob(2000000)",
        "UPDATE layouts SET columns = zeroblob(2000000)",
        "UPDATE events SET event = 'x', time_s = 'y'",
        "UPDATE devices SET device = 5",
        "DELETE FROM devices",
        "UPDATE told SET words = x'00'",
    ],
)
def test_rows_of_another_kind_are_left_out(tmp_path: Path, script: str) -> None:
    path = tmp_path / "run.vscope"
    path.write_bytes(recorded())
    change(path, script)
    check_read(path)


@pytest.mark.parametrize("kind", ["absent", "folder", "pipe", "empty", "text", "database"])
def test_what_is_no_recording_is_refused_in_one_line(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "run.vscope"
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind in ("empty", "text"):
        path.write_text("" if kind == "empty" else "some text\n" * 500)
    elif kind == "database":
        change(path, TABLES["meta"])
    assert refusal_of(path)


def test_rows_that_a_damaged_table_returns_again_and_again_are_read_once(tmp_path: Path) -> None:
    found = Path(__file__).parents[2] / "fuzz" / "finds" / "recording-numbers-that-go-back.bin"
    path = tmp_path / "run.vscope"
    shutil.copy(found, path)
    assert read_all(path) == (5, True)
