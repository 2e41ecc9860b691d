"""Memory snapshots as series: levels worked backwards from the final state, of each device by itself."""

import gzip
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vramscope.engine.errors import InputFileError
from vramscope.engine.files import snapshot_series
from vramscope.engine.files.memory_snapshot import convert_tree
from vramscope.engine.sampling.series_source import open_series

from .series_files import allocated, play
from .snapshots import BASE, MIB, Row, block, event, free, segment, snapshot, write_snapshot

NOW_US = 1_724_696_104_000_000


def ring() -> list[Row]:
    """Return the newest events of a device that ended with 6 MiB allocated of 20 MiB."""
    return [
        event("free_requested", BASE + 90 * MIB, 4 * MIB, NOW_US),
        event("free_completed", BASE + 90 * MIB, 4 * MIB, NOW_US),
        event("segment_free", BASE + 90 * MIB, 10 * MIB, NOW_US + 1000),
        event("alloc", BASE, 6 * MIB, NOW_US + 2000),
        event("oom", 7 * MIB, 30 * MIB, NOW_US + 2500),
        event("alloc", BASE + 8 * MIB, 5 * MIB, NOW_US + 3000),
        event("snapshot", 0, 0, NOW_US + 3100),
        event("free_requested", BASE + 8 * MIB, 5 * MIB, NOW_US + 3500),
    ]


@pytest.mark.parametrize("is_packed", [False, True])
def test_levels_are_absolute_and_errors_told(tmp_path: Path, is_packed: bool) -> None:
    segments = [
        segment([block(6 * MIB), free(14 * MIB)]),
        segment([block(3 * MIB), block(MIB, "active_pending_free")], BASE + 400 * MIB, device=1),
    ]
    root = snapshot(segments, ring(), trace_alloc_overflowed=[True, False])
    path = write_snapshot(tmp_path, root)
    if is_packed:
        path.write_bytes(gzip.compress(path.read_bytes()))
    source, samples = play(path)
    assert (source.format, source.clock, source.interval_s) == ("memory snapshot", "wall", 0.001)
    assert [size for _, size in allocated(samples)] == [0, 0, 6 * MIB, 6 * MIB]
    first, last = samples[0].devices[0].allocator, samples[3].devices[0].allocator
    assert first is not None
    assert last is not None
    assert (first.reserved_bytes, last.reserved_bytes) == (30 * MIB, 20 * MIB)
    assert (last.allocated_max_bytes, last.ooms, first.ooms) == (11 * MIB, 1, None)
    assert samples[0].time_s == NOW_US / 1e6 + 0.001
    assert allocated(samples, 1) == [(samples[-1].time_s, 3 * MIB)]
    notes = "\n".join(source.notes)
    assert "device 0: the last 8 events since 2024-08-" in notes
    assert "older ones were dropped" in notes
    assert "device 0 ran out of memory: 30 MiB were asked for, 7 MiB free on it" in notes


def test_without_history_there_is_one_sample(tmp_path: Path) -> None:
    source, samples = play(write_snapshot(tmp_path, [segment([block(6 * MIB), free(2 * MIB)])], protocol=2))
    assert (source.clock, allocated(samples)) == ("trace", [(0.0, 6 * MIB)])
    assert source.notes[0].startswith("no history of allocations in it")


def test_events_without_times_stand_in_their_order(tmp_path: Path) -> None:
    trace = [{key: value for key, value in each.items() if key != "time_us"} for each in ring()]
    source, samples = play(write_snapshot(tmp_path, snapshot([segment([block(6 * MIB)])], trace)))
    assert (source.clock, len(samples)) == ("trace", len(trace))
    assert "events without times: shown in their order, 1 ms apart" in source.notes


def test_a_modelled_card_is_called_simulated(tmp_path: Path) -> None:
    root = snapshot([segment([block(6 * MIB)])], ring())
    root["allocator_settings"]["vramscope_simulated"] = {"total_bytes": 24 << 30, "name": "modelled card"}
    source, samples = play(write_snapshot(tmp_path, root))
    device = samples[0].devices[0]
    assert (device.kind, device.name, device.memory.total_bytes) == ("simulated", "modelled card", 24 << 30)
    assert "capacity was not recorded" not in source.notes


@pytest.mark.parametrize(
    ("root", "why"),
    [
        (snapshot([]), "the memory snapshot is empty: no segments and no events; expected one"),
        (
            snapshot([segment([block(2**52)])]),
            "device 0: 4,503,599,627,370,496 bytes, expected memory of a device",
        ),
        (snapshot([segment([block(MIB)], device=500)]), "device 500: expected numbers from 0 to 127"),
        ({"segments": 5}, "at segments: expected a list, got an integer"),
    ],
)
def test_what_cannot_be_a_device_is_refused(tmp_path: Path, root: object, why: str) -> None:
    path = write_snapshot(tmp_path, root)
    with pytest.raises(InputFileError) as caught:
        open_series(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert why in str(caught.value)


SIZES = st.one_of(st.integers(0, 2**24), st.integers(0, 2**63 - 1))
ACTIONS = st.sampled_from(
    [
        "alloc",
        "free_requested",
        "free_completed",
        "segment_alloc",
        "segment_free",
        "segment_map",
        "oom",
        "new",
    ]
)
EVENTS = st.lists(
    st.builds(event, ACTIONS, st.integers(0, 2**64 - 1), SIZES, st.integers(-1, 2**62)), max_size=8
)


@given(traces=st.lists(EVENTS, max_size=3), sizes=st.lists(SIZES, max_size=4), device=st.integers(0, 200))
def test_any_snapshot_is_levels_of_memory_or_refused(
    traces: list[list[Row]], sizes: list[int], device: int
) -> None:
    segments = [
        segment([block(size)], number << 40, device=device * number) for number, size in enumerate(sizes)
    ]
    tree = convert_tree(snapshot(segments, *traces))
    with pytest.MonkeyPatch.context() as patch:
        # What the process that decodes would hand back, without a process for each example.
        patch.setattr(snapshot_series, "read_memory_snapshot", lambda path: tree)
        reader = snapshot_series.SnapshotSeries(Path("any.pickle"))
        records = list(reader.records())
    assert [record.time_s for record in records] == sorted(record.time_s for record in records)
    for record in records:
        for size in (record.allocated_bytes, record.reserved_bytes, record.allocated_max_bytes):
            assert size is None or 0 <= size < 1 << 50
    assert all(note.isprintable() for note in (*reader.notes, reader.explain_absence()))
