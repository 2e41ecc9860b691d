"""The model against recordings from real cards (`vectors.py` says how to add one)."""

from dataclasses import replace
from pathlib import Path

import pytest

from .cards import MIB
from .test_snapshot import record
from .vectors import FOLDER, find_deviations, make_vector, read_vector, write_vector

RECORDINGS = sorted(FOLDER.glob("*.json.gz"))


def test_there_are_recordings() -> None:
    assert RECORDINGS != []


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.name.removesuffix(".json.gz"))
def test_the_model_meets_what_a_real_card_held(path: Path) -> None:
    vector = read_vector(path)
    assert vector.checks != []
    assert find_deviations(vector) == []


def test_a_recording_that_the_model_does_not_meet_is_told() -> None:
    vector = read_vector(RECORDINGS[0])
    count, allocated, reserved = next(check for check in vector.checks if None not in check)
    assert allocated is not None
    assert reserved is not None
    wrong = replace(vector, checks=[(count, allocated + 512, reserved)])
    assert find_deviations(wrong) == [f"event {count}: {allocated} allocated, the card had {allocated + 512}"]
    wrong = replace(vector, checks=[(count, None, int(reserved * 1.02))])
    assert len(find_deviations(wrong)) == 1
    assert "no room" in find_deviations(replace(vector, capacity_bytes=MIB))[0]


def test_a_snapshot_becomes_a_recording(tmp_path: Path) -> None:
    """The model's own snapshot has PyTorch's schema, so the way to a recording can be walked here."""
    allocator = record()
    first = allocator.malloc(30 * MIB)
    allocator.malloc(1000, stream=3)
    allocator.free(first)
    vector = make_vector(
        allocator.snapshot(), allocator.memory_stats(), source="here", capacity_bytes=200 * MIB
    )
    assert vector.events == [(0, 30 * MIB, 0), (1, 1000, 3), (0, 0, 0)]
    assert vector.checks == [(1, None, 30 * MIB), (2, None, 32 * MIB), (3, 1024, 32 * MIB)]
    write_vector(tmp_path / "one.json.gz", vector)
    assert read_vector(tmp_path / "one.json.gz") == vector
    assert find_deviations(vector) == []
