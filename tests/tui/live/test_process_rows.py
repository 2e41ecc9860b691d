"""Rows of the process table: what they say, how they are filtered and sorted."""

import msgspec
import pytest

from tests.tui.canned import make_device, make_process
from tests.tui.canned_ranks import make_job
from vramscope.engine.model import ProcessReading
from vramscope.tui.live.process_table import (
    COLUMNS,
    ProcessRow,
    SortOrder,
    collect_rows,
    filter_rows,
    find_terms,
    sort_rows,
)


def rows_of(*processes: ProcessReading) -> list[ProcessRow]:
    return collect_rows([msgspec.structs.replace(make_device(0), processes=processes)])


def texts(row: ProcessRow) -> list[str]:
    return [column.text(row) for column in COLUMNS]


def test_a_row_says_who_holds_how_much_of_which_device() -> None:
    (row,) = rows_of(make_process(4001, 40_756, command="python  train.py\n--lr 1"))
    assert texts(row) == ["0", "4001", "user1", "39.8 GiB", "50 %", "python train.py --lr 1"]


def test_what_is_unknown_is_never_zero() -> None:
    (row,) = rows_of(ProcessReading(pid=7))
    assert texts(row) == ["0", "7", "—", "—", "—", "—"]


@pytest.mark.parametrize(
    ("location", "container", "note"),
    [
        ("here", None, ""),
        ("outside", None, "outside this container"),
        ("gone", None, "exited, memory still held"),
        ("container", "3fa2b1", "container 3fa2b1"),
        ("container", None, "in a container"),
    ],
)
def test_where_a_process_runs_is_told(location: str, container: str | None, note: str) -> None:
    process = msgspec.structs.replace(make_process(1, 1), location=location, container=container)
    assert rows_of(process)[0].note == note


@pytest.mark.parametrize(
    ("text", "pids"),
    [
        ("", [1, 2, 3]),
        ("USER1", [1, 3]),
        ("user2 eval", [2]),
        ("eval.py", [2, 3]),
        ("gpu0", [1, 2, 3]),
        ("gpu1", []),
        ("h100 user2", [2]),
    ],
)
def test_the_filter_looks_for_the_phrase_and_else_for_every_word(text: str, pids: list[int]) -> None:
    rows = rows_of(
        make_process(1, 10, "user1", "train.py"),
        make_process(2, 10, "user2", "eval.py"),
        make_process(3, 10, "user1", "eval.py"),
    )
    assert [row.process.pid for row in filter_rows(rows, text)] == pids


def test_a_phrase_is_looked_for_in_one_field_before_its_words_are_in_all() -> None:
    rows = rows_of(
        make_process(4007, 10, command="python train.py --rank 1"),
        make_process(4017, 10, command="python  train.py\n--rank  7"),
    )
    assert [row.process.pid for row in filter_rows(rows, "  Rank 7 ")] == [4017]
    assert find_terms(rows, "Rank 7") == ("rank 7",)
    assert [row.process.pid for row in filter_rows(rows, "7 rank")] == [4007, 4017]
    assert find_terms(rows, "7 rank") == ("7", "rank")
    assert find_terms(rows, " ") == ()
    assert filter_rows(rows, " ") == rows


@pytest.mark.parametrize(
    ("order", "pids"),
    [
        (SortOrder("memory"), [2, 1, 3, 4]),
        (SortOrder("memory", True), [3, 1, 2, 4]),
        (SortOrder("pid"), [4, 3, 2, 1]),
        (SortOrder("pid", True), [1, 2, 3, 4]),
        (SortOrder("user"), [3, 1, 2, 4]),
        (SortOrder("user", True), [2, 1, 3, 4]),
        (SortOrder("command", True), [2, 1, 3, 4]),
        (SortOrder("share"), [2, 1, 3, 4]),
    ],
)
def test_sorting_puts_the_unmeasured_last_in_both_directions(order: SortOrder, pids: list[int]) -> None:
    rows = rows_of(
        make_process(1, 20, "user2", "b"),
        make_process(2, 30, "user3", "c"),
        make_process(3, 10, "user1", "a"),
        ProcessReading(pid=4),
    )
    assert [row.process.pid for row in sort_rows(rows, order)] == pids


def test_devices_sort_by_number_not_by_text() -> None:
    rows = collect_rows([make_device(10), make_device(2)])
    assert [row.device.index for row in sort_rows(rows, SortOrder("device"))] == [2, 10]


def test_the_sort_column_stops_at_the_edges() -> None:
    assert SortOrder("device").shifted(-1) == SortOrder("device")
    assert SortOrder("device", True).shifted(1) == SortOrder("pid")
    assert SortOrder("command").shifted(1) == SortOrder("command")


def test_a_training_process_is_found_by_its_rank() -> None:
    devices, ranks = make_job(8)
    rows = collect_rows(devices, ranks)
    assert [row.rank_name for row in rows][:2] == ["rank 0 tp0 pp0", "rank 1 tp1 pp0"]
    assert [row.process.pid for row in filter_rows(rows, "rank 5")] == [4050]
    assert [row.process.pid for row in filter_rows(rows, "tp1 pp2")] == [4050]


def test_a_process_that_is_gone_or_another_one_of_that_pid_has_no_rank() -> None:
    devices, ranks = make_job(1)
    gone = msgspec.structs.replace((devices[0].processes or ())[0], location="gone")
    ended = [msgspec.structs.replace(ranks[0], state="ended")]
    assert collect_rows(devices, ended)[0].rank_name == ""
    assert collect_rows([msgspec.structs.replace(devices[0], processes=(gone,))], ranks)[0].rank_name == ""
