"""The axis of two runs: what it says stands whole or not at all, wherever they part."""

import re

import pytest

from vramscope.tui.draw.glyphs import UNICODE
from vramscope.tui.draw.run_graph import Runs, draw_runs

GIB = float(1 << 30)


@pytest.mark.parametrize("cells", [24, 40, 66, 78, 118])
@pytest.mark.parametrize("parts_at", [0, 1, 12, 150, 300, 338, 420, 590, 598, 599, None])
def test_labels_of_the_axis_are_whole_and_never_touch(cells: int, parts_at: int | None) -> None:
    steps = range(600)
    runs = Runs(
        [float(step) for step in steps],
        [GIB for _ in steps],
        [GIB + (GIB if parts_at is not None and step >= parts_at else 0.0) for step in steps],
        None if parts_at is None else float(parts_at),
        "step 0",
        "step 599",
        "they diverge at step 337",
    )
    axis = "".join(span.text for span in draw_runs(runs, (cells, 8), UNICODE)[-1])
    words = re.sub(rf"[{UNICODE.rule}{UNICODE.tick} ]+", " ", axis).strip()
    whole = re.sub("(they diverge at step 337|step 599|step 0)", "", words)
    assert whole.strip() == "", axis
    assert len(axis) <= cells
    assert parts_at is None or cells < 60 or "they diverge at step 337" in axis
