"""Files of one rank each, as one node on one clock."""

from itertools import pairwise
from pathlib import Path

import pytest

from vramscope.engine.errors import InputFileError
from vramscope.engine.model import Sample
from vramscope.engine.sampling.series_source import JoinedSeries, open_series

HEADER = "time_s,device,used_bytes\n"


def _join(folder: Path, **files: str) -> tuple[JoinedSeries, list[Sample]]:
    sources = []
    for name, lines in files.items():
        (folder / name).write_text(HEADER + lines)
        sources.append((name, open_series(folder / name)))
    joined = JoinedSeries(sources, "job")
    return joined, [sample for _, sample in joined.samples()]


def test_ranks_that_are_read_at_about_one_time_are_one_sample_and_keep_their_own_times(
    tmp_path: Path,
) -> None:
    joined, samples = _join(
        tmp_path,
        rank0="".join(f"{tick},0,{tick}\n" for tick in range(5)),
        rank1="".join(f"{tick + 0.25},0,{tick + 100}\n" for tick in range(5)),
        late="3.3,0,7\n4.3,0,8\n",
    )
    read = [
        [(it.index, it.memory.used_bytes, sample.time_s - (it.age_s or 0)) for it in sample.devices]
        for sample in samples
    ]
    assert read[0] == [(0, 0, 0.0), (1, 100, 0.25)]
    assert read[3] == [(0, 3, 3.0), (1, 103, 3.25), (2, 7, pytest.approx(3.3))]
    assert len(read) == 5
    assert {sample.node for sample in samples} == {"job"}
    assert [it.uuid for it in samples[4].devices] == ["name-rank0/0", "name-rank1/0", "name-late/0"]
    assert joined.notes == (
        "devices of several files were named by their files: rank0/0 is 0, rank1/0 is 1, late/0 is 2",
    )


def test_no_reading_is_lost_and_no_two_samples_are_of_one_time(tmp_path: Path) -> None:
    fast = [round(tick * 0.1, 3) for tick in range(50)]
    slow = [0.05, 0.45, 0.5, 1.9, 2.0, 2.05, 4.0]
    _, samples = _join(
        tmp_path,
        fast="".join(f"{time},0,1\n" for time in fast),
        slow="".join(f"{time},0,1\n" for time in slow),
    )
    times = [sample.time_s for sample in samples]
    assert all(earlier < later for earlier, later in pairwise(times))
    read = sorted(round(it.time_s - (device.age_s or 0), 3) for it in samples for device in it.devices)
    assert read == sorted(fast + slow)


def test_clocks_that_cannot_be_one_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputFileError, match=r"b: its times count from its own start, .*a from 1970"):
        _join(tmp_path, a="1700000000,0,1\n", b="1,0,1\n")


def test_what_was_read_when_the_next_sample_begins_belongs_to_that_one(tmp_path: Path) -> None:
    _, samples = _join(
        tmp_path,
        other="0.5,0,1\n1.5,0,1\n2.5,0,1\n",
        one="".join(f"{time},0,1\n" for time in (0, 0.5, 1, 2, 3, 4, 5)),
    )
    assert [(it.time_s, len(it.devices)) for it in samples[:2]] == [(0.0, 1), (0.5, 2)]
