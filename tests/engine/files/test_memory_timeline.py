"""What export_memory_timeline writes: both files of one profile tell the same levels and categories."""

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vramscope.engine.errors import InputFileError
from vramscope.engine.files.profiler_trace import MemoryTimeline
from vramscope.engine.sampling.series_source import open_series

from .series_files import allocated, play

pytestmark = pytest.mark.loads_torch

KIB = 1 << 10
START_US = 1_724_696_104_000_000
SIZES = [
    [0, 100 * KIB, 0, 0, 0, 0, 0, 0, 0],
    [0, 100 * KIB, 0, 0, 0, 50 * KIB, 0, 0, 0],
    [0, 100 * KIB, 0, 0, 0, 50 * KIB, 30 * KIB, 0, 2 * KIB],
    [0, 100 * KIB, 60 * KIB, 0, 0, 0, 30 * KIB, 0, 2 * KIB],
]
RAW = [
    [-1, 1, 100 * KIB, 0],
    [START_US * 1000, 2, 0, 4],
    [(START_US + 1000) * 1000, 2, 50 * KIB, 4],
    [(START_US + 2000) * 1000, 2, 30 * KIB, 5],
    [(START_US + 2000) * 1000, 2, 2 * KIB, 7],
    [(START_US + 3000) * 1000, 4, -50 * KIB, 4],
    [(START_US + 3000) * 1000, 3, -0, 2],
    [(START_US + 3000) * 1000, 2, 60 * KIB, 1],
]
TOTALS = [100 * KIB, 150 * KIB, 182 * KIB, 192 * KIB]


def write_timeline(path: Path, content: object) -> Path:
    """Write a timeline, compressed where its name says so."""
    text = json.dumps(content).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    return path


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("t.json", [[START_US + at * 1000 for at in range(4)], SIZES]),
        ("t.json.gz", [[START_US + at * 1000 for at in range(4)], SIZES]),
        ("t.raw.json.gz", RAW),
    ],
)
def test_levels_and_categories_are_those_of_the_profile(tmp_path: Path, name: str, content: object) -> None:
    source, samples = play(write_timeline(tmp_path / name, content))
    assert (source.format, source.clock, source.interval_s) == ("memory timeline", "wall", 0.001)
    assert [size for _, size in allocated(samples)] == TOTALS
    assert samples[0].time_s == START_US / 1e6 + 0.001
    assert (
        "at its peak of 192 KiB: 100 KiB parameters, 60 KiB optimizer state, 30 KiB gradients, "
        "2 KiB of unknown kind"
    ) in source.notes


def test_what_torch_writes_is_read(tmp_path: Path) -> None:
    import torch
    from torch.profiler import ProfilerActivity, profile

    layer = torch.nn.Linear(256, 256)
    with profile(
        activities=[ProfilerActivity.CPU], profile_memory=True, record_shapes=True, with_stack=True
    ) as profiled:
        layer(torch.randn(64, 256)).sum().backward()
    for name in ("t.json", "t.raw.json.gz"):
        with pytest.warns(FutureWarning):
            profiled.export_memory_timeline(str(tmp_path / name), device="cpu")
    ends = []
    for name in ("t.json", "t.raw.json.gz"):
        source, samples = play(tmp_path / name)
        peak = max(
            it.devices[0].allocator.allocated_max_bytes or 0 for it in samples if it.devices[0].allocator
        )
        ends.append((peak, allocated(samples)[-1][1]))
        assert "257 KiB parameters" in " ".join(source.notes)
        assert not any("left out:" in note for note in source.notes)
    assert ends[0] == ends[1]
    assert ends[0][0] >= 2 * 256 * 257 * 4
    profiled.export_chrome_trace(str(tmp_path / "trace.json"))
    with pytest.raises(InputFileError, match=r"memory events are of the host; expected some of a GPU"):
        open_series(tmp_path / "trace.json")


def test_rows_that_make_no_sense_are_counted(tmp_path: Path) -> None:
    sizes = [*SIZES, [0, 1], [-1] * 9, [2**60] * 9]
    times = [START_US + at * 1000 for at in range(9)]
    source, samples = play(write_timeline(tmp_path / "t.json", [times, sizes]))
    assert [size for _, size in allocated(samples)] == TOTALS
    notes = "\n".join(source.notes)
    assert "2 records were left out, the first at $[1][4]: [0, 1], expected 9 sizes in bytes" in notes
    assert "$[1][6]: 9,223,372,036,854,775,808 bytes in all, expected memory of a device" in notes
    assert "$[1][7]: 2 times have no sizes; the file is cut short" in notes


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[[1, 2], 5]", "byte 7: ', 5' is not a list of whole numbers; expected [times, sizes]"),
        ("[[1, 2], [[[1]]]]", "is not a list of whole numbers"),
        ('[[1, "x"]]', "byte 0: '[[1, \"x\"' is not a list of whole numbers"),
        ("[[1.5, 2, 3, 4]]", "is not a list of whole numbers"),
        ("[[]]", "no levels; $[0]: [], expected [time, action, bytes, category]"),
        ("[[1, 9, 5, 0]]", "expected [time, action, bytes, category]"),
        ("[[1, 2, -5, 0]]", "-5 bytes in all"),
        ("[[1", "no levels; expected [times, sizes]"),
        (f"[[{10**22}]]", "is not a list of whole numbers"),
    ],
)
def test_what_is_no_timeline_is_refused_with_its_place(tmp_path: Path, text: str, why: str) -> None:
    path = tmp_path / "t.json"
    path.write_text(text)
    with pytest.raises(InputFileError) as caught:
        open_series(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert why in str(caught.value)


NUMBERS = st.one_of(st.integers(-2, 9), st.integers(-(2**70), 2**70), st.floats(), st.text(max_size=3))


@given(content=st.recursive(NUMBERS, st.lists, max_leaves=30), cut=st.integers(0, 60))
def test_any_lists_are_levels_or_refused(
    content: object, cut: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.json"
    text = json.dumps([content])
    path.write_text(text[: max(2, len(text) - cut)])
    reader = MemoryTimeline(path)
    records, refusal = [], ""
    try:
        records = list(reader.records())
    except InputFileError as error:
        refusal = str(error)
    assert refusal.startswith(f"{path}: byte ") or records or reader.explain_absence()
    assert all(0 <= (record.allocated_bytes or 0) < 1 << 50 for record in records)
