"""Who is there of the nodes that one gathers, and how even their memory is."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from vramscope.analyzers.balance import find_bottlenecks, judge_scope, measure_balance
from vramscope.engine.cluster.distributed import MOST_NODES, NodeRoll
from vramscope.engine.model import DeviceSample, Finding, MemoryReading, Sample
from vramscope.engine.wire.messages import NodeReport
from vramscope.exporters.reports.distributed import analyze_nodes, judge_sync
from vramscope.exporters.reports.frame import Provenance
from vramscope.exporters.reports.log import RunLog
from vramscope.exporters.reports.text import describe_report
from vramscope.memory.distributed_exchange import ClusterEvents, DistributedRole, Meeting, NodeExchange

from ...clocks import HandClock

GIB = 1 << 30


def make_report(node_id: str, *used_gib: int, threats: tuple[Finding, ...] = ()) -> NodeReport:
    """Return a report of a node with devices of 80 GiB."""
    devices = tuple(
        DeviceSample(
            f"GPU-{index}",
            index,
            memory=MemoryReading(80 * GIB, used * GIB, (80 - used) * GIB),
            utilization_percent=50.0,
        )
        for index, used in enumerate(used_gib)
    )
    return NodeReport(sample=Sample(node_id, 0, 0.0, 2.0, devices), findings=threats, step=7)


def test_a_node_is_late_then_silent_and_one_that_left_is_neither() -> None:
    clock = HandClock(100.0)
    roll = NodeRoll(30.0, clock)
    roll.take(make_report("a", 40))
    assert judge_sync(roll, "a") == "unknown", "there is no other node"
    roll.take(make_report("b", 40))
    roll.take(msgspec.structs.replace(make_report("c", 40), is_leaving=True))
    assert (roll.find("here"), roll.find("left"), judge_sync(roll, "a")) == (("a", "b"), ("c",), "in_sync")
    clock.now_s += 5.0
    roll.take(make_report("a", 40))
    assert (roll.find("here"), roll.find("late"), judge_sync(roll, "a")) == (("a",), ("b",), "out_of_sync")
    clock.now_s += 26.0
    roll.take(make_report("a", 40))
    assert (roll.find("silent"), judge_sync(roll, "a")) == (("b",), "communication_error")
    assert [it.node_id for it in roll.present] == ["a"]
    roll.take(make_report("b", 40))
    assert judge_sync(roll, "a") == "in_sync", "a node that comes back is there again"


def test_a_node_that_vanished_is_told_with_its_age() -> None:
    clock = HandClock(100.0)
    meeting = Meeting(DistributedRole.MASTER)
    exchange = NodeExchange("m", meeting, interval_s=3.0, timeout_s=30.0, clock=clock)
    exchange.roll.take(make_report("b", 40))
    clock.now_s += 42.0
    report = exchange.build(RunLog(), Provenance(source="driver"))
    text = describe_report(report, 200)
    assert "b: silent, last report 42 s ago" in text
    assert "No report from b for 42 s" in text
    assert report.memory_analysis.memory_balance_ratio is None, "old figures are no figures"


def test_nodes_beyond_the_most_are_counted_and_left_out() -> None:
    roll = NodeRoll(30.0, HandClock())
    reports = [make_report(f"n{number}") for number in range(MOST_NODES + 3)]
    for report in reports:
        if roll.refuse(report) is None:
            roll.take(report)
    assert (len(roll.nodes), roll.refused) == (MOST_NODES, 3)
    assert roll.refuse(make_report("n0")) is None, "a node that is known already is always heard"


def test_a_new_node_gets_the_place_of_the_longest_gone() -> None:
    clock = HandClock(100.0)
    roll = NodeRoll(30.0, clock)
    roll.take(make_report("silent"))
    clock.now_s += 20.0
    for number in range(MOST_NODES - 2):
        roll.take(make_report(f"n{number}"))
    roll.take(msgspec.structs.replace(make_report("left"), is_leaving=True))
    clock.now_s += 20.0
    for new in ("first", "second"):
        assert roll.refuse(make_report(new)) is None
        roll.take(make_report(new))
    assert "left" not in roll.nodes, "it said that it ended"
    assert "silent" not in roll.nodes
    assert len(roll.nodes) == MOST_NODES
    assert roll.refuse(make_report("third")) is not None, "all others are there"


def test_a_second_node_under_one_name_is_refused_until_the_first_is_gone() -> None:
    clock = HandClock(100.0)
    roll = NodeRoll(30.0, clock)
    first, twin = (msgspec.structs.replace(make_report("a"), session=it) for it in ("1", "2"))
    roll.take(first)
    assert "another node reports under the name a" in (roll.refuse(twin) or "")
    assert (roll.refuse(first), roll.twins) == (None, 1)
    clock.now_s += 31.0
    assert roll.refuse(twin) is None, "it is the same node, started anew"


def test_balance_and_bottlenecks_are_of_the_devices_whose_figures_are_known() -> None:
    full = make_report("full", 72, 72)
    blind = (DeviceSample("GPU-x", 0, memory=MemoryReading(80 * GIB)),)
    unknown = NodeReport(sample=Sample("blind", 0, 0.0, 2.0, blind))
    analysis = analyze_nodes([full, make_report("half", 40, 40), unknown], "in_sync")
    assert analysis.bottleneck_nodes == ["full"]
    assert analysis.memory_balance_ratio is not None
    assert round(analysis.memory_balance_ratio, 4) == round(1 - 0.2 / 0.7, 4)
    assert analysis.total_memory_usage_gb == 224
    empty = analyze_nodes([unknown], "unknown")
    assert (empty.memory_balance_ratio, empty.total_memory_usage_gb) == (None, None), "not 0 and not 1"


@given(st.dictionaries(st.text(max_size=3), st.lists(st.floats(0, 1), max_size=6), max_size=6))
def test_balance_is_a_share_and_a_bottleneck_is_never_the_emptiest(by_node: dict[str, list[float]]) -> None:
    every = [it for its in by_node.values() for it in its]
    balance = measure_balance(every)
    assert (balance is None) == (not every)
    assert balance is None or 0.0 <= balance <= 1.0
    found = find_bottlenecks(by_node)
    means = {node: sum(its) / len(its) for node, its in by_node.items() if its}
    assert all(means[node] > min(means.values()) for node in found) or not found
    if every and len(set(every)) == 1:
        assert found == ()
        assert balance is not None
        assert balance > 1 - 1e-9


def test_an_event_says_how_far_it_reaches_and_is_told_once() -> None:
    def threat(number: int, device: int) -> Finding:
        uuid, name = f"GPU-{device}", str(device)
        return Finding(f"oom-{number}", "oom", "a", uuid, name, "critical", "will run out", 1e9, 1e9)

    events = ClusterEvents()
    events.note([make_report("a", 78, threats=(threat(1, 0),)), make_report("b", 40)])
    events.note([make_report("a", 78, 78, threats=(threat(1, 0), threat(2, 1))), make_report("b", 40)])
    events.note(
        [make_report("a", 78, threats=(threat(1, 0),)), make_report("b", 78, threats=(threat(1, 0),))]
    )
    events.note(
        [make_report("a", 78, threats=(threat(1, 0),)), make_report("b", 78, threats=(threat(1, 0),))]
    )
    told = [(it.node_id, it.oom_type, it.affected_nodes) for it in events.newest]
    assert told == [
        ("a", "single_gpu", ["a"]),
        ("a", "node_level", ["a"]),
        ("b", "cluster_level", ["a", "b"]),
    ]
    for number in range(100):
        events.note([make_report("a", 1, threats=(threat(10 + number, 0),))])
    assert len(events.newest) == 10
    assert judge_scope([("a", 0), ("a", 0)]) == "single_gpu", "two findings about one device"
