"""What feeds the screens from several agents: pictures of each, questions to the one looked at."""

from vramscope.engine.alerts.state import FindingDecision
from vramscope.engine.cluster.keys import keys_folder
from vramscope.engine.cluster.nodes_watch import NodesFeed
from vramscope.engine.viewer.feed import SeveralNodesFeed
from vramscope.engine.viewer.snapshot import Snapshot

from ...waiting import wait_until
from ..agent.hubs import make_sample
from .remote import ListeningHub, trust_of


def test_what_is_asked_goes_to_the_node_that_is_looked_at() -> None:
    newest: dict[str, Snapshot] = {}
    with ListeningHub(None, keys_folder()) as one, ListeningHub(None, keys_folder()) as other:
        one.producer.push([make_sample(1)])
        other.producer.push([make_sample(2)])
        feed = NodesFeed([one.address, other.address], trust_of(None))
        assert isinstance(feed, SeveralNodesFeed)
        feed.start(lambda snapshot: newest.__setitem__(snapshot.node, snapshot))
        names = one.address.label, other.address.label

        def seqs() -> list[int | None]:
            shown = (newest[name].sample for name in names if name in newest)
            return [None if sample is None else sample.seq for sample in shown]

        wait_until(lambda: seqs() == [1, 2], what="both pictures")
        assert feed.history_of(names[1]).last_seq == 2
        feed.look_at(names[1])
        feed.decide(FindingDecision("acknowledge", "nothing"))
        wait_until(lambda: newest[names[1]].decision_refused, what="the answer of the other")
        assert newest[names[0]].decision_refused is None
        feed.stop()
