"""A fleet of snapshots: what is covered, what a lost node leaves, whose clock is off, and the sentence."""

import msgspec

from tests.analyzers.fleet.nodes import make_node
from tests.tui.canned import NOON_S, make_snapshot
from vramscope.analyzers.fleet.fleet import Fleet
from vramscope.analyzers.fleet.verdict import judge_fleet
from vramscope.engine.viewer.snapshot import Snapshot


def _note(fleet: Fleet, *snapshots: Snapshot) -> None:
    for snapshot in snapshots:
        fleet.note(snapshot, snapshot.sample.time_s if snapshot.sample else NOON_S)


def test_a_lost_node_is_not_covered_keeps_its_devices_and_makes_no_claim() -> None:
    fleet = Fleet()
    _note(fleet, *(make_node(f"n{number}", 8, level="low") for number in (2, 10, 1)))
    assert (fleet.names, fleet.coverage.text) == (("n1", "n2", "n10"), "3 nodes")
    assert fleet.picture.census.levels == {"low": 24}
    assert judge_fleet(fleet.picture.census, fleet.coverage).text(80) == "OOM risk low on all 24 devices"
    _note(fleet, msgspec.structs.replace(make_node("n2", 8, level="low"), connection="lost", reason="cut"))
    assert [(it.name, it.reason) for it in fleet.lost()] == [("n2", "cut")]
    assert fleet.picture.census.levels == {"low": 16, "unknown": 8}
    said = judge_fleet(fleet.picture.census, fleet.coverage).text(80)
    assert said == "OOM risk low on all 16 devices seen · 2 of 3 nodes"


def test_the_last_word_of_a_lost_node_is_called_that_at_every_width_and_counted_apart() -> None:
    fleet = Fleet()
    gone = msgspec.structs.replace(make_node("n1", 2, oom=0), connection="lost", reason="cut")
    _note(fleet, gone, make_node("n2", 3, level="high"), make_node("n3", 1))
    verdict = judge_fleet(fleet.picture.census, fleet.coverage)
    expected = "out of memory in 1 m 16 s (last report) · 3 more at risk · 2 of 3 nodes"
    assert verdict.text(100) == f"GPU 0 of n1: {expected}"
    assert "last" in verdict.text(28)
    _note(fleet, msgspec.structs.replace(make_node("n2", 3, level="high"), connection="lost", reason="cut"))
    assert "3 more by last reports" in judge_fleet(fleet.picture.census, fleet.coverage).text(100)
    calm = Fleet()
    _note(calm, msgspec.structs.replace(make_node("n1", 2, level="low"), connection="lost", reason="cut"))
    assert judge_fleet(calm.picture.census, calm.coverage).text(80) == "No current data · 0 of 1 node"


def test_the_sentence_names_the_device_its_node_and_the_coverage() -> None:
    fleet = Fleet()
    _note(fleet, make_node("n1", 8, oom=5), make_node("n2", 8), Snapshot(node="n3"))
    verdict = judge_fleet(fleet.picture.census, fleet.coverage)
    assert verdict.level == "critical"
    assert verdict.text(80) == "GPU 5 of n1: out of memory in 1 m 16 s · 2 of 3 nodes"
    assert verdict.text(36) == "GPU 5 of n1: OOM in 1m16s · 2 of 3"
    places = [(it.rank, it.tp, it.pp) for it in fleet.devices_of("n1")]
    assert places[5] == (5, 5, 0)


def test_where_no_process_has_a_probe_the_sentence_names_what_adds_one() -> None:
    fleet = Fleet()
    for name in ("n1", "n2"):
        node = make_snapshot(8)
        assert node.sample is not None
        sample = msgspec.structs.replace(node.sample, node=name)
        _note(fleet, msgspec.structs.replace(node, node=name, sample=sample))
    census, coverage = fleet.picture.census, fleet.coverage
    assert census.lacking == census.unknown == 16
    told = "OOM risk unknown on 16 of 16 devices"
    assert judge_fleet(census, coverage).text(120) == told
    by_key = judge_fleet(census, coverage, "key")
    assert by_key.text(120) == f"{told} without a probe: open a device and press a to attach"
    assert by_key.text(60) == f"{told}: open one, press a"
    assert by_key.text(40) == "OOM risk unknown: open one, press a"
    by_command = judge_fleet(census, coverage, "command")
    assert by_command.text(120) == f"{told} without a probe: vramscope attach PID on its node adds it"
    assert by_command.text(40) == "OOM risk unknown: vramscope attach PID"
    _note(fleet, make_node("n3", 1))  # one that has a probe, and whose risk is not known yet
    mixed = judge_fleet(fleet.picture.census, fleet.coverage, "key")
    assert mixed.text(120) == "OOM risk unknown on 17 of 17 devices"


def test_a_clock_that_is_off_is_told_and_delay_is_not() -> None:
    fleet = Fleet()
    for seq in range(5):
        for name, off_s, late_s in (
            ("right", 0.0, 0.4 * seq),
            ("ahead", 3600.0, 0.1 * seq),
            ("slow", 0.0, 1.5),
        ):
            snapshot = make_node(name, 1, seq=seq)
            assert snapshot.sample is not None
            sample = msgspec.structs.replace(snapshot.sample, time_s=NOON_S + seq + off_s)
            fleet.note(msgspec.structs.replace(snapshot, sample=sample), NOON_S + seq + late_s)
    offsets = {name: fleet.node(name).clock_offset_s for name in fleet.names}
    assert offsets == {"right": None, "ahead": 3600.0, "slow": None}
