"""A viewer in a process of its own: what its picture of one node said, and when. It writes lines of JSON."""

import json
import signal
import sys
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import TextIO

from vramscope.analyzers.fleet.fleet import Fleet
from vramscope.engine.cluster.addresses import parse_address
from vramscope.engine.cluster.nodes_watch import NodesWatch
from vramscope.engine.cluster.trust import read_trust
from vramscope.engine.viewer.snapshot import Snapshot

TURN_S = 0.25


class Watching:
    """Follows one node until it is stopped, and writes down each change of its picture."""

    def __init__(self, address: str, output: TextIO) -> None:
        self._output, self._fleet = output, Fleet()
        self._watch = NodesWatch([parse_address(address)], read_trust(is_insecure=False))
        self._is_stopping = False
        self._newest = Snapshot()

    def stop(self, _signal: int, _frame: FrameType | None) -> None:
        """End soon."""
        self._is_stopping = True

    def run(self) -> None:
        """Follow."""
        while not self._is_stopping:
            for snapshot in self._watch.turn(TURN_S):
                if snapshot.is_gone:  # a relay, in whose place the node behind it is followed
                    continue
                self._fleet.note(snapshot, time.time())
                self._newest = snapshot
                self._write(written_s=time.monotonic(), **_describe(snapshot))
        remembered: list[int] = []
        dropped = 0
        for node in self._watch.nodes.values():
            remembered += [sample.seq for sample in node.picture.history.samples()]
            dropped += node.picture.newest.samples_dropped
        self._write(remembered=remembered, missing=_count_missing(remembered), dropped=dropped)
        self._watch.close()

    def _write(self, **facts: object) -> None:
        if self._newest.node:
            node = self._fleet.node(self._newest.node)
            levels = [device.level for device in self._fleet.devices_of(node.name)]
            facts |= {"clock_offset_s": node.clock_offset_s, "levels": levels}
        self._output.write(json.dumps(facts) + "\n")
        self._output.flush()


def _describe(snapshot: Snapshot) -> dict[str, object]:
    """Return what a line says about a picture."""
    sample = snapshot.sample
    return {
        "connection": snapshot.connection,
        "reason": snapshot.reason,
        "silent_s": snapshot.silent_s,
        "hub_id": None if snapshot.hub is None else snapshot.hub.hub_id,
        "seq": None if sample is None else sample.seq,
        "late_s": None if sample is None else time.time() - sample.time_s,
    }


def _count_missing(seqs: list[int]) -> int:
    """Return how many samples are missing between others; a hub that was restarted counts from 0."""
    return sum(max(0, later - earlier - 1) for earlier, later in _steps(seqs))


def _steps(seqs: list[int]) -> Iterator[tuple[int, int]]:
    return ((earlier, later) for earlier, later in pairwise(seqs) if later > earlier)


def main() -> None:
    """Follow the node that the command line names, into the file that it names."""
    address, path = sys.argv[1:]
    with Path(path).open("w", encoding="utf-8") as output:
        watching = Watching(address, output)
        signal.signal(signal.SIGTERM, watching.stop)
        watching.run()


if __name__ == "__main__":
    main()
