"""Of many nodes a viewer follows only what it draws: the node that is looked at in full, cells of others."""

import msgspec
import pytest

from tests.analyzers.cluster_state.clusters import Word
from tests.analyzers.cluster_state.clusters import make_node as make_rank_node
from tests.analyzers.fleet.nodes import make_node
from vramscope.analyzers.cluster_state import ClusterState
from vramscope.analyzers.fleet.fleet import read_devices
from vramscope.engine.cluster.keys import keys_folder
from vramscope.engine.cluster.nodes_watch import NodesWatch
from vramscope.engine.model import HostSample, ProcessReading, Sample
from vramscope.engine.viewer.picture import NodePicture
from vramscope.engine.viewer.snapshot import Snapshot
from vramscope.engine.wire.cells import take_cells, trim_to_cells
from vramscope.engine.wire.messages import body_of, decode, encode

from ...waiting import wait_until
from ..agent.hubs import make_sample
from .remote import ListeningHub, has_seq, trust_of, until


def make_full(seq: int) -> Sample:
    """Return a sample with a process and a host beside the device."""
    sample = make_sample(seq)
    device = msgspec.structs.replace(sample.devices[0], processes=(ProcessReading(7, "ann", "train"),))
    return msgspec.structs.replace(sample, devices=(device,), host=HostSample(), notes=("a note",))


def has_processes(snapshot: Snapshot) -> bool:
    """Return whether the sample is told in full."""
    sample = snapshot.sample
    return sample is not None and sample.devices[0].processes is not None and sample.host is not None


def list_seqs(picture: NodePicture) -> list[int]:
    """Return the samples that are remembered of a node."""
    return [sample.seq for sample in picture.history.samples()]


def test_only_nodes_that_are_looked_at_are_followed_in_full() -> None:
    with ListeningHub(None, keys_folder()) as one, ListeningHub(None, keys_folder()) as other:
        for hub in (one, other):
            hub.producer.push([make_full(seq) for seq in range(1, 11)])
        watch = NodesWatch([one.address, other.address], trust_of(None), most_in_full=1)
        try:
            first, second = (watch.nodes[hub.address.label].picture for hub in (one, other))
            watch.look_at(one.address.label)
            until(watch, has_seq(10), one.address)
            cell = until(watch, has_seq(10), other.address).sample
            assert has_processes(first.newest)
            assert list_seqs(first) == list(range(1, 11))
            assert cell is not None
            assert (cell.devices[0].processes, cell.host, cell.notes) == (None, None, ())
            assert cell.devices[0].memory.used_bytes == make_full(10).devices[0].memory.used_bytes
            assert not list_seqs(second)

            other.producer.push([make_full(11)])
            assert not has_processes(until(watch, has_seq(11), other.address))
            assert not list_seqs(second)

            watch.look_at(other.address.label)
            until(watch, has_processes, other.address)
            assert list_seqs(second) == list(range(1, 12))
            assert not list_seqs(first)
            one.producer.push([make_full(11)])
            other.producer.push([make_full(12)])
            assert has_processes(until(watch, has_seq(12), other.address))
            wait_until(lambda: (watch.turn(0.05), not has_processes(first.newest))[1], what="a cell again")
            assert first.newest.samples_dropped == second.newest.samples_dropped == 0
        finally:
            watch.close()


def test_what_was_missed_of_a_cell_is_counted() -> None:
    with ListeningHub(None, keys_folder()) as one, ListeningHub(None, keys_folder()) as other:
        watch = NodesWatch([one.address, other.address], trust_of(None), most_in_full=1)
        try:
            other.producer.push([make_sample(1), make_sample(2)])
            until(watch, has_seq(2), other.address)
            other.producer.push([make_sample(6), make_sample(7)])
            until(watch, lambda it: has_seq(7)(it) and it.samples_dropped == 3, other.address)
        finally:
            watch.close()


@pytest.mark.parametrize(
    "snapshot", [make_node("n1", oom=2), make_rank_node(1, 30.0, {2: Word("high", 300.0)})]
)
def test_cells_are_read_as_samples_and_tell_the_fleet_and_the_cluster_the_same(snapshot: Snapshot) -> None:
    whole = snapshot.sample
    assert whole is not None
    cells = body_of(decode(encode("sample", "", take_cells(whole))), Sample)
    assert cells == trim_to_cells(whole)
    assert len(encode("sample", "", take_cells(whole))) < len(encode("sample", "", whole)) / 2
    trimmed = msgspec.structs.replace(snapshot, sample=cells)
    assert read_devices(trimmed) == read_devices(snapshot)
    pictures = []
    for each in (trimmed, snapshot):
        state = ClusterState()
        state.observe(each, 10.0)
        state.conclude(20.0)
        pictures.append(state.picture)
    assert pictures[0] == pictures[1]
