"""Rows of the process table: what they say, how they are filtered and sorted."""

import msgspec
import pytest

from tests.tui.canned import make_device, make_process
from tests.tui.canned_ranks import make_job
from vramscope.engine.model import MpsRole, ProcessOwner, ProcessReading, RankSample
from vramscope.engine.settings import SortColumn
from vramscope.tui.live.process_rows import (
    COLUMNS,
    FURTHER_COLUMNS,
    USUAL_COLUMNS,
    ProcessRow,
    SortOrder,
    arrange_tree,
    choose_columns,
    collect_rows,
    filter_rows,
    find_terms,
    runs_text,
    sort_rows,
)

NOW_S = 1_760_000_000.0


def rows_of(*processes: ProcessReading) -> list[ProcessRow]:
    return collect_rows([msgspec.structs.replace(make_device(0), processes=processes)], now_s=NOW_S)


def texts(row: ProcessRow) -> dict[str, str]:
    return {column.title: column.text(row) for column in COLUMNS}


def test_a_row_says_who_holds_how_much_of_which_device_and_what_it_does() -> None:
    process = msgspec.structs.replace(
        make_process(4001, 40_756, command="python  train.py\n--lr 1"),
        started_s=NOW_S - 7500.0,
        kind="compute+graphics",
        sm_percent=88.0,
        memory_bandwidth_percent=41.0,
        cpu_percent=1234.5,
        resident_bytes=12 << 30,
        threads=1200,
    )
    (row,) = rows_of(process)
    assert texts(row) == {
        "GPU": "0",
        "PID": "4001",
        "USER": "user1",
        "TYPE": "C+G",
        "MEMORY": "39.8 GiB",
        "OF GPU": "50 %",
        "SM": "88 %",
        "MEM BW": "41 %",
        "CPU": "1,234 %",
        "HOST MEM": "12.0 GiB",
        "THREADS": "1,200",
        "TIME": "2 h 05 m",
        "POD": "—",
        "NAMESPACE": "—",
        "CONTAINER": "—",
        "JOB": "—",
        "COMMAND": "python train.py --lr 1",
    }


def test_what_is_unknown_is_never_zero() -> None:
    (row,) = rows_of(ProcessReading(pid=7))
    assert set(texts(row).values()) == {"0", "7", "—"}
    assert (texts(row)["GPU"], texts(row)["PID"]) == ("0", "7")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "—"),
        (0.0, "< 1 m"),
        (59.9, "< 1 m"),
        (3599.0, "59 m"),
        (3600.0, "1 h 00 m"),
        (90_000.0, "1 d 01 h"),
        (100 * 86_400.0, "100 d"),
        (1110 * 86_400.0, "1,110 d"),
    ],
)
def test_a_run_time_changes_once_a_minute_at_most(seconds: float | None, text: str) -> None:
    assert runs_text(seconds) == text


def titles(chosen: tuple[SortColumn, ...], known: tuple[SortColumn, ...], width: int) -> list[str]:
    return [column.title for column in choose_columns(chosen, frozenset(known), width)]


USUAL = ["GPU", "PID", "USER", "MEMORY", "OF GPU", "COMMAND"]


def test_further_columns_join_where_there_is_room_and_anything_is_known() -> None:
    assert titles((), FURTHER_COLUMNS, 80) == [*USUAL[:-1], "SM", "COMMAND"]
    assert titles((), (), 300) == USUAL
    of_no_pod: tuple[SortColumn, ...] = ("sm", "cpu", "host_memory", "time")
    assert titles((), of_no_pod, 100) == [*USUAL[:-1], "SM", "CPU", "HOST MEM", "COMMAND"]
    assert titles((), ("pod", "sm", "cpu"), 100) == [*USUAL[:-1], "POD", "COMMAND"]
    assert titles((), ("host_memory",), 100) == [*USUAL[:-1], "HOST MEM", "COMMAND"]
    assert titles((), FURTHER_COLUMNS, 210) == [column.title for column in COLUMNS]


@pytest.mark.parametrize("width", [40, 60, 80, 100, 120, 160, 200, 300])
def test_the_command_keeps_its_room(width: int) -> None:
    columns = choose_columns((), frozenset(FURTHER_COLUMNS), width)
    taken = 1 + sum(column.width + 2 for column in columns if column.width)
    assert {column.name for column in columns} == USUAL_COLUMNS or width - taken >= 24


def test_chosen_columns_are_shown_in_their_order_as_far_as_they_fit() -> None:
    chosen: tuple[SortColumn, ...] = ("time", "pid", "command", "cpu")
    assert titles(chosen, (), 120) == ["PID", "CPU", "TIME", "COMMAND"]
    assert titles(chosen, (), 32) == ["PID", "CPU", "COMMAND"]
    assert titles(("pid",), (), 4) == ["PID"]


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


def test_names_of_owners_are_shown_with_what_differs_between_replicas() -> None:
    owner = ProcessOwner("ml-research-team-a", "llama-pretrain-7b-worker-12", "pytorch", "pretrain")
    pod = msgspec.structs.replace(
        make_process(1, 10),
        location="container",
        container="3f4e01234567",
        pod="8a7b1c2d-3e4f-5a6b-7c8d-9e0f1a2b3c4d",
        slurm_job="812",
        owner=owner,
    )
    row, unnamed = rows_of(pod, msgspec.structs.replace(pod, owner=None))
    shown = texts(row)
    assert shown["POD"] == "llama-p…in-7b-worker-12"[:8] + "n-7b-worker-12"
    assert len(shown["POD"]) == 22
    assert (shown["NAMESPACE"], shown["CONTAINER"], shown["JOB"]) == (
        "ml-…h-team-a",
        "pytorch",
        "812 pretrain",
    )
    assert row.note == "pod llama-pretrain-7b-worker-12"
    assert [texts(unnamed)[it] for it in ("POD", "NAMESPACE", "CONTAINER", "JOB")] == [
        "8a7b1c2d",
        "—",
        "3f4e01234567",
        "812",
    ]


def test_mps_shows_who_serves_whom() -> None:
    server, client = rows_of(
        msgspec.structs.replace(make_process(1, 10), mps=MpsRole("server", 1)),
        msgspec.structs.replace(make_process(2, 10), mps=MpsRole("client", 1)),
    )
    assert (texts(server)["TYPE"], texts(client)["TYPE"]) == ("MPS", "M+C")
    assert (server.note, client.note) == ("", "MPS client of 1")
    outside = client.process
    assert [row.process.pid for row in arrange_tree([client, server], {}, SortOrder("pid"))] == [1, 2]
    launcher = ProcessReading(5)
    launched = client._replace(process=msgspec.structs.replace(outside, parent_pid=5))
    tree = arrange_tree([launched, server], {5: launcher}, SortOrder("pid"))
    assert [(row.process.pid, row.branch) for row in tree if row.branch] == [(2, "└─ ")]


@pytest.mark.parametrize(
    ("text", "pids"),
    [
        ("pod:llama", [1]),
        ("pod:ama", []),
        ("ns:ml", [1]),
        ("ns:m", []),
        ("job:pretrain", [2]),
        ("container:trainer", [1]),
        ("llama-0", [1]),
        ("pod:8a7b", [1]),
        ("pod:8A7B1C2D", [1]),
        ("pod:7b", []),
        ("job:812", [2]),
        ("job:81", []),
        ("job:train", [3]),
        ("user:ada", [1, 3]),
        ("user:ad", []),
        ("user:ada job:train", [3]),
        ("container:3f4e01234567", [1]),
        ("http:8000", [3]),
    ],
)
def test_a_filter_names_whose_processes_it_wants(text: str, pids: list[int]) -> None:
    first, second, third = (
        make_process(1, 10, "ada", "a.py"),
        make_process(2, 10, "bob", "b.py"),
        make_process(3, 10, "ada", "serve.py --listen http:8000"),
    )
    first = msgspec.structs.replace(
        first, pod="8a7b1c2d-3e4f-5a6b-7c8d-9e0f1a2b3c4d", container="3f4e01234567", location="container"
    )
    first = msgspec.structs.replace(first, owner=ProcessOwner("ml", "llama-0", "trainer"))
    named = ProcessOwner(slurm_job_name="pretrain")
    second = msgspec.structs.replace(second, slurm_job="812", slurm_step="0", owner=named)
    rows = rows_of(first, second, third)
    rows[2] = rows[2]._replace(rank=RankSample(pid=3, job="train"))
    assert [row.process.pid for row in filter_rows(rows, text)] == pids
    assert rows[0].note == "pod llama-0"
    unnamed = rows[0]._replace(process=msgspec.structs.replace(first, owner=None))
    assert unnamed.note == "container 3f4e01234567, pod 8a7b1c2d"


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


def test_the_group_of_a_slurm_job_is_no_container() -> None:
    process = msgspec.structs.replace(
        make_process(1, 10), location="container", container="slurm job 812", slurm_job="812"
    )
    (row,) = rows_of(process)
    assert (texts(row)["CONTAINER"], texts(row)["JOB"], row.note) == ("—", "812", "job 812")
