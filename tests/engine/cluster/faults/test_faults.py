"""What breaks between a viewer and an agent: the viewer says so, comes back, has every sample of the ring."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

import msgspec
import pytest

from vramscope.engine.cluster.keys import keys_folder, make_key_pair
from vramscope.engine.cluster.links import LinkTimes
from vramscope.engine.cluster.nodes_watch import NodesWatch
from vramscope.engine.model import Sample
from vramscope.engine.viewer.snapshot import Snapshot

from ....clocks import HandClock
from ....waiting import wait_until
from ...agent.hubs import make_sample
from ..remote import ListeningHub, following, has_seq, says, trust_of
from .path import FaultyPath

KEY = make_key_pair()
SOON = LinkTimes(
    reconnect_ms=50,
    connect_within_ms=500,
    handshake_within_ms=500,
    heartbeat_ms=200,
    heartbeat_within_ms=400,
    still_ms=500,
)
"""Real ones, of ZeroMQ; all else goes by a clock that stands unless it is moved."""


class Scene(NamedTuple):
    """A hub with two viewers, one of them behind a path that can fail; all go by one clock."""

    hub: ListeningHub
    path: FaultyPath
    far: NodesWatch
    near: NodesWatch
    clock: HandClock

    def publish(self, *samples: Sample) -> None:
        self.hub.producer.push(samples)

    def until(
        self, watch: NodesWatch, condition: Callable[[Snapshot], object], *, turn_s: float = 0.1
    ) -> Snapshot:
        """Let so much time pass each turn until a viewer's picture is as it should be; return it."""

        def is_met() -> bool:
            self.clock.now_s += turn_s
            watch.turn(0.01)
            return bool(condition(newest(watch)))

        wait_until(is_met, what="the picture")
        return newest(watch)


@contextmanager
def scene(times: LinkTimes = SOON) -> Iterator[Scene]:
    with ExitStack() as stack:
        clock = HandClock(1000.0)
        hub = stack.enter_context(ListeningHub(KEY, keys_folder(), times=times, clock=clock))
        path = stack.enter_context(FaultyPath(hub.address))
        far, near = (
            stack.enter_context(following(trust_of(KEY), address, times=times, clock=clock))
            for address in (path.address, hub.address)
        )
        yield Scene(hub, path, far, near, clock)


def newest(watch: NodesWatch) -> Snapshot:
    """Return the picture of the only node."""
    return next(iter(watch.nodes.values())).picture.newest


def remembered(watch: NodesWatch) -> list[int]:
    """Return the numbers of the samples in the history of the only node."""
    return [sample.seq for sample in next(iter(watch.nodes.values())).picture.history.samples()]


def is_lost(snapshot: Snapshot) -> bool:
    """Return whether a picture is lost."""
    return snapshot.connection == "lost"


def vanish_and_return(path: FaultyPath) -> None:
    """Let bytes through again, but not those of the connections that there were."""
    path.forget()
    path.resume()


@pytest.mark.parametrize(
    ("break_", "mend"),
    [
        pytest.param(FaultyPath.cut, FaultyPath.heal, id="cut with a reset"),
        pytest.param(FaultyPath.stall, FaultyPath.resume, id="stall"),
        pytest.param(FaultyPath.stall, vanish_and_return, id="cut without a word"),
        pytest.param(FaultyPath.forget, lambda _: None, id="half open"),
    ],
)
def test_what_was_missed_is_fetched_and_others_are_not_disturbed(
    break_: Callable[[FaultyPath], None], mend: Callable[[FaultyPath], None]
) -> None:
    with scene() as it:
        it.publish(*map(make_sample, range(1, 6)))
        it.until(it.far, has_seq(5))
        it.until(it.near, has_seq(5))
        break_(it.path)
        it.publish(*map(make_sample, range(6, 11)))
        it.until(it.near, has_seq(10))
        lost = it.until(it.far, lambda shown: is_lost(shown) or has_seq(10)(shown))
        if is_lost(lost):  # else a half open one was made anew before it was missed
            assert lost.reason
            assert (lost.silent_s or 0.0) >= 2.5
            assert lost.sample is not None
            assert lost.sample.seq == 5
        mend(it.path)
        it.publish(make_sample(11))
        assert it.until(it.far, has_seq(11)).samples_dropped == 0
        assert remembered(it.far) == list(range(1, 12))
        it.publish(make_sample(12))
        assert it.until(it.near, has_seq(12)).samples_dropped == 0
        # The hub finds out by itself which connections nobody is at the other end of any more.
        it.until(it.near, lambda shown: shown.hub and (shown.hub.last_seq, shown.hub.viewers) == (12, 2))


def test_a_dead_link_is_made_anew_long_before_heartbeats_find_it() -> None:
    with scene(SOON._replace(heartbeat_ms=60_000, heartbeat_within_ms=60_000, still_ms=200)) as it:
        it.publish(make_sample(1))
        it.until(it.far, has_seq(1))
        it.path.forget()
        it.publish(make_sample(2))
        it.until(it.far, has_seq(2))


def test_a_line_that_is_late_and_narrow_loses_nothing_and_is_live() -> None:
    with scene(LinkTimes()) as it:
        it.path.delay_s, it.path.bytes_per_s = 0.2, 50_000.0
        it.publish(*map(make_sample, range(1, 101)))
        it.until(it.far, has_seq(100), turn_s=0.01)
        for seq in range(101, 111):
            it.publish(make_sample(seq))
            was_lost = [is_lost(it.until(it.near, has_seq(seq), turn_s=0.01)), is_lost(newest(it.far))]
            assert was_lost == [False, False]
        assert it.until(it.far, has_seq(110), turn_s=0.01).samples_dropped == 0
        assert remembered(it.far) == list(range(1, 111))


def test_a_history_comes_through_that_takes_longer_than_a_connection_without_life_is_kept() -> None:
    with scene(SOON._replace(heartbeat_ms=400, heartbeat_within_ms=800, still_ms=1500)) as it:
        it.path.cut()
        connections = it.path.connections
        it.publish(*map(make_sample, range(1, 3601)))
        it.until(it.near, has_seq(3600))
        it.path.bytes_per_s = 70_000.0  # two and a half seconds for all of it
        it.path.heal()
        it.until(it.far, has_seq(3600), turn_s=0.5)
        assert remembered(it.far) == list(range(1, 3601))
        assert it.path.connections <= connections + 1


@pytest.mark.waits
def test_a_viewer_that_stands_still_misses_nothing_in_the_end_and_holds_up_nobody() -> None:
    with scene() as it:
        it.publish(make_sample(1))
        it.until(it.far, has_seq(1))
        for seq in range(2, 802, 50):  # 16 MB, more than all queues between hold
            it.publish(
                *(
                    msgspec.structs.replace(make_sample(at), notes=(20_000 * "x",))
                    for at in range(seq, seq + 50)
                )
            )
            it.until(it.near, has_seq(seq + 49), turn_s=0.01)
        it.publish(make_sample(802))
        assert it.until(it.far, has_seq(802)).samples_dropped == 0
        assert remembered(it.far) == list(range(1, 803))
        assert newest(it.near).samples_dropped == 0


@pytest.mark.waits
def test_a_handshake_that_is_held_up_says_nothing_of_keys() -> None:
    with scene() as it:
        it.publish(make_sample(1))
        it.path.stall()
        it.until(it.far, says("down or too slow"))
        it.path.cut()
        it.path.resume()
        it.until(it.far, says("no agent listens"))
        it.path.heal()
        it.until(it.far, has_seq(1))
