"""Columns of a line: padded, cut, and left out where there is no room."""

from vramscope.tui.draw.columns import fit_columns, join_columns, measure_columns


def test_a_column_is_as_wide_as_its_longest_text_in_cells() -> None:
    assert measure_columns([["name", "MiB"], ["层", "1,024"]]) == (4, 5)


def test_names_stand_at_the_left_and_numbers_at_the_right() -> None:
    assert fit_columns(["ab", "12"], [4, 4], "lr", "…") == ["ab  ", "  12"]
    assert join_columns(["ab", "12"], [3, 3], "lr", "…", gap=2) == "ab    12"


def test_a_text_that_is_too_long_is_cut() -> None:
    assert join_columns(["abcdef", "12"], [4, 2], "lr", "…") == "abc… 12"


def test_numbers_without_room_are_left_out_whole() -> None:
    assert join_columns(["ab", "123456", "7"], [2, 6, 1], "lrr", "…", room=8) == "ab"


def test_the_last_name_is_cut_to_the_room_if_a_part_says_something() -> None:
    assert join_columns(["ab", "some long name"], [2, 14], "ll", "…", room=10) == "ab some l…"
    assert join_columns(["ab", "some long name"], [2, 14], "ll", "…", room=8) == "ab"
