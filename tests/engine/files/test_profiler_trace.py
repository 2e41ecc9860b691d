"""Traces of torch.profiler: memory after each event, of whatever shape the file is, and nothing else."""

import gzip
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vramscope.engine.errors import InputFileError
from vramscope.engine.files.base.packed_file import CHUNK_BYTES
from vramscope.engine.files.profiler_trace import ProfilerTrace
from vramscope.engine.sampling.series_source import open_series

from .series_files import allocated, play

MIB = 1 << 20
NOW_US = 1724696104648464
NOISE = {
    "ph": "X",
    "cat": "cpu_op",
    "name": "aten::mm",
    "pid": 1,
    "tid": 1,
    "ts": 5,
    "dur": 2,
    "args": {"a": "[1]"},
}


def memory(ts: float, total: int | None, *, device: int = 0, kind: int = 1, **more: Any) -> dict[str, Any]:
    """Return an event as Kineto writes it."""
    totals = {} if total is None else {"Total Reserved": total + 9, "Total Allocated": total}
    args = {**totals, "Bytes": 512, "Addr": 1 << 46, "Device Id": device, "Device Type": kind, "Ev Idx": 1}
    return {
        "ph": "i",
        "cat": "cpu_instant_event",
        "s": "t",
        "name": "[memory]",
        "ts": ts,
        "args": args,
        **more,
    }


def write_trace(path: Path, events: list[Any], *, indent: int | None = None, **head: Any) -> Path:
    """Write a trace whose events stand where Kineto has them, before the last key."""
    text = json.dumps({"schemaVersion": 1, **head, "traceEvents": events, "traceName": "x"}, indent=indent)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


@pytest.mark.parametrize(("name", "indent"), [("t.json", None), ("t.json", 2), ("t.json.gz", 4)])
def test_memory_events_become_ticks_of_each_device(tmp_path: Path, name: str, indent: int | None) -> None:
    events = [
        memory(NOW_US + 2100, 30),
        NOISE,
        memory(NOW_US, 10),
        memory(NOW_US + 100, 70),
        memory(NOW_US + 300, 20),
        memory(NOW_US + 900, 5, device=1),
        memory(NOW_US, 99, device=-1, kind=0),
        {**memory(NOW_US + 2200, 30), "name": "[OutOfMemory]"},
        {"args": memory(NOW_US + 3200, 8)["args"], "ts": NOW_US + 3200, "name": "[memory]"},
    ]
    properties = [{"id": 0, "name": "NVIDIA H100", "totalGlobalMem": 80 << 30, "computeMajor": 9}]
    told = {"backend": "nccl", "rank": 3, "world_size": 8}
    path = write_trace(
        tmp_path / name, events, indent=indent, deviceProperties=properties, distributedInfo=told
    )
    source, samples = play(path)
    assert (source.format, source.clock, source.interval_s) == ("profiler trace", "wall", 0.001)
    assert [size for _, size in allocated(samples)] == [20, 20, 30, 8]
    assert [size for _, size in allocated(samples, 1)] == [5]
    device = samples[2].devices[0]
    assert device.allocator is not None
    assert (device.allocator.reserved_bytes, device.allocator.ooms) == (39, 1)
    assert samples[0].devices[0].allocator is not None
    assert samples[0].devices[0].allocator.allocated_max_bytes == 70
    assert (device.name, device.memory.total_bytes) == ("NVIDIA H100", 80 << 30)
    assert device.rank is not None
    assert (device.rank.rank, device.rank.world_size) == (3, 8)
    notes = "\n".join(source.notes)
    assert "events of host memory were left out: 1" in notes
    assert "device 0 ran out of memory: 512 B were asked for, 30 B allocated" in notes


@pytest.mark.parametrize("padding", [None, 0, CHUNK_BYTES])
def test_times_count_from_the_base_that_the_file_names(tmp_path: Path, padding: int | None) -> None:
    base = '"baseTimeNanoseconds": 1790857026000000000, '
    path = write_trace(tmp_path / "t.json", [memory(4436694520452.017, 5)])
    text = path.read_text()
    if padding is None:
        path.write_text(text.replace('"traceEvents"', base + '"traceEvents"'))
    else:
        # At the end of the file, or split where a chunk of it ends.
        at = text.index('"traceName"')
        path.write_text(text[:at] + " " * max(0, padding - at - 25) + base + text[at:])
    source, samples = play(path)
    assert source.clock == "wall"
    assert samples[0].time_s == pytest.approx(1795293720.521, abs=1e-6)


@pytest.mark.parametrize(
    ("interval_s", "told"),
    [(None, "1 ms, each with last and maximum; no tick is shorter"), (0.02, "--interval 1ms` keeps more")],
)
def test_events_that_share_a_tick_are_said_to_be_folded(
    tmp_path: Path, interval_s: float | None, told: str
) -> None:
    events = [memory(NOW_US + 50 * n, MIB * (9000 if n == 777 else n)) for n in range(2000)]
    source = open_series(write_trace(tmp_path / "t.json", events), interval_s=interval_s)
    samples = list(source.samples())
    (note,) = [it for it in source.notes if "merged" in it]
    assert note.startswith(f"2,000 events are merged into {len(samples):,} ticks of ")
    assert told in note
    most = [it.devices[0].allocator.allocated_max_bytes or 0 for it in samples if it.devices[0].allocator]
    assert max(most) == 9000 * MIB


def test_where_each_event_has_a_tick_nothing_is_folded(tmp_path: Path) -> None:
    source = open_series(write_trace(tmp_path / "t.json", [memory(NOW_US + 3000 * n, n) for n in range(50)]))
    assert [it.devices[0].allocator for it in source.samples() if it.devices[0].allocator]
    assert not any("merged" in it for it in source.notes)


def test_events_are_found_wherever_a_chunk_ends(tmp_path: Path) -> None:
    events: list[Any] = []
    for number in range(3000):
        events += [memory(number * 1000, number), {**NOISE, "args": {"x": "y" * (number % 173)}}]
    path = write_trace(tmp_path / "t.json", events)
    assert path.stat().st_size > 3 * CHUNK_BYTES
    source, samples = play(path)
    assert [size for _, size in allocated(samples)] == list(range(3000))
    assert all(later > earlier for (earlier, _), (later, _) in pairwise(allocated(samples)))
    assert source.clock == "trace"


def test_a_trace_that_is_cut_off_gives_what_it_has(tmp_path: Path) -> None:
    path = write_trace(tmp_path / "t.json", [memory(0, 5), memory(2000, 6), memory(4000, 7)])
    path.write_bytes(path.read_bytes()[: path.read_bytes().rindex(b"Addr")])
    source, samples = play(path)
    assert [size for _, size in allocated(samples)] == [5, 5, 6]
    assert any("this name is outside of any event" in note for note in source.notes)


@pytest.mark.parametrize("name", ["t.json", "t.json.gz"])
def test_a_trace_that_was_not_written_to_its_end_says_so(tmp_path: Path, name: str) -> None:
    said = "the trace is cut short; the rest is missing"
    path = write_trace(tmp_path / name, [memory(0, 5), memory(2000, 6), NOISE])
    whole = path.read_bytes()
    assert said not in play(path)[0].notes
    text = (gzip.decompress(whole) if path.suffix == ".gz" else whole) + b"\n"
    text = text[: text.rindex(b"aten::mm")]
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    source, samples = play(path)
    assert [size for _, size in allocated(samples)][-1] == 6
    assert said in source.notes


@pytest.mark.parametrize(
    ("events", "why"),
    [
        ([NOISE], "no [memory] event; expected a trace of torch.profiler with profile_memory=True"),
        ([memory(0, 5, device=-1, kind=0)], "all 1 memory events are of the host; expected some of a GPU"),
        ([memory(0, None)], "Total Allocated is missing, expected bytes"),
        ([memory(0, -5)], "Total Allocated is -5, expected bytes of a device"),
        ([memory(float("inf"), 5)], "ts is inf, expected microseconds"),
        ([{**memory(0, 5), "args": [1]}], "args is missing"),
        ([memory(0, 5, device=-3)], "Device Id is -3, expected a number from 0 to 127"),
        ([memory(0, 5, device=True)], "Device Id is True"),
        ([memory(0, True)], "Total Allocated is True"),
        ([memory(0, 10**400)], "Total Allocated is 1000"),
        ([memory(10**400, 5)], "ts is 1000"),
    ],
)
def test_a_trace_without_memory_says_so(tmp_path: Path, events: list[Any], why: str) -> None:
    path = write_trace(tmp_path / "t.json", events)
    with pytest.raises(InputFileError) as caught:
        open_series(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert why in str(caught.value)


@given(edits=st.lists(st.tuples(st.integers(0, 2000), st.binary(max_size=6), st.integers(0, 9)), max_size=6))
def test_damage_leaves_events_out_and_never_makes_one_up(
    edits: list[tuple[int, bytes, int]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = write_trace(
        tmp_path_factory.getbasetemp() / "damaged.json", [memory(at * 1000, at) for at in range(8)]
    )
    data = path.read_bytes()
    for at, new, removed in edits:
        data = data[:at] + new + data[at + removed :]
    path.write_bytes(data)
    reader = ProfilerTrace(path)
    assert all(0 <= (record.allocated_bytes or 0) < 1 << 50 for record in reader.records())
    assert all(note.isprintable() for note in (*reader.notes, reader.explain_absence()))


def test_an_error_of_an_absurd_size_is_still_an_error(tmp_path: Path) -> None:
    failed = {**memory(0, 5), "name": "[OutOfMemory]"}
    failed["args"]["Bytes"] = 10**400
    source, samples = play(write_trace(tmp_path / "t.json", [failed]))
    assert samples[0].devices[0].allocator is not None
    assert samples[0].devices[0].allocator.ooms == 1
    assert "device 0 ran out of memory: an unknown size was asked for, 5 B allocated" in source.notes


def test_reading_can_be_followed_and_ended(tmp_path: Path) -> None:
    path = write_trace(tmp_path / "t.json", [memory(at * 1000, at) for at in range(5000)])
    shares: list[float] = []
    open_series(path, on_read=shares.append).close()
    assert len(shares) > 3
    assert shares == sorted(shares)
    assert (shares[0], shares[-1]) == (0.0, 1.0)

    def end(share: float) -> None:
        if share:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        open_series(path, on_read=end)


ANY = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.text(max_size=5),
    st.lists(st.none(), max_size=2),
)
KEYS = st.sampled_from(
    ["ts", "name", "args", "Total Reserved", "Total Allocated", "Bytes", "Device Id", "Device Type"]
)


@given(changes=st.lists(st.dictionaries(KEYS, ANY, max_size=3), max_size=6), is_oom=st.booleans())
def test_any_event_is_a_level_or_counted(
    changes: list[dict[str, Any]], is_oom: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    events = []
    for number, change in enumerate(changes):
        event = memory(number * 1000, number)
        event["name"] = "[OutOfMemory]" if is_oom else "[memory]"
        for key, value in change.items():
            (event if key in event else event["args"])[key] = value
            event["args"] = event["args"] if isinstance(event["args"], dict) else {"Bytes": value}
        events.append(event)
    path = write_trace(tmp_path_factory.getbasetemp() / "any-trace.json", events)
    reader = ProfilerTrace(path)
    for record in reader.records():
        for size in (record.allocated_bytes, record.reserved_bytes, record.allocated_max_bytes):
            assert size is None or 0 <= size < 1 << 50
    assert all(note.isprintable() for note in (*reader.notes, reader.explain_absence()))
