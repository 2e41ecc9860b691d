"""Many nodes on loopback, and the program that shows them in a terminal of 200x50."""

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

import pyte

from vramscope.engine.cluster.addresses import DEFAULT_PORT
from vramscope.engine.cluster.keys import make_key_pair, save_key_pair

from ..machine import Machine
from ..measure.processes import MARK, observe
from ..measure.terminal import Terminal
from ..programs import ENVIRONMENT, ROOT
from .markers import Seen, find_seen
from .player import PlayerOptions
from .scripted import DEVICES_A_NODE, Kind

COLUMNS, ROWS = 200, 50
SETTLE_S = 10.0
READY_WITHIN_S = 180.0
LOOK_S = 5.0
"""From one look at the memory of the viewer to the next."""


@dataclass(frozen=True)
class FleetPlan:
    """What is measured."""

    nodes: int = 128
    real: int = 8
    """How many of them are real agents on pretend devices."""
    players: int = 2
    """Processes that play the others."""
    kind: Kind = "drifts"
    seconds: float = 60.0
    past_nodes: int = 8
    """Played nodes that remember a past; the viewer follows the first of them in full."""
    past_s: int = 3600
    relays: int = 0
    """Relays that the nodes are shared between; the viewer follows these. 0: it follows the nodes."""


@dataclass(frozen=True)
class FleetFigures:
    """What a viewer cost over a while."""

    plan: FleetPlan
    cpu_percent: float
    rss_mib: tuple[float, ...]
    """Every five seconds."""
    bytes_per_s: float
    frames_per_s: float
    seen: Seen
    lost: int
    """Samples that were published after the viewer had joined and never reached it."""
    live: int
    """Nodes that were live in the end."""
    agents_cpu_percent: float | None
    """Of the hubs of the real agents, on average."""
    relays_cpu_percent: float | None
    """Of each relay, on average."""
    relays_rss_mib: float | None
    """Of the largest relay."""
    load: float
    """Load of the machine over the last minute."""


def address_of(number: int) -> str:
    """Return the numeric host of a node; all have as many digits."""
    return f"127.1.{10 + number // 90}.{10 + number % 90}"


def measure_fleet(plan: FleetPlan) -> FleetFigures:
    """Run a fleet, show it, and return what that cost the viewer."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="vs-w-", dir="/tmp")))
        save_key_pair(make_key_pair(), folder / "config" / "vramscope" / "keys")
        env = make_environment(folder)
        played = stack.enter_context(playing(plan, folder, env))
        agents = [stack.enter_context(_agent(plan.nodes - 1 - at, env)) for at in range(plan.real)]
        hosts = [address_of(number) for number in range(plan.nodes)]
        relays = [stack.enter_context(_relay(at, _share(hosts, at, plan), env)) for at in range(plan.relays)]
        followed = [_relay_address(at) for at in range(plan.relays)] or hosts
        command = [sys.executable, "-m", "benchmarks.cluster.viewer", str(folder / "counts.json")]
        command += ["--hosts", str(_write_hosts(followed, folder / "hosts"))]
        return _show(plan, command, env, played, Others(agents, relays))


class Others(NamedTuple):
    """Process ids of what else is measured."""

    agents: Sequence[int]
    relays: Sequence[int]


def _share(hosts: Sequence[str], at: int, plan: FleetPlan) -> Sequence[str]:
    """Return the nodes of one relay."""
    share = -(-len(hosts) // plan.relays)
    return hosts[at * share : (at + 1) * share]


def _relay_address(at: int) -> str:
    return f"127.2.10.{10 + at}"


def _write_hosts(hosts: Sequence[str], path: Path) -> Path:
    path.write_text("".join(f"{host}\n" for host in hosts), encoding="utf-8")
    return path


def make_environment(folder: Path) -> dict[str, str]:
    """Return the variables of programs that have a home, keys and a runtime folder of their own."""
    places = {name: str(folder / name.lower()) for name in ("HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR")}
    for place in places.values():
        Path(place).mkdir(mode=0o700)
    return {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(ROOT),
        "LANG": "C.UTF-8",
        "TERM": "xterm-256color",
        "COLORTERM": "truecolor",
        "XDG_CONFIG_HOME": str(folder / "config"),
        **places,
    }


@contextmanager
def playing(plan: FleetPlan, folder: Path, env: dict[str, str]) -> Iterator["Players"]:
    """Play nodes until the block ends."""
    players = Players(plan, folder, env)
    try:
        players.wait_until_ready()
        yield players
    finally:
        players.stop()


class Players:
    """Processes that play the nodes which are not real."""

    def __init__(self, plan: FleetPlan, folder: Path, env: dict[str, str]) -> None:
        numbers = range(plan.nodes - plan.real)
        share = -(-len(numbers) // plan.players)
        self._folders: list[Path] = []
        self._processes: list[subprocess.Popen[str]] = []
        for first in range(0, len(numbers), share):
            own = folder / f"p{first}"
            own.mkdir(mode=0o700)
            hosts = [address_of(number) for number in numbers[first : first + share]]
            options = PlayerOptions(
                str(own), hosts, DEFAULT_PORT, first, plan.nodes, plan.kind, plan.past_nodes, plan.past_s
            )
            (own / "options.json").write_text(json.dumps(options._asdict()), encoding="utf-8")
            self._folders.append(own)
            command = [sys.executable, "-m", "benchmarks.cluster.player", str(own / "options.json")]
            self._processes.append(
                subprocess.Popen(command, env=env, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            )

    def wait_until_ready(self) -> None:
        """Return once all of them listen.

        Raises:
            RuntimeError: One of them has ended; it has said why.
        """
        for process in self._processes:
            assert process.stdout is not None  # noqa: S101 - it was asked for
            if process.stdout.readline().strip() != "ready":
                raise RuntimeError("a player could not begin")

    def stop(self) -> dict[str, list[tuple[int, float]]]:
        """End them; return when each sample of each node was taken."""
        for process in self._processes:
            if process.stdin is not None and not process.stdin.closed:
                process.stdin.close()
        taken: dict[str, list[tuple[int, float]]] = {}
        for process, folder in zip(self._processes, self._folders, strict=True):
            process.wait(60.0)
            if (folder / "taken.json").exists():
                taken |= json.loads((folder / "taken.json").read_text(encoding="utf-8"))
        return taken


@contextmanager
def _agent(number: int, env: dict[str, str]) -> Iterator[int]:
    """Run a real agent on pretend devices; yields its process id."""
    with Machine(DEVICES_A_NODE) as machine:
        agent = subprocess.Popen(
            [str(ENVIRONMENT / "vramscope"), "agent", "--listen", f"{address_of(number)}:{DEFAULT_PORT}"],
            env={**machine.env, "XDG_CONFIG_HOME": env["XDG_CONFIG_HOME"], MARK: machine.folder},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            yield agent.pid
        finally:
            agent.terminate()
            agent.wait(10.0)
            machine.wait_until_gone(machine.folder)


@contextmanager
def _relay(at: int, hosts: Sequence[str], env: dict[str, str]) -> Iterator[int]:
    """Run a relay before some nodes; yields its process id."""
    path = _write_hosts(hosts, Path(env["HOME"]) / f"relay{at}")
    listen = f"{_relay_address(at)}:{DEFAULT_PORT}"
    relay = subprocess.Popen(
        [str(ENVIRONMENT / "vramscope"), "agent", "--relay", "--hosts", str(path), "--listen", listen],
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield relay.pid
    finally:
        relay.terminate()
        relay.wait(10.0)


def _show(
    plan: FleetPlan, command: list[str], env: dict[str, str], played: Players, others: Others
) -> FleetFigures:
    """Show the fleet, measure for a while, and quit."""
    with Terminal(command, env, COLUMNS, ROWS) as terminal:
        viewer = terminal.pid
        _await_nodes(terminal, plan.nodes)
        time.sleep(SETTLE_S)
        before = observe([viewer, *others.agents, *others.relays])
        began_s, written = time.monotonic(), terminal.bytes_written
        sizes = _watch_memory(viewer, began_s + plan.seconds)
        after = observe(before)
        ended_s, written = time.monotonic(), terminal.bytes_written - written
        load = os.getloadavg()[0]
        terminal.press("q")
        terminal.wait_for_end(20.0)
        chunks = terminal.chunks
    noted = json.loads(Path(command[3]).read_text(encoding="utf-8"))
    wall_s, window_s = ended_s - began_s, (began_s, ended_s - 2.0)
    used = {pid: 100 * (after[pid].cpu_s - before[pid].cpu_s) / wall_s for pid in after}
    return FleetFigures(
        plan,
        used[viewer],
        tuple(sizes),
        written / wall_s,
        sum(began_s <= it <= ended_s for it in noted["drawn_s"]) / wall_s,
        find_seen(chunks, played.stop(), window_s, COLUMNS, ROWS),
        sum(node["dropped"] for node in noted["nodes"].values()),
        sum(node["connection"] == "live" for node in noted["nodes"].values()),
        fmean(used[pid] for pid in others.agents) if others.agents else None,
        fmean(used[pid] for pid in others.relays) if others.relays else None,
        max((after[pid].rss_mib for pid in others.relays), default=None),
        load,
    )


def _await_nodes(terminal: Terminal, nodes: int) -> None:
    """Return once the screen says that all nodes are live.

    Raises:
        TimeoutError: They are not; the message holds what the screen says instead.
    """
    screen = pyte.Screen(COLUMNS, ROWS)
    stream, fed = pyte.ByteStream(screen), 0
    is_all = re.compile(rf"(?<!of ){nodes:,} nodes")
    deadline_s = time.monotonic() + READY_WITHIN_S
    while not any(is_all.search(line) for line in screen.display):
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"not all nodes came in {READY_WITHIN_S:g} s: {screen.display[0]}")
        time.sleep(0.5)
        chunks = terminal.chunks[fed:]
        fed += len(chunks)
        stream.feed(b"".join(chunk for _, chunk in chunks))


def _watch_memory(pid: int, until_s: float) -> list[float]:
    sizes = []
    while time.monotonic() < until_s:
        time.sleep(min(LOOK_S, max(0.0, until_s - time.monotonic())))
        sizes.append(observe([pid])[pid].rss_mib)
    return sizes
