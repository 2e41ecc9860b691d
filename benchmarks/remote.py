"""What viewers over tcp cost an agent, with keys: `python -m benchmarks.remote` prints a table.

A real agent on pretend devices, on loopback. Bytes are counted by a relay between a viewer and the agent.
"""

import argparse
import os
import select
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from statistics import median
from typing import NamedTuple

import zmq

from tests.engine.cluster.remote import free_port
from vramscope.engine.cluster.addresses import LOOPBACK, TcpAddress
from vramscope.engine.cluster.keys import AllowList, KeyPair, make_key_pair, save_key_pair
from vramscope.engine.cluster.links import NodeKeys, RemoteLink
from vramscope.engine.cluster.nodes_watch import NodesWatch
from vramscope.engine.cluster.trust import Trust

from .machine import Machine
from .programs import ENVIRONMENT, ROOT

SETTLE_S = 6.0
JOININGS = 20
AT_ONCE = 64
"""Attempts with wrong keys that are under way together."""


class CountingRelay:
    """Hands bytes on between one viewer and an agent, and counts those of the agent."""

    def __init__(self, target: TcpAddress) -> None:
        self.address = TcpAddress(LOOPBACK, free_port())
        self.received_bytes = 0
        self._target = target
        self._listener = socket.create_server((LOOPBACK, self.address.port))
        threading.Thread(target=self._relay, daemon=True).start()

    def _relay(self) -> None:
        viewer, _ = self._listener.accept()
        agent = socket.create_connection((self._target.host, self._target.port))
        with viewer, agent, suppress(OSError):
            while True:
                for ready in select.select([viewer, agent], [], [])[0]:
                    data = ready.recv(65536)
                    if not data:
                        return
                    self.received_bytes += len(data) if ready is agent else 0
                    (viewer if ready is agent else agent).sendall(data)


class Viewers:
    """Viewers on a thread of their own, as `vramscope --connect` follows a node."""

    def __init__(self, addresses: list[TcpAddress], trust: Trust) -> None:
        self._watches = [NodesWatch([address], trust) for address in addresses]
        self._is_stopped = False
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    @property
    def dropped(self) -> int:
        """Samples that never reached them."""
        return sum(next(iter(it.nodes.values())).picture.newest.samples_dropped for it in self._watches)

    @property
    def are_live(self) -> bool:
        """Whether all of them have figures."""
        nodes = (next(iter(it.nodes.values())) for it in self._watches)
        return all(node.picture.newest.connection == "live" for node in nodes)

    def stop(self) -> None:
        """Leave."""
        self._is_stopped = True
        self._thread.join()
        for watch in self._watches:
            watch.close()

    def _run(self) -> None:
        while not self._is_stopped:
            for watch in self._watches:
                watch.turn(0.02)


class ListeningAgent(NamedTuple):
    """An agent that listens, and what runs next to it."""

    hub: int
    """Process id."""
    bare_loop: int
    """Process id of a loop that reads the same devices and does nothing else."""
    address: TcpAddress


@contextmanager
def listening_agent(devices: int, pair: KeyPair) -> Iterator[ListeningAgent]:
    """Run an agent that listens on loopback with a key, and a bare loop next to it."""
    address = TcpAddress(LOOPBACK, free_port())
    with ExitStack() as stack:
        machine = stack.enter_context(Machine(devices))
        config = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="vs-bench-keys-", dir="/tmp")))
        save_key_pair(pair, config / "vramscope" / "keys")
        env = {**machine.env, "XDG_CONFIG_HOME": str(config), "PYTHONPATH": str(ROOT)}
        bare_loop = stack.enter_context(_running([sys.executable, "-m", "benchmarks.bare_loop"], env))
        command = [str(ENVIRONMENT / "vramscope"), "agent", "--listen", address.text]
        hub = stack.enter_context(_running(command, env))
        _await(lambda: _is_open(address))
        time.sleep(SETTLE_S)
        yield ListeningAgent(hub, bare_loop, address)


@contextmanager
def _running(command: Sequence[str], env: dict[str, str]) -> Iterator[int]:
    """Run a program until the block ends; yields its process id."""
    nothing = subprocess.DEVNULL
    program = subprocess.Popen(command, env=env, stdin=nothing, stdout=nothing, stderr=nothing)
    try:
        yield program.pid
    finally:
        program.terminate()
        program.wait(10.0)


def read_cpu_s(pid: int) -> float:
    """Return the CPU seconds that all threads of a process have used, as the scheduler counts them."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def measure_cpu(agent: ListeningAgent, window_s: float) -> str:
    """Return the CPU of a hub, of its worker and of the bare loop over the same while, in words."""
    pids = [agent.hub, *_list_children(agent.hub), agent.bare_loop]
    before_s, began_s = [read_cpu_s(pid) for pid in pids], time.monotonic()
    time.sleep(window_s)
    wall_s = time.monotonic() - began_s
    used = [100 * (read_cpu_s(pid) - before) / wall_s for pid, before in zip(pids, before_s, strict=True)]
    return f"{used[0]:.2f} % of a core, worker {sum(used[1:-1]):.2f} %, bare loop {used[-1]:.2f} %"


def _list_children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def measure_joining(address: TcpAddress, trust: Trust, count: int) -> list[float]:
    """Return the seconds from nothing to the first figures, for viewers one after the other."""
    taken_s = []
    for _ in range(count):
        began_s = time.monotonic()
        watch = NodesWatch([address], trust)
        while next(iter(watch.nodes.values())).picture.newest.sample is None:
            watch.turn(0.1)
        taken_s.append(time.monotonic() - began_s)
        watch.close()
    return taken_s


def refuse_many(address: TcpAddress, node: bytes, attempts: int) -> None:
    """Try to come in with wrong keys; each attempt is refused once."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    context.set(zmq.MAX_SOCKETS, 8 * AT_ONCE)
    for _ in range(0, attempts, AT_ONCE):
        poller = zmq.Poller()
        links = [RemoteLink(context, poller) for _ in range(AT_ONCE)]
        for link in links:
            link.open(address, NodeKeys(make_key_pair(), node))
        while any(link.failure is None for link in links):
            poller.poll(100)
            for link in links:
                link.note_events()
        for link in links:
            link.close()
    context.destroy(linger=0)


def measure_refusals(hub: int, address: TcpAddress, node: bytes, attempts: int) -> tuple[float, float]:
    """Return the CPU seconds of a hub for each attempt with a wrong key, and attempts a second."""
    before_s, began_s = read_cpu_s(hub), time.monotonic()
    refuse_many(address, node, attempts)
    return (read_cpu_s(hub) - before_s) / attempts, attempts / (time.monotonic() - began_s)


def measure(devices: int, viewers: int, window_s: float, attempts: int) -> Iterator[tuple[str, str]]:
    """Yield what was measured and how much it is, as it is known."""
    pair = make_key_pair()
    trust = Trust(pair, AllowList())
    with listening_agent(devices, pair) as agent:
        hub, address = agent.hub, agent.address
        yield "hub alone", measure_cpu(agent, window_s)
        relay = CountingRelay(address)
        following = Viewers([address] * (viewers - 1) + [relay.address], trust)
        try:
            _await(lambda: following.are_live)
            time.sleep(SETTLE_S)
            before_bytes = relay.received_bytes
            yield f"hub with {viewers} viewers over tcp", measure_cpu(agent, window_s)
            yield "to one viewer", f"{(relay.received_bytes - before_bytes) / window_s:,.0f} bytes/s"
            joining_s = median(measure_joining(address, trust, JOININGS))
            yield f"from nothing to figures, median of {JOININGS}", f"{1000 * joining_s:.0f} ms"
            each_s, per_second = measure_refusals(hub, address, pair.public, attempts)
            yield f"each of {attempts:,} wrong keys", f"{1e6 * each_s:.0f} µs of the hub's CPU"
            yield "wrong keys a second", f"{per_second:,.0f}"
            yield "samples lost meanwhile by who follows", f"{following.dropped}"
            resident = int(Path(f"/proc/{hub}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
            yield "memory of the hub in the end", f"{resident / 2**20:.0f} MiB"
        finally:
            following.stop()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.remote", description=__doc__)
    parser.add_argument("--devices", type=int, default=8)
    parser.add_argument("--viewers", type=int, default=4)
    parser.add_argument("--window", type=float, default=30.0, metavar="SECONDS")
    parser.add_argument("--attempts", type=int, default=10_000, help="with wrong keys (10000)")
    options = parser.parse_args()
    load = os.getloadavg()[0]
    print(f"agent on {options.devices} pretend devices at 1 s, keys, {os.cpu_count()} cores, load {load:.1f}")
    for name, figure in measure(options.devices, options.viewers, options.window, options.attempts):
        print(f"  {name:42} {figure}", flush=True)


def _is_open(address: TcpAddress) -> bool:
    with suppress(OSError), socket.create_connection((address.host, address.port), timeout=1):
        return True
    return False


def _await(condition: Callable[[], bool], timeout_s: float = 30.0) -> None:
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"waited {timeout_s:g} s")
        time.sleep(0.05)


if __name__ == "__main__":
    main()
