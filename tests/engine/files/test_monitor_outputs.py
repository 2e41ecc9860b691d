"""Files of other monitors: nvidia-smi's tables, dmon and pmon, gpustat's JSON, recordings of all-smi."""

import contextlib
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vramscope.engine.errors import InputFileError
from vramscope.engine.files.base.series_reader import SeriesReader, SeriesRecord
from vramscope.engine.files.series.format import FORMATS, recognize_series
from vramscope.engine.units import GIB, MIB

from ...vramscope.cli.running import call
from .monitor_outputs import ALL_SMI_HEADER, DMON, PMON, TABLE, all_smi, gpustat

AT_TEN = datetime(2025, 6, 23, 10, 30, tzinfo=UTC).timestamp()


@pytest.fixture(autouse=True)
def _utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "UTC")
        time.tzset()
        yield
    time.tzset()


def open_text(path: Path, text: str) -> SeriesReader:
    path.write_text(text)
    make = FORMATS[recognize_series(path)].open
    assert make is not None
    return make(path, None, None)


def read(path: Path, text: str) -> tuple[list[SeriesRecord], tuple[str, ...]]:
    reader = open_text(path, text)
    return list(reader.records()), reader.notes


def describe(records: list[SeriesRecord]) -> list[tuple[float, int, int | None]]:
    """Return second, device and MiB in use of each record."""
    return [
        (it.time_s, it.device.index, None if it.used_bytes is None else it.used_bytes // MIB)
        for it in records
    ]


def test_tables_of_nvidia_smi_are_a_series(tmp_path: Path) -> None:
    text = TABLE.format(second=0, used=2048) + TABLE.format(second=5, used=3072)
    records, notes = read(tmp_path / "smi.log", text)
    assert describe(records[:3]) == [(AT_TEN, 0, 2048), (AT_TEN, 1, 1024), (AT_TEN, 2, None)]
    assert describe(records[3:4]) == [(AT_TEN + 5, 0, 3072)]
    first, second, lost = records[:3]
    assert (first.device.name, first.total_bytes) == ("NVIDIA A100-SXM4-80GB", 80 * GIB)
    assert (first.utilization_percent, first.temperature_c, first.power_w) == (98.0, 34.0, 62.0)
    assert (second.utilization_percent, second.temperature_c) == (None, 41.0), "not the fan's share"
    assert (lost.state, lost.reason) == ("lost", "nvidia-smi reported ERR!")
    assert len(records) == 6, "MIG instances and processes are no GPUs"
    assert not [it for it in notes if "left out" in it]


def test_tables_without_dates_are_a_second_apart(tmp_path: Path) -> None:
    one = TABLE.format(second=0, used=2048).split("\n", 1)[1]
    records, notes = read(tmp_path / "smi.log", one * 3)
    assert [it.time_s for it in records if it.device.index == 0] == [0.0, 1.0, 2.0]
    assert "no times in it: reports are assumed to be one second apart" in notes


def test_rows_of_dmon_with_dates(tmp_path: Path) -> None:
    records, notes = read(tmp_path / "dmon.log", DMON)
    assert describe(records) == [
        (AT_TEN, 0, 2048),
        (AT_TEN, 1, None),
        (AT_TEN + 1, 0, 3072),
        (AT_TEN + 1, 1, 1024),
    ]
    assert (records[0].utilization_percent, records[0].temperature_c, records[0].power_w) == (
        98.0,
        34.0,
        62.0,
    )
    assert records[1].utilization_percent is None
    assert records[0].total_bytes is None, "dmon does not print it"
    assert not [it for it in notes if "left out" in it]


def test_rows_with_times_alone_go_on_past_midnight_and_without_times_by_seconds(tmp_path: Path) -> None:
    header = "#Time        gpu     fb\n#HH:MM:SS    Idx     MB\n"
    records, _ = read(tmp_path / "dmon.log", f"{header} 23:59:59      0    1\n 00:00:00      0    2\n")
    assert [it.time_s for it in records] == [86_399.0, 86_400.0]
    rows = "    0   1\n    1   5\n    0   2\n    1   6\n"
    records, notes = read(tmp_path / "dmon.log", f"# gpu     fb\n# Idx     MB\n{rows}")
    assert describe(records) == [(0.0, 0, 1), (0.0, 1, 5), (1.0, 0, 2), (1.0, 1, 6)]
    assert notes[0].startswith("no times in it")


def test_processes_of_pmon_are_summed_for_each_gpu(tmp_path: Path) -> None:
    records, notes = read(tmp_path / "pmon.log", PMON)
    assert describe(records) == [(0.0, 0, 3072), (0.0, 1, 0), (1.0, 0, 4096), (1.0, 1, 0)]
    assert "memory of a GPU is the sum of its processes" in notes


@pytest.mark.parametrize(
    ("text", "verb"), [("# gpu   pwr gtemp\n", "dmon"), ("# gpu   pid type sm\n", "pmon")]
)
def test_a_monitor_without_memory_is_refused_with_the_flags_that_print_it(
    tmp_path: Path, text: str, verb: str
) -> None:
    with pytest.raises(InputFileError, match=rf"no column fb.*nvidia-smi {verb} -s um -o DT"):
        open_text(tmp_path / "dmon.log", f"{text}    0   1 2\n")


def test_the_sum_is_unknown_where_the_memory_of_a_process_is(tmp_path: Path) -> None:
    rows = "    0   11   C   10   a\n    0   12   C    -   b\n    1   13   C    5   c\n"
    records, _ = read(tmp_path / "pmon.log", f"# gpu  pid type   fb command\n{rows}")
    assert describe(records) == [(0.0, 0, None), (0.0, 1, 5)]


def test_queries_of_gpustat_one_after_the_other(tmp_path: Path) -> None:
    records, notes = read(tmp_path / "gpustat.json", gpustat(0) + gpustat(1, 4096) + gpustat(2)[:200])
    assert describe(records) == [
        (AT_TEN + 0.25, 0, 2048),
        (AT_TEN + 0.25, 1, None),
        (AT_TEN + 1.25, 0, 4096),
        (AT_TEN + 1.25, 1, None),
    ]
    assert records[0].device.uuid.startswith("GPU-1111aaaa")
    assert (records[0].total_bytes, records[1].state) == (80 * GIB, "lost")
    assert "the last line has no end" in notes[-1]


def test_devices_stay_the_same_where_another_host_reports_between(tmp_path: Path) -> None:
    text = gpustat(0) + gpustat(1, host="node2") + gpustat(2)
    records, _ = read(tmp_path / "gpustat.json", text)
    labels = [it.device.label for it in records]
    assert labels == ["0", "1", "node2/0", "node2/1", "0", "1"], "the second of each has no UUID: it is lost"
    assert len({it.device.uuid for it in records}) == 4


def test_a_query_that_is_none_is_counted(tmp_path: Path) -> None:
    records, notes = read(tmp_path / "gpustat.json", gpustat(0) + '{"gpus": 3}\n' + gpustat(1))
    assert len(records) == 4
    assert "1 record was left out: query 2" in notes[-1]


def test_frames_of_all_smi(tmp_path: Path) -> None:
    index = '{"schema":1,"index":true,"seq":1,"byte_offset":0}\n'
    text = (
        ALL_SMI_HEADER + all_smi(0) + index + all_smi(1, 3 << 30) + '{"schema":1,"timestamp":"x","gpus":[]}\n'
    )
    records, notes = read(tmp_path / "trace.ndjson", text + all_smi(2)[:90])
    assert describe(records) == [(AT_TEN, 0, 2048), (AT_TEN + 1, 0, 3072)]
    assert (records[0].total_bytes, records[0].power_w) == (80 * GIB, 62.5)
    assert [it for it in notes if "timestamp is 'x'" in it]
    assert [it for it in notes if "the last line has no end" in it]


def test_frames_of_several_hosts_keep_their_devices_apart(tmp_path: Path) -> None:
    text = ALL_SMI_HEADER + "".join(
        all_smi(second, host=host) for second in (0, 1) for host in ("node1", "node2")
    )
    records, _ = read(tmp_path / "trace.ndjson", text)
    assert describe(records) == [
        (AT_TEN, 0, 2048),
        (AT_TEN, 1, 2048),
        (AT_TEN + 1, 0, 2048),
        (AT_TEN + 1, 1, 2048),
    ]
    assert [it.device.label for it in records[:2]] == ["0", "node2/0"]


FILES = {
    "nvidia-smi table": TABLE.format(second=0, used=2048),
    "nvidia-smi dmon": DMON,
    "gpustat JSON": gpustat(0) + gpustat(1),
    "all-smi recording": ALL_SMI_HEADER + all_smi(0) + all_smi(1),
}


@pytest.mark.parametrize("name", FILES)
def test_every_file_becomes_a_recording_and_a_report(name: str, tmp_path: Path) -> None:
    path = tmp_path / "monitor.txt"
    path.write_text(FILES[name])
    assert recognize_series(path) == name
    done = call("import", str(path), "-o", str(tmp_path / "run.vscope"))
    assert (done.code, "internal" in done.stderr) == (0, False), done.stderr
    done = call("profile", "--input", str(path), "--json")
    assert done.code == 0, done.stderr
    assert '"avg_allocated_memory"' in done.stdout or '"used"' in done.stdout


@settings(max_examples=60)
@given(
    name=st.sampled_from([*FILES]),
    at=st.floats(0, 1),
    damage=st.text(alphabet='|#{}[]":,0123456789-MiB NaN\n\t', max_size=12),
    removed=st.integers(0, 30),
)
def test_damaged_files_are_read_or_refused(
    name: str, at: float, damage: str, removed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    text = FILES[name]
    place = int(at * len(text))
    path = tmp_path_factory.mktemp("damaged") / "monitor.txt"
    records: list[SeriesRecord] = []
    with contextlib.suppress(InputFileError):
        records, _ = read(path, text[:place] + damage + text[place + removed :])
    assert all(it.used_bytes is None or 0 <= it.used_bytes < 2**50 for it in records)
