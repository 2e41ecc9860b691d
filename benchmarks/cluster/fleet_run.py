"""Many nodes on loopback, and the program that shows them in a terminal of 200x50."""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from vramscope.engine.cluster.keys import make_key_pair, save_key_pair
from vramscope.engine.cluster.tcp_address import DEFAULT_PORT

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
    """Played nodes that remember a past; the viewer follows the first eight in full."""
    past_s: int = 3600


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
    """Of the real agents, hub and worker, each on average."""
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
        env = _make_environment(folder)
        played = stack.enter_context(playing(plan, folder, env))
        agents = [stack.enter_context(_agent(plan.nodes - 1 - at, env)) for at in range(plan.real)]
        hosts = folder / "hosts"
        hosts.write_text("".join(f"{address_of(number)}\n" for number in range(plan.nodes)), encoding="utf-8")
        return _show(plan, folder, hosts, env, played, agents)


def _make_environment(folder: Path) -> dict[str, str]:
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


def _show(
    plan: FleetPlan, folder: Path, hosts: Path, env: dict[str, str], played: Players, agents: Sequence[int]
) -> FleetFigures:
    counts = folder / "counts.json"
    command = [sys.executable, "-m", "benchmarks.cluster.viewer", str(counts), "--hosts", str(hosts)]
    with Terminal(command, env, COLUMNS, ROWS) as terminal:
        if terminal.wait_for(rf" {plan.nodes:,} nodes", READY_WITHIN_S) is None:
            raise TimeoutError(f"not all nodes came: {terminal.text()[-2000:]}")
        time.sleep(SETTLE_S)
        before, agents_before = observe([terminal.pid]), observe(agents)
        began_s, written = time.monotonic(), terminal.bytes_written
        sizes = _watch_memory(terminal.pid, began_s + plan.seconds)
        after, agents_after = observe([terminal.pid]), observe(agents)
        ended_s, written = time.monotonic(), terminal.bytes_written - written
        load = os.getloadavg()[0]
        terminal.press("q")
        terminal.wait_for_end(20.0)
        chunks = terminal.chunks
    told = json.loads(counts.read_text(encoding="utf-8"))
    wall_s, window_s = ended_s - began_s, (began_s, ended_s - 2.0)
    used_s = [after[pid].cpu_s - before[pid].cpu_s for pid in after]
    of_agents = [agents_after[pid].cpu_s - agents_before[pid].cpu_s for pid in agents_after]
    return FleetFigures(
        plan,
        100 * sum(used_s) / wall_s,
        tuple(sizes),
        written / wall_s,
        sum(began_s <= it <= ended_s for it in told["drawn_s"]) / wall_s,
        find_seen(chunks, played.stop(), window_s, COLUMNS, ROWS),
        sum(node["dropped"] for node in told["nodes"].values()),
        sum(node["connection"] == "live" for node in told["nodes"].values()),
        100 * sum(of_agents) / wall_s / len(of_agents) if of_agents else None,
        load,
    )


def _watch_memory(pid: int, until_s: float) -> list[float]:
    sizes = []
    while time.monotonic() < until_s:
        time.sleep(min(LOOK_S, max(0.0, until_s - time.monotonic())))
        sizes.append(observe([pid])[pid].rss_mib)
    return sizes
