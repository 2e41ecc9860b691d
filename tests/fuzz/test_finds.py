"""What fuzzing has found, read again: each was mended, and stays so."""

from pathlib import Path

import pytest

from . import corpus
from .targets import TARGETS, read_oom_text

FINDS = sorted((Path(__file__).parent / "finds").glob("*.bin"))
"""Named by their target: `series-what.bin`."""


@pytest.mark.parametrize("path", FINDS, ids=lambda path: path.stem)
def test_what_was_found_is_read_or_refused_in_one_line(path: Path) -> None:
    name = max((it for it in TARGETS if path.stem.startswith(f"{it}-")), key=len)
    TARGETS[name].replay(path.read_bytes())


@pytest.mark.parametrize("name", sorted(TARGETS))
def test_each_target_reads_the_sound_inputs_that_fuzzing_begins_with(name: str) -> None:
    seeds = list(TARGETS[name].seeds())
    assert seeds
    for seed in seeds:
        TARGETS[name].replay(seed)


@pytest.mark.parametrize("name", sorted(TARGETS))
def test_each_target_reads_what_fuzzing_reached(name: str) -> None:
    kept = corpus.load(name)
    assert kept, "no inputs are kept: run `make fuzz` and `python -m tests.fuzz --keep`"
    for data in kept:
        TARGETS[name].replay(data)


def test_the_inputs_that_are_kept_execute_all_that_the_others_do() -> None:
    inputs = [b"nothing", b"something else", next(iter(TARGETS["oom-text"].seeds()))]
    chosen = corpus.choose(read_oom_text, inputs)
    assert chosen == [inputs[0], inputs[2]]
    assert corpus.choose(read_oom_text, chosen) == chosen
