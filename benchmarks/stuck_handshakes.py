"""What strangers cost an agent who connect and then say nothing: `python -m benchmarks.stuck_handshakes`.

A real agent on pretend devices, on loopback, with keys, followed by one viewer. As many connections as asked
for send ten bytes and wait; the agent closes each after five seconds. Afterwards it is left alone, and looked
at once more.
"""

import argparse
import os
import resource
import selectors
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from statistics import median

from vramscope.engine.cluster.addresses import TcpAddress
from vramscope.engine.cluster.keys import AllowList, make_key_pair
from vramscope.engine.cluster.trust import Trust

from .remote import Viewers, listening_agent, measure_joining, read_cpu_s

SIGNATURE = b"\xff" + bytes(8) + b"\x7f"
"""What a greeting of ZeroMQ begins with."""
GIVE_UP_S = 60.0
JOININGS = 5


class Strangers:
    """Connections that are made and left as they are.

    Args:
        address: Of the agent.
        count: How many.
    """

    def __init__(self, address: TcpAddress, count: int) -> None:
        self._selector = selectors.DefaultSelector()
        self._open: dict[int, socket.socket] = {}
        self.made = 0
        for _ in range(count):
            with suppress(OSError):
                self._connect(address)

    @property
    def left(self) -> int:
        """How many the agent has not closed."""
        return len(self._open)

    def wait_until_closed(self) -> None:
        """Wait until the agent has closed all."""
        end_s = time.monotonic() + GIVE_UP_S
        while self.left and time.monotonic() < end_s:
            for key, _ in self._selector.select(1.0):
                if _is_closed(self._open[key.fd]):
                    self._selector.unregister(key.fd)
                    self._open.pop(key.fd).close()

    def close(self) -> None:
        """Close those that are left."""
        for peer in self._open.values():
            peer.close()
        self._selector.close()

    def _connect(self, address: TcpAddress) -> None:
        peer = socket.create_connection((address.host, address.port), timeout=5)
        peer.sendall(SIGNATURE)
        peer.setblocking(False)
        self._open[peer.fileno()] = peer
        self._selector.register(peer.fileno(), selectors.EVENT_READ)
        self.made += 1


def _is_closed(peer: socket.socket) -> bool:
    try:
        return not peer.recv(4096)
    except BlockingIOError:
        return False
    except OSError:
        return True


def count_descriptors(pid: int) -> int:
    """Return how many files and connections a process has open."""
    return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())


def read_rss_mib(pid: int) -> float:
    """Return the resident memory of a process in MiB."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def measure(count: int, devices: int, most: int | None) -> Iterator[tuple[str, str]]:
    """Yield what was measured and how much it is, as it is known.

    Args:
        count: Of connections.
        devices: Of the agent.
        most: Limit of open files of the agent; None for the one that it sets itself.
    """
    pair = make_key_pair()
    trust = Trust(pair, AllowList())
    with listening_agent(devices, pair) as (hub, _, address):
        following = Viewers([address], trust)
        if most is not None:
            resource.prlimit(hub, resource.RLIMIT_NOFILE, (most, most))
        try:
            yield "limit of open files of the agent", f"{resource.prlimit(hub, resource.RLIMIT_NOFILE)[0]:,}"
            yield "memory before", f"{read_rss_mib(hub):.0f} MiB"
            began_s, cpu_s = time.monotonic(), read_cpu_s(hub)
            strangers = Strangers(address, count)
            made_s = time.monotonic() - began_s
            yield "connections made", f"{strangers.made:,} of {count:,} in {made_s:.1f} s"
            yield "open at the agent", f"{count_descriptors(hub):,} of the {strangers.made:,}"
            yield "memory then", f"{read_rss_mib(hub):.0f} MiB"
            joining_s = measure_joining(address, trust, JOININGS)
            yield f"joining then, median and most of {JOININGS}", _milliseconds(joining_s)
            strangers.wait_until_closed()
            yield "until all were closed", f"{time.monotonic() - began_s:.1f} s ({strangers.left:,} left)"
            strangers.close()
            yield "CPU of the agent for each", f"{1e6 * (read_cpu_s(hub) - cpu_s) / count:.0f} µs"
            _settle(lambda: count_descriptors(hub) < 200)
            yield "joining afterwards", _milliseconds(measure_joining(address, trust, JOININGS))
            yield "open and memory afterwards", f"{count_descriptors(hub):,}, {read_rss_mib(hub):.0f} MiB"
            yield "samples lost by who follows", f"{following.dropped}"
        finally:
            following.stop()


def _milliseconds(taken_s: list[float]) -> str:
    return f"{1000 * median(taken_s):.0f} ms, {1000 * max(taken_s):.0f} ms"


def _settle(condition: Callable[[], bool], timeout_s: float = 15.0) -> None:
    end_s = time.monotonic() + timeout_s
    while not condition() and time.monotonic() < end_s:
        time.sleep(0.1)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.stuck_handshakes", description=__doc__)
    parser.add_argument("--connections", type=int, default=10_000)
    parser.add_argument("--devices", type=int, default=8)
    parser.add_argument("--limit", type=int, help="of open files of the agent, instead of its own")
    options = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    print(f"{options.connections:,} connections that say nothing, {os.cpu_count()} cores")
    for name, figure in measure(options.connections, options.devices, options.limit):
        print(f"  {name:42} {figure}", flush=True)


if __name__ == "__main__":
    main()
