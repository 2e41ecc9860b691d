"""Plays many nodes in one process, over made samples: whole hubs with a past, and publishers of the wire.

python -m benchmarks.cluster.player OPTIONS.json

Says `ready` on stdout once all hubs listen, ends when its standard input closes, and leaves behind when each
sample was taken. What it costs is no cost of an agent.
"""

import gc
import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import NamedTuple

import zmq

from vramscope.engine.agent.hub import Hub
from vramscope.engine.cluster.addresses import TcpAddress
from vramscope.engine.cluster.gate import Listening, make_listening
from vramscope.engine.cluster.keys import keys_folder, read_key_pair
from vramscope.engine.model import Sample
from vramscope.engine.wire.endpoints import endpoints_of
from vramscope.engine.wire.messages import WorkerReport, encode

from .publisher import Publisher
from .scripted import SAYS_EVERY, Kind, is_at_risk, make_assessments, make_sample

STACK_BYTES = 512 * 1024
"""Of a thread; a whole hub has three."""
PAST_AT_ONCE = 60
"""Samples of the past that are made together: an hour of them all at once is 70 MiB a node."""


class PlayerOptions(NamedTuple):
    """What a player is to play."""

    folder: str
    """For sockets and for what it leaves behind; its path must be short."""
    addresses: list[str]
    """Numeric address of each node, on the same port."""
    port: int
    first: int
    """Number of the first node among all."""
    total: int
    """Nodes in all: their samples are spread over the second."""
    kind: Kind
    past_nodes: int = 0
    """How many nodes, from number 0 on, are whole hubs that remember a past from the beginning."""
    past_s: int = 0
    """Seconds that these remember."""


class PlayedNode:
    """Produces the samples of one node on the second, and says what its worker would."""

    interval_s = 1.0
    is_calm = False

    def __init__(self, number: int, offset_s: float, kind: Kind, past_s: int) -> None:
        self.node = f"n{number:04d}"
        self.taken: list[tuple[int, float]] = []
        """Number of each sample, and when it was taken by the monotonic clock."""
        self.reports: zmq.Socket[bytes] | None = None
        self._number, self._offset_s, self._kind, self._past_s = number, offset_s, kind, past_s
        self._due_s = 0.0
        self._seq = 0

    def start(self) -> None:
        """Begin at the node's own moment within the second."""
        self._due_s = float(int(time.monotonic()) + 1) + self._offset_s

    def wait_s(self) -> float:
        """Return the seconds until the next sample is due."""
        return 0.0 if self._past_s else max(0.0, self._due_s - time.monotonic())

    def take(self) -> list[Sample]:
        """Return the sample that is due, if one is; before the first one some of the past at a time."""
        if self._past_s:
            some = min(PAST_AT_ONCE, self._past_s)
            self._past_s -= some
            return [self._make(-(self._past_s + ago_s)) for ago_s in range(some, 0, -1)]
        late_s = time.monotonic() - self._due_s
        if late_s < 0:
            return []
        self._due_s += self.interval_s * (1 + int(late_s))
        sample = self._make(0.0)
        self.taken.append((sample.seq, time.monotonic()))
        if sample.seq % SAYS_EVERY == 1 or is_at_risk(self._number):
            self._say(sample)
        return [sample]

    def stop(self) -> None:
        """Do nothing."""

    def _make(self, after_s: float) -> Sample:
        self._seq += 1
        return make_sample(self.node, self._number, self._seq, time.time() + after_s, self._kind)

    def _say(self, sample: Sample) -> None:
        if self.reports is None:
            return
        assessments = make_assessments(sample, self._number)
        report = WorkerReport("analyzers", 1, sample.seq, 0, ("oom",), assessments=assessments)
        self.reports.send(encode("report", "", report), zmq.NOBLOCK)


class Player:
    """Runs whole hubs, each on a thread of its own, and the publisher of the others."""

    def __init__(self, options: PlayerOptions) -> None:
        self._options = options
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.nodes: list[PlayedNode] = []
        self._hubs: list[Hub] = []
        pair, folder = read_key_pair(keys_folder()), keys_folder()
        listenings = [
            make_listening(TcpAddress(host, options.port), pair, folder) for host in options.addresses
        ]
        whole = max(0, min(options.past_nodes - options.first, len(listenings)))
        for at, listening in enumerate(listenings[:whole]):
            self._add_hub(options.first + at, listening)
        numbers = range(options.first + whole, options.first + len(listenings))
        self._publisher = Publisher(listenings[whole:], numbers, options.total, options.kind)

    @property
    def taken(self) -> list[list[tuple[int, float]]]:
        """When each sample of each node was taken."""
        return [*(node.taken for node in self.nodes), *(node.taken for node in self._publisher.nodes)]

    def run(self) -> None:
        """Play until standard input closes."""
        threading.stack_size(STACK_BYTES)
        threads = [threading.Thread(target=hub.run) for hub in self._hubs]
        for thread in threads:
            thread.start()
        self._publisher.start()
        while not all(self.taken):
            time.sleep(0.1)
        print("ready", flush=True)
        sys.stdin.read()
        self._publisher.stop()
        for hub in self._hubs:
            hub.stop()
        for thread in threads:
            thread.join()
        self._context.destroy(linger=0)

    def _add_hub(self, number: int, listening: Listening) -> None:
        options = self._options
        node = PlayedNode(number, number / options.total, options.kind, options.past_s)
        runtime = Path(options.folder) / f"{number}"
        runtime.mkdir(mode=0o700)
        self._hubs.append(Hub(runtime, node, version="played", listening=listening))
        node.reports = self._context.socket(zmq.PUSH)
        node.reports.connect(endpoints_of(runtime).reports)
        self.nodes.append(node)


def main() -> None:
    """Play what the options say."""
    options = PlayerOptions(**json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
    player = Player(options)
    gc.disable()  # nothing here is garbage in rings, and a pause of all nodes at once is not what is played
    player.run()
    taken = dict(zip(options.addresses, player.taken, strict=True))
    Path(options.folder, "taken.json").write_text(json.dumps(taken), encoding="utf-8")
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
