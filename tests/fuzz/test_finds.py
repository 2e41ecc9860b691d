"""What fuzzing has found, read again: each was mended, and stays so."""

from pathlib import Path

import pytest

from .targets import TARGETS

FINDS = sorted((Path(__file__).parent / "finds").glob("*.bin"))
"""Named by their target: `series-what.bin`."""


@pytest.mark.parametrize("path", FINDS, ids=lambda path: path.stem)
def test_what_was_found_is_read_or_refused_in_one_line(path: Path) -> None:
    name = max((it for it in TARGETS if path.stem.startswith(f"{it}-")), key=len)
    TARGETS[name].run(path.read_bytes())


@pytest.mark.parametrize("name", sorted(TARGETS))
def test_each_target_reads_the_sound_inputs_that_fuzzing_begins_with(name: str) -> None:
    seeds = list(TARGETS[name].seeds())
    assert seeds
    for seed in seeds:
        TARGETS[name].run(seed)
