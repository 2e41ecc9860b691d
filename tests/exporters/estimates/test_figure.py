"""The figure of an estimate: nothing is missing from its bars, and it is the same every time."""

from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import given, settings

from vramscope.analyzers.planning.theory import ParallelLayout, TrainingSetup, estimate_stages
from vramscope.analyzers.planning.theory.configs import TrainingRun
from vramscope.analyzers.planning.theory.presets import PRESETS
from vramscope.exporters.estimates import SHARES, build_estimate, draw_estimate

from ...analyzers.planning.theory.runs import Run, runs
from ...vramscope.cli.running import call
from ..figures.vision import VISIONS, measure_distance


@given(runs())
@settings(max_examples=60, deadline=None)
def test_every_part_is_in_one_shade_of_the_bar(made: Run) -> None:
    for memory in estimate_stages(made.shape, made.layout, made.setup):
        for part in memory.peak.parts:
            found = [share for share in SHARES if part.name in share.names or part.group in share.names]
            assert len(found) == 1, part


@pytest.mark.parametrize("vision", VISIONS)
def test_no_two_shades_of_a_bar_look_alike(vision: str) -> None:
    for first, second in combinations(SHARES, 2):
        distance = measure_distance(first.colour, second.colour, VISIONS[vision])
        assert distance >= 20 or first.hatch != second.hatch, (first.label, second.label)


def test_the_file_has_the_same_bytes_every_time_and_outline_fonts(tmp_path: Path) -> None:
    setup = TrainingSetup(seq_length=4096, micro_batch_size=1, micro_batches=8)
    layout = ParallelLayout(tensor=2, pipeline=4)
    whole = TrainingRun(name="llama2-7b", shape=PRESETS["llama2-7b"], layout=layout, setup=setup)
    report = build_estimate(whole, estimate_stages(whole.shape, layout, setup), 80 << 30)
    for name in ("a.pdf", "b.pdf"):
        draw_estimate(report, tmp_path / name)
    assert (tmp_path / "a.pdf").read_bytes() == (tmp_path / "b.pdf").read_bytes()
    assert b"/Type3" not in (tmp_path / "a.pdf").read_bytes()


def test_a_name_that_is_no_picture_is_refused() -> None:
    outcome = call("estimate", "--model", "gpt2", "--figure", "x.gif")
    assert outcome.code == 2
    assert "expected a name that ends in .pdf, .png or .svg, or a folder" in outcome.stderr
