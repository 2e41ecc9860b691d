"""Which parts of the live screen are shown as rows get few."""

from collections.abc import Callable

import pytest

from vramscope.tui.live.arrangement import Arrangement, Needs, arrange


def stacked(count: int) -> Callable[[int], int]:
    """Return the rows that devices use which are drawn with one to four rows each."""
    return lambda rows: count * max(1, min(4, rows // max(1, count)))


def needs_of(count: int, processes: int | None) -> Needs:
    return Needs(count, max(1, count), stacked(count), processes)


EIGHT = needs_of(8, 12)


def parts(arrangement: Arrangement) -> list[str]:
    names = [name.removeprefix("has_") for name in arrangement._fields[:6] if getattr(arrangement, name)]
    return [*names, "processes"] if arrangement.process_rows else names


@pytest.mark.parametrize(
    ("height", "shown"),
    [
        (1, []),
        (9, []),
        (10, ["host"]),
        (12, ["host", "title"]),
        (13, ["host", "title", "keys"]),
        (15, ["host", "title", "keys", "alerts"]),
        (24, ["host", "title", "keys", "alerts", "processes"]),
        (50, ["host", "title", "keys", "alerts", "gap", "processes"]),
    ],
)
def test_parts_go_in_the_documented_order(height: int, shown: list[str]) -> None:
    assert parts(arrange(height, EIGHT)) == shown


@pytest.mark.parametrize("count", [1, 8, 16])
@pytest.mark.parametrize("processes", [None, 0, 1, 200])
def test_devices_keep_what_they_need_or_all_but_the_verdict(count: int, processes: int | None) -> None:
    needs = needs_of(count, processes)
    for height in range(81):
        chosen = arrange(height, needs)
        left = height - chosen.chrome_rows - chosen.process_rows
        assert left >= needs.devices_least or (chosen.chrome_rows == 1 and not chosen.process_rows)


def test_notes_get_a_line_where_there_are_any_and_room_is_ample() -> None:
    noted = EIGHT._replace(has_notes=True)
    assert [arrange(height, noted).has_notes for height in (24, 27, 28, 50)] == [False, False, True, True]
    assert not arrange(50, EIGHT).has_notes


def test_no_list_means_no_rows() -> None:
    assert arrange(50, EIGHT._replace(processes=None)).process_rows == 0


def test_rows_that_the_devices_do_not_use_go_to_the_processes() -> None:
    chosen = arrange(70, needs_of(1, 30))
    assert chosen.process_rows == 31
    chosen = arrange(70, needs_of(8, 100))
    assert chosen.process_rows == 70 - chosen.chrome_rows - 32


def test_the_list_takes_no_row_for_which_devices_would_shrink() -> None:
    needs = Needs(8, 8, lambda rows: 31 if rows >= 32 else 24, 30)
    chosen = arrange(50, needs)
    assert 50 - chosen.chrome_rows - chosen.process_rows == 32


def test_devices_get_a_second_row_before_the_list_grows() -> None:
    chosen = arrange(24, EIGHT)
    assert (24 - chosen.chrome_rows - chosen.process_rows) // 8 == 2


def test_a_recording_without_a_host_gives_its_row_to_the_devices() -> None:
    needs = needs_of(8, 0)._replace(has_host=False)
    assert not arrange(50, needs).has_host
    assert arrange(50, needs).chrome_rows == arrange(50, needs_of(8, 0)).chrome_rows - 1


@pytest.mark.parametrize(("height", "rows"), [(3, 0), (5, 1), (24, 4), (80, 9)])
def test_servers_elsewhere_get_a_sixth_of_the_rows_at_most(height: int, rows: int) -> None:
    needs = needs_of(3, 12)._replace(servers=9)
    chosen = arrange(height, needs)
    assert chosen.server_rows == rows
    assert height - chosen.chrome_rows - chosen.process_rows >= min(3, height - 1)
