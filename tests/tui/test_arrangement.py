"""Which parts of the live screen are shown as rows get few."""

import pytest

from vramscope.tui.arrangement import Arrangement, Needs, arrange

EIGHT = Needs(devices_least=8, devices_natural=40, processes=12)


def parts(arrangement: Arrangement) -> list[str]:
    names = [name.removeprefix("has_") for name in arrangement._fields[:4] if getattr(arrangement, name)]
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
        (50, ["host", "title", "keys", "alerts", "processes"]),
    ],
)
def test_parts_go_in_the_documented_order(height: int, shown: list[str]) -> None:
    assert parts(arrange(height, EIGHT)) == shown


@pytest.mark.parametrize("count", [0, 1, 8, 16])
@pytest.mark.parametrize("processes", [None, 0, 1, 200])
@pytest.mark.parametrize("is_focused", [False, True])
def test_devices_keep_what_they_need_or_all_but_the_verdict(
    count: int, processes: int | None, is_focused: bool
) -> None:
    needs = Needs(max(1, count), 5 * count, processes, is_focused)
    for height in range(81):
        chosen = arrange(height, needs)
        left = height - chosen.chrome_rows - chosen.process_rows
        assert left >= needs.devices_least or (chosen.chrome_rows == 1 and not chosen.process_rows)


def test_no_list_means_no_rows() -> None:
    assert arrange(50, EIGHT._replace(processes=None)).process_rows == 0


def test_the_part_in_use_gets_the_larger_share() -> None:
    many = EIGHT._replace(processes=40)
    assert arrange(40, many._replace(is_table_focused=True)).process_rows > arrange(40, many).process_rows


def test_rows_that_the_devices_do_not_need_go_to_the_processes() -> None:
    assert arrange(70, Needs(1, 16, 30)).process_rows == 31
