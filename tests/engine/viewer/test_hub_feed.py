"""Real processes on the pretend driver: started, killed, replaced and taken down again."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from vramscope.engine.paths import locate_runtime_folder
from vramscope.engine.plugins import find_entry_points
from vramscope.engine.viewer.client import connect
from vramscope.engine.viewer.hub_feed import HubFeed, attach_or_start
from vramscope.engine.viewer.snapshot import Snapshot
from vramscope.engine.wire.endpoints import is_hub_alive

from ...pretend_nvml.driver import PretendDriver
from ...waiting import wait_until
from ..agent.hubs import has_worker

GIB = 1 << 30


class Watcher:
    """Keeps what a feed hands over."""

    def __init__(self, feed: HubFeed) -> None:
        self.feed = feed
        self.seen: list[Snapshot] = []
        self._lock = threading.Lock()
        feed.start(self.take)

    def take(self, snapshot: Snapshot) -> None:
        with self._lock:
            self.seen.append(snapshot)

    def until(self, condition: Callable[[Snapshot], object], what: str, timeout_s: float = 20.0) -> Snapshot:
        found: list[Snapshot] = []

        def is_met() -> bool:
            with self._lock:
                found.extend(snapshot for snapshot in self.seen if condition(snapshot))
                self.seen.clear()
            return bool(found)

        wait_until(is_met, timeout_s, what)
        return found[0]


@pytest.fixture
def node(pretend_driver: PretendDriver, pretend_environment: dict[str, str]) -> PretendDriver:
    for number in range(2):
        pretend_driver.add_device(used_bytes=(number + 1) * 10 * GIB)
    return pretend_driver


@pytest.fixture
def feeds() -> Iterator[list[HubFeed]]:
    started: list[HubFeed] = []
    yield started
    for feed in started:
        feed.stop()
    wait_until(
        lambda: not is_hub_alive(locate_runtime_folder()), what="the hub to leave with its last viewer"
    )


def _watch(feeds: list[HubFeed]) -> Watcher:
    feeds.append(attach_or_start(interval_s=0.2))
    return Watcher(feeds[-1])


def _is_measured(snapshot: Snapshot) -> bool:
    sample = snapshot.sample
    return snapshot.connection == "live" and sample is not None and len(sample.devices) == 2


def _worker_of(snapshot: Snapshot) -> int:
    assert snapshot.hub is not None
    pid = snapshot.hub.workers[0].pid
    assert pid is not None
    return pid


def test_a_viewer_starts_what_is_missing_and_takes_it_down(node: PretendDriver, feeds: list[HubFeed]) -> None:
    watcher = _watch(feeds)
    sample = watcher.until(_is_measured, "real figures").sample
    assert sample is not None
    assert [d.memory.used_bytes for d in sample.devices] == [10 * GIB, 20 * GIB]
    running = watcher.until(has_worker, "the worker")
    assert running.hub is not None
    offered = tuple(point.name for point in find_entry_points("vramscope.analyzers"))
    assert {"capacity", "out_of_memory", "pressure"} <= set(offered)
    assert running.hub.workers[0].analyzers == offered
    processes = [psutil.Process(running.hub.pid), psutil.Process(_worker_of(running))]
    feeds.pop().stop()
    gone, alive = psutil.wait_procs(processes, timeout=60)
    assert not alive
    assert len(gone) == 2


def test_a_second_viewer_attaches_and_sees_the_history(node: PretendDriver, feeds: list[HubFeed]) -> None:
    first = _watch(feeds)
    late = first.until(
        lambda s: _is_measured(s) and s.sample is not None and s.sample.seq >= 5, "five samples"
    )
    with connect() as client:
        snapshot = client.snapshot(timeout_s=0.0)
        assert snapshot.hub is not None
        assert late.hub is not None
        assert snapshot.hub.hub_id == late.hub.hub_id
        assert client.history.first_seq == 1


def test_an_agent_that_reads_another_root_is_named_and_its_devices_are_not_shown(
    node: PretendDriver, feeds: list[HubFeed], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = _watch(feeds)
    first.until(_is_measured, "the first viewer's devices")
    monkeypatch.setenv("VRAMSCOPE_ROOT", str(tmp_path))
    second = _watch(feeds)
    told = second.until(lambda it: it.reason and "VRAMSCOPE_ROOT" in it.reason, "the other root")
    assert (told.connection, told.sample) == ("lost", None)
    assert "reads devices below /, not below" in str(told.reason)
    assert not any(_is_measured(snapshot) for snapshot in second.seen)
    # Both feeds read the variable of this process.
    monkeypatch.delenv("VRAMSCOPE_ROOT")
    third = _watch(feeds)
    third.until(_is_measured, "devices where nothing is asked for")


def test_a_killed_hub_is_said_and_replaced(node: PretendDriver, feeds: list[HubFeed]) -> None:
    watcher = _watch(feeds)
    before = watcher.until(has_worker, "the worker")
    assert before.hub is not None
    os.kill(before.hub.pid, signal.SIGKILL)
    lost = watcher.until(lambda s: s.connection == "lost", "the loss")
    assert lost.sample is not None
    assert lost.silent_s is not None
    old = before.hub.hub_id
    back = watcher.until(lambda s: _is_measured(s) and s.hub is not None and s.hub.hub_id != old, "a new hub")
    assert back.hub is not None
    psutil.wait_procs(
        [psutil.Process(_worker_of(before))] if psutil.pid_exists(_worker_of(before)) else [], 10
    )
    assert not psutil.pid_exists(_worker_of(before))


def test_a_killed_worker_is_restarted_and_counted(node: PretendDriver, feeds: list[HubFeed]) -> None:
    watcher = _watch(feeds)
    old = _worker_of(watcher.until(has_worker, "the worker"))
    os.kill(old, signal.SIGKILL)
    again = watcher.until(lambda s: has_worker(s) and _worker_of(s) != old, "another worker")
    assert again.hub is not None
    assert again.hub.workers[0].restarts == 1


def test_a_hung_device_goes_stale_alone_and_the_hub_still_leaves(
    node: PretendDriver, feeds: list[HubFeed]
) -> None:
    watcher = _watch(feeds)
    watcher.until(_is_measured, "real figures")
    node.devices[0].hang()
    stale = watcher.until(
        lambda s: s.sample is not None and s.sample.devices[0].state == "stale", "the hung device to be stale"
    )
    assert stale.sample is not None
    seq = stale.sample.seq
    later = watcher.until(lambda s: s.sample is not None and s.sample.seq > seq + 3, "later samples")
    assert later.sample is not None
    assert [d.state for d in later.sample.devices] == ["stale", "ok"]
    assert later.sample.devices[1].age_s is not None


def test_a_hub_that_cannot_start_says_why(tmp_path: Path, private_environment: Path) -> None:
    feed = HubFeed(private_environment, agent_arguments=("--replay", str(tmp_path / "nothing")))
    feed.start_hub()
    watcher = Watcher(feed)
    failed = watcher.until(lambda s: s.reason is not None, "the reason")
    feed.stop()
    assert "nothing" in str(failed.reason)
