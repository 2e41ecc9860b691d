"""What a relay costs: `python -m benchmarks.relay` prints a table.

A real relay before played nodes that speak the real wire, with keys at all ends, on loopback; what plays the
nodes and what follows them through the relay is not counted.
"""

import argparse
import os
import subprocess
import tempfile
import time
from contextlib import ExitStack, closing
from pathlib import Path
from typing import NamedTuple

from tests.engine.cluster.remote import free_port
from vramscope.engine.cluster.addresses import DEFAULT_PORT, LOOPBACK, TcpAddress
from vramscope.engine.cluster.keys import AllowList, make_key_pair, save_key_pair
from vramscope.engine.cluster.nodes_watch import NodesWatch
from vramscope.engine.cluster.trust import Trust

from .cluster.fleet_run import FleetPlan, address_of, make_environment, playing
from .cluster.scripted import DEVICES_A_NODE
from .measure.processes import observe
from .programs import ENVIRONMENT

SETTLE_S = 10.0
JOINED_WITHIN_S = 60.0


class RelayCost(NamedTuple):
    """What a relay cost while somebody followed all of its nodes, or nobody did."""

    words: str
    cpu_percent: float
    rss_mib: float
    joined_s: float | None
    """From nothing to live figures of all nodes, in seconds."""
    dropped: int


def measure_relay(nodes: int, seconds: float) -> list[RelayCost]:
    """Run a relay before played nodes, follow it in two ways, and return what each cost it."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="vs-r-", dir="/tmp")))
        pair = make_key_pair()
        save_key_pair(pair, folder / "config" / "vramscope" / "keys")
        env = make_environment(folder)
        stack.enter_context(playing(FleetPlan(nodes, real=0, past_nodes=0), folder, env))
        hosts, address = folder / "hosts", TcpAddress(LOOPBACK, free_port())
        hosts.write_text("".join(f"{address_of(at)}:{DEFAULT_PORT}\n" for at in range(nodes)))
        command = (str(ENVIRONMENT / "vramscope"), "agent", "--relay", "--hosts", str(hosts))
        relay = subprocess.Popen(
            (*command, "--listen", address.text), env=env, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        stack.callback(relay.wait, 20.0)
        stack.callback(relay.terminate)
        time.sleep(SETTLE_S)
        found = [_watch_alone(relay.pid, seconds)]
        trust = Trust(pair, AllowList())
        for words, most_in_full in (("a viewer of all cells", 0), ("a viewer of all nodes in full", None)):
            with closing(NodesWatch([address], trust, most_in_full=most_in_full)) as watch:
                found.append(_follow(words, watch, relay.pid, nodes, seconds))
        return found


def _watch_alone(pid: int, seconds: float) -> RelayCost:
    before, began_s = observe([pid])[pid], time.monotonic()
    time.sleep(seconds)
    after, wall_s = observe([pid])[pid], time.monotonic() - began_s
    return RelayCost("nobody", 100 * (after.cpu_s - before.cpu_s) / wall_s, after.rss_mib, None, 0)


def _follow(words: str, watch: NodesWatch, pid: int, nodes: int, seconds: float) -> RelayCost:
    began_s = time.monotonic()
    while _count_live(watch) < nodes:
        if time.monotonic() > began_s + JOINED_WITHIN_S:
            raise TimeoutError(f"{_count_live(watch)} of {nodes} nodes came through the relay")
        watch.turn(0.02)
    joined_s = time.monotonic() - began_s
    _turn_for(watch, SETTLE_S)
    before, began_s = observe([pid])[pid], time.monotonic()
    _turn_for(watch, seconds)
    after, wall_s = observe([pid])[pid], time.monotonic() - began_s
    dropped = sum(node.picture.newest.samples_dropped for node in watch.nodes.values())
    cpu_percent = 100 * (after.cpu_s - before.cpu_s) / wall_s
    return RelayCost(words, cpu_percent, after.rss_mib, joined_s, dropped)


def _turn_for(watch: NodesWatch, seconds: float) -> None:
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s:
        watch.turn(0.1)


def _count_live(watch: NodesWatch) -> int:
    return sum(node.picture.newest.connection == "live" for node in watch.nodes.values())


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=128)
    parser.add_argument("--seconds", type=float, default=60.0)
    options = parser.parse_args()
    found = measure_relay(options.nodes, options.seconds)
    print(
        f"{options.nodes} played nodes, {DEVICES_A_NODE} devices each, 1 Hz, "
        f"{options.seconds:g} s, load {os.getloadavg()[0]:.1f}"
    )
    for it in found:
        joined = "" if it.joined_s is None else f", all live after {it.joined_s:.2f} s, {it.dropped} lost"
        print(f"{it.words}: {it.cpu_percent:.1f} % of a core, {it.rss_mib:.0f} MiB{joined}")


if __name__ == "__main__":
    main()
