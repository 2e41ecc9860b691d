"""What feeds the screens from a Prometheus: a picture of each node, also where the server fails."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec
import pytest

from tests.clocks import HandClock
from tests.engine.prometheus.prometheus_server import dcgm_text
from tests.engine.prometheus.test_assembly import T, to_series
from tests.tui.canned import NODE, UNICODE_COLOR, FakeFeed, StillClock, make_snapshot
from tests.tui.looks import shown_text
from vramscope.engine.alerts.state import FindingDecision
from vramscope.engine.errors import ServerUnreachableError
from vramscope.engine.history import History
from vramscope.engine.plugins import make_analyzers
from vramscope.engine.prometheus import feed as feed_module
from vramscope.engine.prometheus.feed import PrometheusFeed
from vramscope.engine.prometheus.follower import PrometheusFollower
from vramscope.engine.prometheus.server import PrometheusServer, Series, parse_server_url
from vramscope.engine.settings import Settings
from vramscope.engine.viewer.snapshot import Snapshot
from vramscope.tui.app import VramscopeApp
from vramscope.tui.frame.keys import collect_keys
from vramscope.tui.live.process_signals import SignalPolicy


class ScriptedServer(PrometheusServer):
    """Answers with what the exporters of some nodes told once a second, up to now."""

    def __init__(self, clock: HandClock) -> None:
        super().__init__(parse_server_url("http://prometheus.test"))
        self.clock = clock
        self.told_until: dict[str, float] = {}
        """When a node was scraped for the last time; those that are not in it are scraped still."""
        self.nodes = ("gpu7", "gpu8")
        self.failure: str | None = None

    def query(self, expression: str, *, at_s: float | None = None) -> list[Series]:
        if self.failure is not None:
            raise ServerUnreachableError(self.failure)
        now_s = int(self.clock.wall_s())
        return [
            msgspec.structs.replace(series, values=tuple((time_s, series.values[0][1]) for time_s in times))
            for node in self.nodes
            for times in [range(now_s - 10, round(min(now_s, self.told_until.get(node, now_s))) + 1)]
            for series in to_series(dcgm_text({0: 80_000}, host=node))
        ]


class Watched:
    """A feed that runs, and the newest picture of each node."""

    def __init__(self, feed: PrometheusFeed) -> None:
        self.feed = feed
        self.newest: dict[str, Snapshot] = {}
        self._came = threading.Condition()

    def take(self, snapshot: Snapshot) -> None:
        with self._came:
            self.newest[snapshot.node] = snapshot
            self._came.notify()

    def wait_for(self, node: str, is_met: Callable[[Snapshot], object]) -> Snapshot:
        with self._came:
            assert self._came.wait_for(lambda: node in self.newest and is_met(self.newest[node]), 30)
            return self.newest[node]


@pytest.fixture
def clock() -> HandClock:
    return HandClock(T)


@pytest.fixture
def server(clock: HandClock, monkeypatch: pytest.MonkeyPatch) -> ScriptedServer:
    for name in ("LEAST_POLL_S", "MOST_POLL_S", "RETRY_S"):
        monkeypatch.setattr(feed_module, name, 0.01)
    return ScriptedServer(clock)


@contextmanager
def watching(server: ScriptedServer) -> Iterator[Watched]:
    follower = PrometheusFollower(server, clock=server.clock)
    feed = PrometheusFeed(follower, make_analyzers=lambda: make_analyzers().made)
    watched = Watched(feed)
    feed.start(watched.take)
    try:
        yield watched
    finally:
        feed.stop()


def test_every_node_has_a_picture_a_history_and_verdicts_of_its_own(server: ScriptedServer) -> None:
    with watching(server) as watched:
        for node in server.nodes:
            snapshot = watched.wait_for(node, lambda it: it.connection == "live")
            assert snapshot.sample is not None
            assert snapshot.sample.interval_s == 1.0
            assert [it.kind for it in snapshot.findings] == ["pressure"]
            assert {it.level for it in snapshot.assessments} == {"unknown"}
            assert len(list(watched.feed.history_of(node).samples())) == 11
        server.clock.now_s += 3.0
        watched.wait_for("gpu8", lambda it: it.sample is not None and it.sample.seq == 13)


def test_a_server_that_fails_is_named_while_the_last_figures_stand_and_then_heard_again(
    server: ScriptedServer,
) -> None:
    with watching(server) as watched:
        watched.wait_for("gpu7", lambda it: it.connection == "live")
        server.failure = "http://prometheus.test did not answer within 10 s"
        server.clock.now_s += 4.0
        lost = watched.wait_for("gpu7", lambda it: it.connection == "lost")
        assert (lost.reason, lost.silent_s) == (server.failure, 4.0)
        assert lost.sample is not None
        server.failure = None
        watched.wait_for("gpu7", lambda it: it.connection == "live")


def test_a_node_that_is_not_scraped_any_more_is_lost_and_disturbs_no_other(server: ScriptedServer) -> None:
    with watching(server) as watched:
        watched.wait_for("gpu8", lambda it: it.connection == "live")
        server.told_until["gpu8"] = server.clock.wall_s()
        server.clock.now_s += 8.0
        lost = watched.wait_for("gpu8", lambda it: it.connection == "lost")
        assert (lost.reason, lost.silent_s) == ("Prometheus has not scraped it since", 8.0)
        assert watched.wait_for("gpu7", lambda it: it.sample is not None).connection == "live"


def test_what_a_server_of_figures_cannot_do_is_refused_in_words(server: ScriptedServer) -> None:
    with watching(server) as watched:
        watched.feed.ask_segments(7)
        watched.feed.ask_modules(7)
        watched.feed.decide(FindingDecision("acknowledge", "id"))
        told = watched.wait_for(
            "gpu7", lambda it: it.segments_refused and it.modules and it.decision_refused is not None
        )
        assert told.decision_refused is not None
        assert "ask the agent of that node" in told.decision_refused.reason


class TwoNodes(FakeFeed):
    def __init__(self, *nodes: str) -> None:
        canned = make_snapshot(1)
        assert canned.sample is not None
        samples = {node: msgspec.structs.replace(canned.sample, node=node) for node in nodes}
        super().__init__(
            *(msgspec.structs.replace(canned, node=node, sample=it) for node, it in samples.items())
        )
        self.histories = {node: History() for node in nodes}

    def history_of(self, node: str) -> History:
        return self.histories[node]

    def look_at(self, node: str) -> None:
        self.looked_at = node


async def test_tab_goes_from_node_to_node_and_is_no_key_where_there_is_one() -> None:
    for nodes, is_offered in ((("gpu7", "gpu8"), True), (("gpu7",), False)):
        app = VramscopeApp(
            TwoNodes(*nodes),
            settings=Settings(),
            abilities=UNICODE_COLOR,
            clock=StillClock(),
            signal_policy=SignalPolicy(local_node=NODE),
            driver_class=None,
        )
        async with app.run_test(size=(80, 24)) as pilot:
            await pilot.pause()
            assert ("node" in collect_keys(app.screen)) is is_offered
            await pilot.press("tab")
            await pilot.pause()
            assert nodes[-1] in shown_text(app)
