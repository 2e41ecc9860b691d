"""CPU and memory of the agent alone: hub and worker, no viewer; and of a bare loop next to it."""

import os
import subprocess
import sys
import time
import uuid
from pathlib import Path

from .live_view import SETTLE_S, Steadiness
from .machine import Machine
from .measure.processes import MARK, Cost, find_marked, measure_cost, name_role, observe
from .programs import ENVIRONMENT


def measure_agent(devices: int, runs: int, window_s: float) -> tuple[Steadiness, Steadiness]:
    """Measure `vramscope agent` with memory sampled at its default rate, and a loop that only reads it.

    What a wake-up costs depends on the machine and on what else runs on it: the loop shows how much.
    """
    agent, loop = Steadiness("vramscope agent", devices), Steadiness("bare loop", devices)
    for _ in range(runs):
        with Machine(devices) as machine:
            _measure_once(machine, agent, loop, window_s)
    return agent, loop


def _measure_once(
    machine: Machine, agent_result: Steadiness, loop_result: Steadiness, window_s: float
) -> None:
    mark = uuid.uuid4().hex[:8]
    log = Path(machine.folder) / "agent.log"
    with log.open("wb") as stderr:
        agent = subprocess.Popen(
            [str(ENVIRONMENT / "vramscope"), "agent"],
            env={**machine.env, MARK: mark},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
        )
    loop = subprocess.Popen([sys.executable, "-m", "benchmarks.bare_loop"], env=machine.env)
    try:
        wait_for_worker(mark, log)
        time.sleep(SETTLE_S)
        costs, bare = measure_with_loop(loop.pid, mark, window_s)
        for role, cost in costs.items():
            agent_result.costs.setdefault(role, []).append(cost)
        loop_result.costs.setdefault("all", []).append(bare)
        for result in (agent_result, loop_result):
            result.bytes_per_s.append(0.0)
    finally:
        loop.kill()
        loop.wait()
        agent.terminate()
        agent.wait(10.0)
        machine.wait_until_gone(mark)


def measure_with_loop(loop_pid: int, mark: str, window_s: float) -> tuple[dict[str, Cost], Cost]:
    """Return what the processes of a mark cost over a window, and what the loop did."""
    before, began_s = observe([loop_pid])[loop_pid], time.monotonic()
    costs = measure_cost(mark, window_s)
    after, length_s = observe([loop_pid])[loop_pid], time.monotonic() - began_s
    percent = 100.0 * (after.cpu_s - before.cpu_s) / length_s
    return costs, Cost(percent, after.rss_mib, after.pss_mib, after.threads)


def wait_for_worker(mark: str, log: Path, timeout_s: float = 20.0) -> None:
    """Return once the agent has started its worker."""
    deadline_s = time.monotonic() + timeout_s
    while "worker" not in {name_role(pid) for pid in find_marked(mark) if pid != os.getpid()}:
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"the agent started no worker in {timeout_s:g} s: {log.read_text()}")
        time.sleep(0.05)
