"""Relays that listen on loopback, and what a viewer sees through them."""

import threading
from collections.abc import Callable
from typing import Self

from vramscope.engine.cluster.addresses import LOOPBACK, NodeAddress, TcpAddress
from vramscope.engine.cluster.gate import make_listening
from vramscope.engine.cluster.keys import KeyPair, keys_folder
from vramscope.engine.cluster.nodes_watch import NodesWatch
from vramscope.engine.cluster.relay import Relay
from vramscope.engine.viewer.snapshot import Snapshot

from ...waiting import wait_until
from .remote import free_port, trust_of


class RunningRelay:
    """A relay on a port of loopback until the `with` block ends; without a pair it lets everybody read."""

    def __init__(
        self,
        *nodes: NodeAddress,
        address: TcpAddress | None = None,
        pair: KeyPair | None = None,
        node: KeyPair | None = None,
    ) -> None:
        self.address = address or TcpAddress(LOOPBACK, free_port())
        listening = make_listening(self.address, pair, keys_folder())
        self.relay = Relay(nodes, trust_of(pair, node=node), listening, name="relay", version="test")
        self.thread = threading.Thread(target=self.relay.run, daemon=True)

    def __enter__(self) -> Self:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.relay.stop()
        self.thread.join(timeout=60)
        assert not self.thread.is_alive()


def until_of(watch: NodesWatch, name: str, condition: Callable[[Snapshot], object]) -> Snapshot:
    """Turn until a node is there and its picture as it should be; return that."""

    def is_met() -> bool:
        watch.turn(0.05)
        return name in watch.nodes and bool(condition(watch.nodes[name].picture.newest))

    wait_until(is_met, what=f"the picture of {name}")
    return watch.nodes[name].picture.newest
