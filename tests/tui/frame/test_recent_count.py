"""A running total, and how much of it is of the last minute."""

from vramscope.tui.screens.snapshot_screen import RecentCount


def test_only_the_last_minute_counts() -> None:
    count = RecentCount(60.0)
    assert count.grow(0, 0.0) == 0
    assert count.grow(3, 10.0) == 3
    assert count.grow(8, 40.0) == 8
    assert count.grow(8, 69.9) == 8
    assert count.grow(8, 70.0) == 5
    assert count.grow(8, 99.9) == 5
    assert count.grow(8, 100.0) == 0
    assert count.grow(9, 500.0) == 1


def test_a_total_that_stands_still_takes_no_memory() -> None:
    count = RecentCount(60.0)
    for second in range(1000):
        count.grow(7, float(second))
    assert len(count._totals) <= 2
