"""Small files that would keep a reader busy, or become gigabytes: refused with the bound that was met."""

import gzip
import os
import time
import zlib
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from vramscope.cli.application import run
from vramscope.engine.errors import InputFileError
from vramscope.engine.files.base import series_reader
from vramscope.engine.files.base.packed_file import PackedFile
from vramscope.engine.files.case_table import MOST_COLUMNS, MOST_ROWS, read_case_table
from vramscope.engine.files.cluster_file import read_cluster_file
from vramscope.engine.files.flight_record import read_flight_record
from vramscope.engine.files.memory_snapshot import read_memory_snapshot
from vramscope.engine.files.module_memory import read_module_memory
from vramscope.engine.files.phases.finding import read_phase_file
from vramscope.engine.files.profiler_trace import ProfilerTrace
from vramscope.engine.files.run_config import read_run_config
from vramscope.engine.files.series.open import SeriesFile
from vramscope.engine.files.sweep.model import read_configuration_log
from vramscope.engine.sampling.series_source import open_series
from vramscope.exporters.prometheus.endpoint import read_web_config

# Contents are made by their tests: every worker imports this file, and one makes each of them.
MOST_S = 2.0
"""CPU of one refusal."""
MIB = 1 << 20
TABLES: dict[str, tuple[Callable[[], str], str]] = {
    "columns": (lambda: ",".join(f"c{n}" for n in range(250_000)) + "\n1\n", "more than 1,000 columns"),
    "columns in a quoted header": (
        lambda: '"a\nb",' + ",".join(f"c{n}" for n in range(250_000)),
        "more than 1,000 columns",
    ),
    "columns of one name": (lambda: ",".join("c" * MOST_COLUMNS) + "\n1\n", "two columns are named 'c'"),
    "short rows": (
        lambda: ",".join(f"c{n}" for n in range(MOST_COLUMNS)) + "\n" + "1\n" * 50_000,
        "more than 2,000,000 cells",
    ),
    "rows": (lambda: "a,b\n" + "1,2\n" * (MOST_ROWS + 1), "more than 100,000 rows"),
    "cells": (lambda: "a,b\n" + "," * 3_500_000, "3500001 cells for 2 columns"),
    "a long cell": (lambda: 'a,b\n"' + "x" * 3_500_000, "field larger than field limit"),
    "a trace in one line": (
        lambda: '{"traceEvents":[' + '{"ph":"X","ts":1},' * 200_000,
        "more than 1,000 columns",
    ),
}


@pytest.mark.parametrize(("make_content", "told"), TABLES.values(), ids=TABLES)
def test_a_table_without_bounds_is_refused_at_once(
    make_content: Callable[[], str], told: str, tmp_path: Path
) -> None:
    path = tmp_path / "cases.csv"
    path.write_text(make_content())
    started_s = time.process_time()
    with pytest.raises(InputFileError) as caught:
        read_case_table(path)
    assert time.process_time() - started_s < MOST_S
    assert told in str(caught.value)
    assert len(str(caught.value)) < 300


def pack_repeated(unit: bytes, count: int, head: bytes = b"") -> bytes:
    """Return a gzip file of `head` and `count` times `unit`, compressed once; its end is missing."""
    packer = zlib.compressobj(6, zlib.DEFLATED, wbits=16 + zlib.MAX_WBITS)
    start = packer.compress(head) + packer.flush(zlib.Z_FULL_FLUSH)
    return start + (packer.compress(unit) + packer.flush(zlib.Z_FULL_FLUSH)) * count


PACKED: dict[str, tuple[Callable[[], bytes], str]] = {
    "tiny members": (
        lambda: gzip.compress(b"x") * 100_000,
        "more than 1,000 gzip members of less than 256 bytes",
    ),
    "empty members": (
        lambda: gzip.compress(b"") * 100_000,
        "more than 1,000 gzip members of less than 256 bytes",
    ),
    "a bomb": (lambda: pack_repeated(bytes(MIB), 300), "unpacks to more than 250 times its size"),
    "bombs": (lambda: gzip.compress(bytes(2 * MIB), 6) * 150, "unpacks to more than 250 times its size"),
}


@pytest.mark.parametrize(("make_content", "told"), PACKED.values(), ids=PACKED)
def test_a_packed_file_that_no_writer_makes_is_refused_at_once(
    make_content: Callable[[], bytes], told: str, tmp_path: Path
) -> None:
    path = tmp_path / "a.json.gz"
    path.write_bytes(make_content())
    started_s = time.process_time()
    with pytest.raises(InputFileError) as caught:
        for _ in PackedFile(path).chunks():
            pass
    assert time.process_time() - started_s < MOST_S
    assert told in str(caught.value)


def play(path: Path) -> None:
    for _ in open_series(path).samples():
        pass


MEGATRON = "[Rank 0] (after 1 iterations) memory (MB) | allocated: 1.0 | max allocated: 2.0 | reserved: 3.0\n"
BUSY: dict[str, tuple[str, Callable[[], str], Callable[[Path], object]]] = {
    "blanks in a key of YAML": ("a.yaml", lambda: f"a{' ' * MIB}b", read_web_config),
    "blanks in a cluster file": ("a.yaml", lambda: f"a{' ' * (MIB - 100)}b", read_cluster_file),
    "empty lines in a run": ("a.txt", lambda: "\n" * MIB, read_run_config),
    "empty lines in a log of phases": ("a.log", lambda: "\n" * 4 * MIB, read_phase_file),
    "blank lines in a log of phases": ("a.log", lambda: f"{' ' * 1000}\n" * 4000, read_phase_file),
    "charts without an end": ("a.html", lambda: f"var option_{'0' * 32} = {{\n" * 80_000, read_module_memory),
    "short lines in a log of a framework": ("a.log", lambda: MEGATRON + "x\n" * 2_000_000, play),
    "names of errors": ("a.log", lambda: "a." * MIB, partial(read_configuration_log, has_failed=True)),
}


@pytest.mark.parametrize(("name", "make_content", "read"), BUSY.values(), ids=BUSY)
def test_no_pattern_takes_the_square_of_a_file(
    name: str, make_content: Callable[[], str], read: Callable[[Path], object], tmp_path: Path
) -> None:
    path = tmp_path / name
    path.write_text(make_content())
    started_s = time.process_time()
    with suppress(InputFileError):
        read(path)
    assert time.process_time() - started_s < MOST_S


def test_members_padding_and_a_cut_are_read_as_gzip_reads_them(tmp_path: Path) -> None:
    path, text = tmp_path / "a.gz", b"line\n" * 100_000
    path.write_bytes(gzip.compress(text) + gzip.compress(b"") + gzip.compress(b"end") + bytes(1000))
    file = PackedFile(path)
    assert b"".join(file.chunks()) == text + b"end"
    assert not file.is_cut
    path.write_bytes(gzip.compress(text) + gzip.compress(text)[:-4])
    file = PackedFile(path)
    assert b"".join(file.chunks()) == text * 2
    assert file.is_cut


def write_log_of_many_devices(path: Path, count: int) -> Path:
    """Write a log of `nvidia-smi` with so many indices, of which the first 4,096 are read."""
    lines = (f"2026/01/01 00:00:{n * 50 // count:02d}.000, {n}, A, 2 MiB, 2 MiB" for n in range(count))
    path.write_text("\n".join(("timestamp, index, name, memory.used [MiB], memory.total [MiB]", *lines, "")))
    return path


MANY_DEVICES, MORE_THAN_IS_READ = 40_000, 5_000


def test_a_log_of_tens_of_thousands_of_devices_is_read_soon(tmp_path: Path) -> None:
    path = write_log_of_many_devices(tmp_path / "smi.csv", MANY_DEVICES)
    source, started_s = open_series(path), time.process_time()
    assert len({device.uuid for it in source.samples() for device in it.devices}) == 4096
    assert time.process_time() - started_s < 1.5 * MOST_S
    assert any("expected at most 4,096" in note for note in source.notes)


@pytest.mark.parametrize("verb", ["profile", "oom", "leak", "fragment"])
def test_a_report_of_thousands_of_devices_does_not_take_the_square_of_them(
    verb: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_log_of_many_devices(tmp_path / "smi.csv", MORE_THAN_IS_READ)
    started_s = time.process_time()
    assert run([verb, "--input", str(path)]) in (0, 1, 3)
    assert time.process_time() - started_s < MOST_S
    assert "expected at most 4,096" in capsys.readouterr().err


def test_two_runs_of_thousands_of_devices_do_not_take_the_square_of_them(tmp_path: Path) -> None:
    path = write_log_of_many_devices(tmp_path / "smi.csv", MORE_THAN_IS_READ)
    started_s = time.process_time()
    assert run(["diff", str(path), str(path)]) == 0
    assert time.process_time() - started_s < 2 * MOST_S


TRACE = '{"traceEvents":['
CHART = f'var option_{"0" * 32} = {{"series":[{{"name":"params_memory_sunburst","data":[{{"name":"'
REFUSED: dict[str, tuple[str, Callable[[], str | bytes], str, Callable[[Path], object]]] = {
    "empty readings": (
        "a.json",
        lambda: '{"snapshots":{"0":[' + "{}," * 1_300_000 + "{}]}}",
        "100,000 records",
        play,
    ),
    "a list for each device": (
        "a.json",
        lambda: '{"snapshots":{' + ",".join(f'"{n}":[{{}}]' for n in range(300_000)) + "}}",
        "100,000 records cannot be used",
        play,
    ),
    "lines of status without one": (
        "a.json",
        lambda: '{"schema":"vramscope.status/1","time":1,"node":"a"}\n' + "{}\n" * 1_300_000,
        "100,000 records cannot be used",
        play,
    ),
    "lines without a figure": (
        "a.csv",
        lambda: "timestamp, index, memory.used [MiB], memory.total [MiB]\n" + ",,,\n" * 1_000_000,
        "100,000 records cannot be used",
        play,
    ),
    "a series without a figure": (
        "a.csv",
        lambda: "time_s,device,allocated_bytes\n" + ",,\n" * 1_300_000,
        "100,000 records cannot be used",
        play,
    ),
    "a name for each device": (
        "a.csv",
        lambda: "time_s,device,allocated_bytes\n" + "".join(f"{n},d{n},1\n" for n in range(250_000)),
        "100,000 records cannot be used",
        play,
    ),
    "empty rows": (
        "a.json",
        lambda: "[[]," + "[]," * 1_300_000 + "[]]",
        "100,000 records cannot be used",
        play,
    ),
    "closing brackets": (
        "a.json",
        lambda: "[[1,2]" + "]" * 4_000_000,
        "is not a list of whole numbers",
        play,
    ),
    "names of events alone": (
        "a.json",
        lambda: TRACE + '"[memory]",' * 360_000,
        "more than 1,000 names [memory] are outside of events",
        play,
    ),
    "nested names of events": (
        "a.json",
        lambda: TRACE + '{"[memory]":' * 330_000,
        "more than 1,000 names [memory] are outside of events",
        play,
    ),
    "long lists before names of events": (
        "a.json",
        lambda: TRACE + ('{"x":[' + "0," * 3000 + '"[memory]",' * 100) * 560,
        "more than 1,000 names [memory] are outside of events",
        play,
    ),
    "one name for many layers": (
        "a.html",
        lambda: (
            CHART + "n" * 2_000_000 + '","children":[' + '{"name":"b"},' * 70_000 + '{"name":"b"}]}]}]\n};'
        ),
        "the paths of its layers exceed 64 MiB in total",
        read_module_memory,
    ),
    "lists in a flight record": (
        "a.json",
        lambda: '{"schema":"vramscope.flight/1","samples":[' + "[]," * 2_200_000 + "[]]}",
        "more than 1,048,576 lists and objects",
        read_flight_record,
    ),
    "members of a flight record": (
        "a.json.gz",
        lambda: gzip.compress(b'{"schema":"vramscope.flight/1"') + gzip.compress(b" ") * 100_000,
        "more than 1,000 gzip members of less than 256 bytes",
        read_flight_record,
    ),
    "a bomb for a flight record": (
        "a.json.gz",
        lambda: pack_repeated(b"a" * MIB, 240, b'{"schema":"vramscope.flight/1","x":"'),
        "unpacks to more than 250 times its size",
        read_flight_record,
    ),
    "members of a memory snapshot": (
        "a.pickle.gz",
        lambda: gzip.compress(b"\x80\x04](") + gzip.compress(b"]") * 100_000,
        "more than 1,000 gzip members of less than 256 bytes",
        read_memory_snapshot,
    ),
    "a bomb for a memory snapshot": (
        "a.pickle.gz",
        lambda: pack_repeated(b"N0" * (MIB // 2), 120, b"\x80\x04"),
        "unpacks to more than 250 times its size",
        read_memory_snapshot,
    ),
}


@pytest.mark.parametrize(("name", "make_content", "told", "read"), REFUSED.values(), ids=REFUSED)
def test_a_file_of_what_cannot_be_used_is_not_read_to_its_end(
    name: str,
    make_content: Callable[[], str | bytes],
    told: str,
    read: Callable[[Path], object],
    tmp_path: Path,
) -> None:
    path = tmp_path / name
    content = make_content()
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    del content
    before, started_s = os.times(), time.process_time()
    with pytest.raises(InputFileError) as caught:
        read(path)
    after = os.times()
    children_s = after.children_user + after.children_system - before.children_user - before.children_system
    assert time.process_time() - started_s + children_s < MOST_S
    assert told in str(caught.value)
    assert len(str(caught.value)) < 400


def test_many_damaged_lines_among_good_ones_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(series_reader, "MOST_LEFT_OUT", 1000)
    path = tmp_path / "a.csv"
    path.write_text("time_s,device,allocated_bytes\n" + "x,0,1\n1,0,1\n1,0,1\n1,0,1\n1,0,1\n" * 1001)
    reader = SeriesFile(path)
    assert sum(1 for _ in reader.records()) == 4004
    assert any("1,001 records were left out" in note for note in reader.notes)


def test_the_events_within_an_event_are_part_of_it(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    inner = '"args":{"Device Type":1,"Device Id":0,"Total Allocated":7,"x":["[memory]","[memory]"]}'
    path.write_text(f'{TRACE}{{"name":"[memory]","ts":1,{inner}}},{{"name":"[memory]","ts":5,{inner}}}]}}')
    reader = ProfilerTrace(path)
    assert [it.allocated_bytes for it in reader.records()] == [7]
    assert not any("left out" in note for note in reader.notes)


NESTED = "[" * 400_000
CASES = "num_layers,hidden,heads,seq,mbs,vocab_size,arguments\n"
TRACE_NAME = "memory_trace_rank0_wd8_tp2_pp4_l40_bs1.json"
STATE = (
    "Memory State:\ntime: 1.0\n---summary---\ntotal_memory: 1.00 MB\nparams_memory: 1.00 MB, grads_memory: "
    "1.00 MB, os_params_memory: 0.00 MB, os_state_memory: 0.00 MB, activation_memory: 0.00 MB\n"
)


def write_layers() -> str:
    return "".join(f"layer: param_mem.{n}, layer_mem: 0.00 MB, total_mem: 1.00 MB\n" for n in range(50_000))


HOSTILE: dict[str, tuple[tuple[str, ...], str, Callable[[], str]]] = {
    "many cases": (("estimate", "--batch"), "a.csv", lambda: CASES + "2,64,2,8,1,100,\n" * 6_000),
    "a case nested deeply": (
        ("estimate", "--batch"),
        "a.csv",
        lambda: f'{CASES}2,64,2,8,1,100,"{{""x"":{NESTED}"\n',
    ),
    "a case of many flags": (
        ("estimate", "--batch"),
        "a.csv",
        lambda: CASES + '2,64,2,8,1,100,"{' + ",".join(f'""k{n}"":1' for n in range(70_000)) + '}"\n',
    ),
    "a cell of many digits": (
        ("estimate", "--batch"),
        "a.csv",
        lambda: CASES + f"{'9' * 900_000},64,2,8,1,100,\n",
    ),
    "a trace nested deeply": (("sweep",), TRACE_NAME, lambda: '{"0":{"samples":' + "[" * 4_000_000),
    "empty samples": (
        ("sweep",),
        TRACE_NAME,
        lambda: '{"0":{"samples":[' + "{}," * 1_300_000 + '{}],"peak_allocated_MB":1}}',
    ),
    "many iterations": (
        ("sweep",),
        TRACE_NAME,
        lambda: "{" + ",".join(f'"{n}":{{"samples":[],"peak_allocated_MB":1}}' for n in range(80_000)) + "}",
    ),
    "short lines in a list of a sweep": (("sweep",), "successful_configs.log", lambda: "x\n" * 2_000_000),
    "a long line in a list of a sweep": (("sweep",), "failed_configs.log", lambda: "tp=2 pp=4 " * 400_000),
    "many moments": (("modules",), "memory.log", lambda: STATE * 22_000),
    "many layers": (
        ("modules",),
        "memory.log",
        lambda: STATE + "---Layout---\nparams_layout:\n" + write_layers(),
    ),
    "a deep layer": (
        ("modules",),
        "memory.log",
        lambda: (
            f"{STATE}---Layout---\nparams_layout:\nlayer: param_mem{'.a' * 1_900_000}, layer_mem: 0.00 MB\n"
        ),
    ),
    "names of states alone": (("modules",), "memory.log", lambda: "Memory State:\n" * 280_000),
    "a header nested deeply": (
        ("modules",),
        "module_memory.jsonl",
        lambda: '{"schema":"vramscope.modules/1","x":' + NESTED,
    ),
    "empty moments": (
        ("modules",),
        "module_memory.jsonl",
        lambda: '{"schema":"vramscope.modules/1"}\n' + "{}\n" * 1_300_000,
    ),
    "a graph nested deeply": (("plan", "--model"), "a.json", lambda: '{"nodes":{},"edges":[],"x":' + NESTED),
    "a report nested deeply": (
        ("profile", "--input"),
        "a.json",
        lambda: '{"timestamp":"x","devices":{"0":' + NESTED,
    ),
    "a long line of commas and quotes": (("inspect",), "a.json", lambda: '{"x":"' + "," * 400_000),
}


@pytest.mark.parametrize(("command", "name", "make_content"), HOSTILE.values(), ids=HOSTILE)
def test_a_verb_answers_a_hostile_file_soon_and_without_an_error_of_its_own(
    command: tuple[str, ...],
    name: str,
    make_content: Callable[[], str],
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / name
    path.write_text(make_content())
    started_s = time.process_time()
    status = run([*command, str(tmp_path if command == ("sweep",) else path)])
    assert time.process_time() - started_s < 1.5 * MOST_S
    told = capfd.readouterr().err
    assert status in (0, 2), told
    assert "internal error" not in told
