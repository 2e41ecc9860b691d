"""CPU and memory of the agent alone: hub and worker, no viewer."""

import os
import subprocess
import time
import uuid
from pathlib import Path

from .live_view import SETTLE_S, Steadiness
from .machine import Machine
from .measure.processes import MARK, find_marked, measure_cost, name_role
from .programs import ENVIRONMENT


def measure_agent(devices: int, runs: int, window_s: float) -> Steadiness:
    """Measure `vramscope agent` with memory sampled at its default rate."""
    result = Steadiness("vramscope agent", devices)
    for _ in range(runs):
        with Machine(devices) as machine:
            _measure_once(machine, result, window_s)
    return result


def _measure_once(machine: Machine, result: Steadiness, window_s: float) -> None:
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
    try:
        _wait_for_worker(mark, log)
        time.sleep(SETTLE_S)
        for role, cost in measure_cost(mark, window_s).items():
            result.costs.setdefault(role, []).append(cost)
        result.bytes_per_s.append(0.0)
    finally:
        agent.terminate()
        agent.wait(10.0)
        machine.wait_until_gone(mark)


def _wait_for_worker(mark: str, log: Path, timeout_s: float = 20.0) -> None:
    """Return once the agent has started its worker."""
    deadline_s = time.monotonic() + timeout_s
    while "worker" not in {name_role(pid) for pid in find_marked(mark) if pid != os.getpid()}:
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"the agent started no worker in {timeout_s:g} s: {log.read_text()}")
        time.sleep(0.05)
