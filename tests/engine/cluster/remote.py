"""Hubs that listen on loopback, and a watch that follows them."""

import socket
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from vramscope.engine.clock import Clock
from vramscope.engine.cluster.addresses import LOOPBACK, TcpAddress
from vramscope.engine.cluster.gate import make_listening
from vramscope.engine.cluster.keys import AllowedKey, AllowList, KeyPair, Role, save_allow_list
from vramscope.engine.cluster.links import LinkTimes
from vramscope.engine.cluster.nodes_watch import NodesWatch
from vramscope.engine.cluster.trust import Trust
from vramscope.engine.viewer.snapshot import Snapshot

from ...waiting import wait_until
from ..agent.hubs import RunningHub


def free_port() -> int:
    """Return a port on which nobody listens now."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])


def allow(folder: Path, *keys: tuple[Role, KeyPair]) -> None:
    """Replace the list of keys that are allowed."""
    save_allow_list(
        AllowList(AllowedKey(role, it.public, f"{role}-{at}") for at, (role, it) in enumerate(keys)), folder
    )


def trust_of(pair: KeyPair | None, *, node: KeyPair | None = None) -> Trust:
    """Return the keys of a viewer that knows every node by one key."""
    known = [] if node is None else [AllowedKey("node", node.public, "*")]
    return Trust(pair, AllowList(known))


class ListeningHub(RunningHub):
    """A hub on a port of loopback; without a pair it lets everybody read."""

    def __init__(
        self,
        pair: KeyPair | None,
        keys_folder: Path,
        address: TcpAddress | None = None,
        times: LinkTimes | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.address = address or TcpAddress(LOOPBACK, free_port())
        self._folder = tempfile.TemporaryDirectory(prefix="vs-hub-", dir="/tmp")
        listening = make_listening(self.address, pair, keys_folder)
        listening = listening._replace(times=times or listening.times)
        super().__init__(Path(self._folder.name), listening=listening, clock=clock)

    @property
    def folder(self) -> Path:
        """Its runtime folder."""
        return Path(self._folder.name)

    def __exit__(self, *details: object) -> None:
        super().__exit__(*details)
        self._folder.cleanup()


@contextmanager
def following(
    trust: Trust, *addresses: TcpAddress, times: LinkTimes | None = None, clock: Clock | None = None
) -> Iterator[NodesWatch]:
    """Follow nodes until the block ends."""
    watch = NodesWatch(addresses, trust, times=times, clock=clock)
    try:
        yield watch
    finally:
        watch.close()


def until(
    watch: NodesWatch, condition: Callable[[Snapshot], object], address: TcpAddress | None = None
) -> Snapshot:
    """Turn until the picture of a node is as it should be, and return it; of the only node by default."""
    name = next(iter(watch.nodes)) if address is None else address.label

    def is_met() -> bool:
        watch.turn(0.05)
        return bool(condition(watch.nodes[name].picture.newest))

    wait_until(is_met, what=f"the picture of {name}")
    return watch.nodes[name].picture.newest


def has_seq(seq: int) -> Callable[[Snapshot], bool]:
    """Return whether a picture is of this sample, and live."""
    return lambda it: it.connection == "live" and it.sample is not None and it.sample.seq == seq


def says(words: str) -> Callable[[Snapshot], bool]:
    """Return whether a picture says why it is lost in these words."""
    return lambda it: it.connection == "lost" and words in (it.reason or "")
