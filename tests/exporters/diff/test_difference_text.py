"""A comparison as text: short for many ranks, in order of what matters, harmless on a terminal."""

from tests.analyzers.diff.runs import summarize, train
from vramscope.analyzers.diff import compare_runs
from vramscope.exporters.diff.text import describe_difference


def test_of_many_ranks_each_has_a_line_and_the_first_and_largest_stands_above() -> None:
    a = summarize(train(ranks=range(70), steps=range(1, 31)))
    b = summarize(
        train(lambda rank, step: 10 + rank / 10 * (step > 15), ranks=range(2, 72), steps=range(1, 31))
    )
    told = compare_runs(a, b, files=("a", "b\x1b[2J"), formats=("x", "y"))
    text = describe_difference(told, 80)
    lines = text.splitlines()
    rows = [line for line in lines if line.startswith("  rank ")]
    assert rows[0] == "  rank 69  step 16     allocated peak  10.0 GiB  16.9 GiB  +6.9 GiB  +69.0"
    assert rows[1].startswith("  rank 68 ")
    assert len(rows) == 64
    assert "  and 4 more, which --json lists" in lines
    assert "only in A, and not compared: rank 0, rank 1" in lines
    assert "\x1b" not in text
