"""A real hub of a real node without a driver, on a thread of the test's own, to which probes report."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from vramscope.engine.agent.hub import Hub
from vramscope.engine.agent.supervisor import VIEWER_WITHIN_S
from vramscope.engine.paths import locate_runtime_folder
from vramscope.engine.ranks.roster import Roster
from vramscope.engine.sampling.live import LiveProducer
from vramscope.engine.viewer.client import Client
from vramscope.engine.viewer.snapshot import Snapshot
from vramscope.engine.wire.endpoints import is_hub_alive
from vramscope.exporters.status.document import describe_snapshot

from ...waiting import wait_until

TICK_S = 0.1


class RankHub:
    """A hub that serves a folder until the `with` block ends."""

    def __init__(
        self,
        folder: Path,
        *,
        leaves_with_viewers: bool = False,
        first_within_s: float = VIEWER_WITHIN_S,
        linger_s: float = 0.0,
        interval_s: float = TICK_S,
    ) -> None:
        self.roster = Roster(folder, node="n")
        self.producer = LiveProducer([], None, node="n", interval_s=interval_s, roster=self.roster)
        self.hub = Hub(
            folder,
            self.producer,
            version="test",
            roster=self.roster,
            leaves_with_viewers=leaves_with_viewers,
            first_within_s=first_within_s,
            linger_s=linger_s,
        )
        self.thread = threading.Thread(target=self.hub.run, daemon=True)

    @property
    def is_running(self) -> bool:
        """Whether it still serves."""
        return self.thread.is_alive()

    def __enter__(self) -> "RankHub":
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.hub.stop()
        self.thread.join(timeout=60)
        assert not self.thread.is_alive()


def see(
    client: Client,
    condition: Callable[[Snapshot], object],
    what: str = "the viewer's picture",
    *,
    timeout_s: float = 60.0,
) -> Snapshot:
    """Return the first picture of which the condition holds."""
    found: list[Snapshot] = []

    def is_met() -> bool:
        found.append(client.snapshot(timeout_s=0.05))
        return bool(condition(found[-1]))

    wait_until(is_met, timeout_s, what)
    return found[-1]


def see_ranks(client: Client, count: int = 1) -> Snapshot:
    """Return the first picture with so many ranks."""
    return see(client, lambda s: s.sample is not None and len(s.sample.ranks) == count, "the ranks")


def await_steps(of: int = 1, *, index: int = 1) -> None:
    """Return once an agent runs in the folder of this test and so many ranks have ended step `index`."""
    folder = locate_runtime_folder()
    wait_until(lambda: is_hub_alive(folder), 60.0, "the agent of the job")

    def have_stepped(snapshot: Snapshot) -> bool:
        ranks = () if snapshot.sample is None else snapshot.sample.ranks
        ended = [rank.step.index for rank in ranks if rank.state == "ok" and rank.step is not None]
        return len([it for it in ended if it >= index]) >= of

    with Client(folder) as client:
        see(client, have_stepped, f"step {index} of the job", timeout_s=150.0)


def list_ranks() -> list[dict[str, Any]]:
    """Return the ranks that the agent of this test tells of, as `--json` prints them; none without one."""
    folder = locate_runtime_folder()
    if not is_hub_alive(folder):
        return []
    with Client(folder) as client:
        snapshot = see(client, lambda it: it.sample is not None, "a sample", timeout_s=60.0)
    status = describe_snapshot(snapshot)
    ranks: list[dict[str, Any]] = [] if status is None else list(msgspec.to_builtins(status.ranks))
    return ranks
