"""The tree of processes: children below their parents, in the order of the list, each of them once."""

import pytest
from msgspec.structs import replace

from tests.tui.canned import NODE, FakeFeed, make_app, make_device, make_process, make_sample, make_snapshot
from vramscope.engine.model import ProcessReading
from vramscope.engine.sources.process_families import ProcessFamilies
from vramscope.tui.live.node_screen import NodeScreen
from vramscope.tui.live.process_rows import ProcessRow, SortOrder, arrange_tree, collect_rows
from vramscope.tui.live.process_signals import SignalPolicy

MEMORY = SortOrder("memory")
NOW_S = 5000.0


def rows_of(*processes: ProcessReading) -> list[ProcessRow]:
    return collect_rows([replace(make_device(0), processes=processes)])


def holder(pid: int, used_mib: int, parent: int | None = None) -> ProcessReading:
    return replace(make_process(pid, used_mib), parent_pid=parent)


def relative(pid: int, parent: int | None, command: str = "helper") -> ProcessReading:
    return ProcessReading(pid, "user1", command, parent_pid=parent, started_s=NOW_S - 60.0)


def drawn(rows: list[ProcessRow]) -> list[str]:
    return [f"{row.branch}{row.process.pid}" for row in rows]


def test_workers_are_below_their_trainer_and_trainers_below_their_launcher() -> None:
    rows = rows_of(holder(11, 100, parent=1), holder(12, 200, parent=1))
    relatives = {
        it.pid: it for it in (relative(1, None), relative(21, 11), relative(22, 11), relative(23, 12))
    }
    tree = arrange_tree(rows, relatives, MEMORY, NOW_S)
    assert drawn(tree) == ["1", "├─ 12", "│  └─ 23", "└─ 11", "   ├─ 21", "   └─ 22"]
    assert [row.is_relative for row in tree] == [True, False, True, False, True, True]
    assert tree[0].runs_s == 60.0


def test_a_family_is_where_its_first_process_of_the_list_would_be() -> None:
    rows = rows_of(holder(11, 100, parent=1), holder(12, 900, parent=2), holder(13, 500, parent=1))
    relatives = {1: relative(1, None), 2: relative(2, None)}
    assert drawn(arrange_tree(rows, relatives, MEMORY)) == ["2", "└─ 12", "1", "├─ 13", "└─ 11"]
    inverted = SortOrder("memory", is_inverted=True)
    assert drawn(arrange_tree(rows, relatives, inverted)) == ["1", "├─ 11", "└─ 13", "2", "└─ 12"]


def test_a_process_on_several_devices_has_a_row_of_each() -> None:
    process = holder(11, 100, parent=1)
    rows = collect_rows([replace(make_device(index), processes=(process,)) for index in range(2)])
    tree = arrange_tree(rows, {1: relative(1, None), 21: relative(21, 11)}, MEMORY)
    assert [(row.process.pid, row.device.index) for row in tree] == [(1, 0), (11, 0), (11, 1), (21, 0)]
    assert [row.branch for row in tree] == ["", "└─ ", "   ", "   └─ "]


def test_without_relatives_parents_among_the_listed_ones_count_all_the_same() -> None:
    rows = rows_of(holder(11, 100), holder(12, 200, parent=11), holder(13, 300, parent=777))
    assert drawn(arrange_tree(rows, {}, MEMORY)) == ["13", "11", "└─ 12"]


@pytest.mark.parametrize(
    "parents", [{11: 11}, {11: 12, 12: 11}, {11: 12, 12: 13, 13: 11}], ids=["itself", "two", "three"]
)
def test_each_is_listed_once_even_if_a_node_says_that_they_go_in_a_circle(parents: dict[int, int]) -> None:
    rows = rows_of(*(holder(pid, pid, parent) for pid, parent in parents.items()))
    assert sorted(row.process.pid for row in arrange_tree(rows, {}, MEMORY)) == sorted(parents)


def test_a_chain_of_a_thousand_is_drawn() -> None:
    relatives = {pid: relative(pid, pid - 1) for pid in range(2, 1000)}
    tree = arrange_tree(rows_of(holder(1, 100)), relatives, MEMORY)
    assert len(tree) == 999
    assert max(len(row.branch) for row in tree) < 60


def test_without_processes_there_is_no_tree() -> None:
    assert arrange_tree([], {1: relative(1, None)}, MEMORY) == []


async def test_t_lists_parents_and_children_of_this_node_and_back(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[frozenset[int]] = []

    def read(self: ProcessFamilies, pids: frozenset[int]) -> dict[int, ProcessReading]:
        asked.append(pids)
        return {1: relative(1, None, "torchrun train.py"), 21: relative(21, 11, "pt_data_worker")}

    monkeypatch.setattr(ProcessFamilies, "read", read)
    device = replace(make_device(0), processes=(holder(11, 100, parent=1),))
    app = make_app(FakeFeed(make_snapshot(sample=make_sample((device,)))))
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("tab", "t")
        table = app.live.processes
        while len(table.rows) < 3:
            await pilot.pause()
        assert asked == [{11}]
        assert drawn(table.rows) == ["1", "└─ 11", "   └─ 21"]
        launcher = table.render_line(1).text
        assert "torchrun train.py" in launcher
        assert "GPU" not in launcher
        assert "—" not in launcher, "it holds no device memory, which is not the same as unknown"
        assert table.render_line(2).text.index("└─ python train.py") > 0
        await pilot.press("up", "enter")
        assert app.screen is app.live
        await pilot.press("t")
        assert drawn(table.rows) == ["11"]


async def test_of_another_node_only_processes_with_device_memory_are_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def read(self: ProcessFamilies, pids: frozenset[int]) -> dict[int, ProcessReading]:
        raise AssertionError("process ids of another node mean nothing here")

    monkeypatch.setattr(ProcessFamilies, "read", read)
    device = replace(make_device(0), processes=(holder(11, 100), holder(12, 90, parent=11)))
    feed = FakeFeed(make_snapshot(sample=make_sample((device,))))
    app = make_app(feed, policy=SignalPolicy(local_node="elsewhere"))
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("tab", "t")
        await pilot.pause()
        assert drawn(app.live.processes.rows) == ["11", "└─ 12"]
        assert "2 processes, others of the node unknown" in app.live.processes.render_line(0).text


async def test_a_tree_looks_for_relatives_every_three_seconds_and_never_without_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from tests.tui.canned import StillClock

    asked: list[frozenset[int]] = []
    monkeypatch.setattr(ProcessFamilies, "read", lambda self, pids: asked.append(pids) or {})  # type: ignore[func-returns-value]
    clock = StillClock()
    feed = FakeFeed(make_snapshot(1))
    app = make_app(feed, clock=clock)

    async def wait_for(count: int) -> None:
        while len(asked) < count or screen._is_looking_for_relatives:
            await pilot.pause()

    async with app.run_test(size=(120, 40)) as pilot:
        screen: NodeScreen = app.live
        await pilot.pause()
        assert asked == []
        await pilot.press("tab", "t")
        await wait_for(1)
        for seq, seconds, count in ((2, 1.0, 1), (3, 1.0, 1), (4, 1.0, 2)):
            clock.now_s += seconds
            feed.hand_over(make_snapshot(1, seq=seq))
            await pilot.pause()
            await wait_for(count)
            assert len(asked) == count
    assert NODE
