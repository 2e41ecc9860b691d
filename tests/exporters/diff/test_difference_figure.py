"""The figure of two runs: both, their difference, and where they part; the same bytes every time."""

from pathlib import Path

import pytest

from tests.analyzers.diff.runs import summarize, train
from vramscope.analyzers.diff import Comparison, compare_runs
from vramscope.engine.errors import OutputFileError
from vramscope.exporters.diff import text as diff
from vramscope.exporters.diff.text import draw_difference


def compare(*, ranks: tuple[int, ...] = (0, 1)) -> Comparison:
    a = summarize(train(ranks=(0, 1)))
    b = summarize(train(lambda rank, step: 10 + 3 * (rank == 1 and step >= 60), ranks=ranks))
    return compare_runs(a, b, files=("a.vscope", "b.vscope"))


def test_both_runs_their_difference_and_the_step_are_drawn(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    drawn = []
    monkeypatch.setattr(diff, "save_file", lambda page, *rest: drawn.append(page))
    draw_difference(compare(), tmp_path / "d.pdf")
    above, below = drawn[0].axes
    assert above.get_title(loc="left") == "rank 1: allocated peak of A, a.vscope, and B, b.vscope"
    a, b, parting = above.lines
    assert (a.get_ydata()[70], b.get_ydata()[70], parting.get_xdata()[0]) == (10.0, 13.0, 60.0)
    assert a.get_linestyle() != b.get_linestyle()
    apart = next(line for line in below.lines if line.get_label() == "B - A")
    assert (apart.get_ydata()[0], apart.get_ydata()[-1]) == (0.0, 3.0)
    assert below.get_xlabel() == "step"


def test_the_file_has_the_same_bytes_every_time_and_outline_fonts(tmp_path: Path) -> None:
    for name in ("a.pdf", "b.pdf", "c.png"):
        draw_difference(compare(), tmp_path / name)
    data = (tmp_path / "a.pdf").read_bytes()
    assert data == (tmp_path / "b.pdf").read_bytes()
    assert b"/FontFile2" in data
    assert b"/Type3" not in data
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.pdf", "b.pdf", "c.png"]


def test_runs_without_a_common_rank_have_a_page_that_says_so_and_a_missing_folder_is_told(
    tmp_path: Path,
) -> None:
    draw_difference(compare(ranks=(7, 8)), tmp_path / "d.pdf")
    assert (tmp_path / "d.pdf").stat().st_size > 1000
    with pytest.raises(OutputFileError, match="no such folder"):
        draw_difference(compare(), tmp_path / "none" / "d.pdf")
