"""Runs a simulated server as a process: its command line names the server, its output is a start-up log.

`python -m vramscope.engine.workloads.serving vllm serve simulated-8b --port 0` answers like vLLM. With
`--runtime-dir` it reports a simulated device to the agent of that folder, whose memory it fills.
"""

import argparse
import os
import sys
import time
from typing import get_args

from ...probe.clock import SystemClock
from ...probe.identity import read_command, read_started_s
from ...probe.transport import Connection, Outbox
from ...units import GIB
from .endpoint import SimulatedEndpoint
from .formats import Format
from .pool import Rate, Traffic
from .server import MemoryPlan, ServerSetup, SimulatedServer

TICK_S = 0.1
# The story of the demonstration: calm, growing until sequences are preempted, calm, asleep, and again.
STORY_S = 480.0
_CALM = 2.5
_BUSY = 9.0
_POINTS = ((0.0, _CALM), (20.0, _CALM), (320.0, _BUSY), (330.0, _BUSY), (340.0, _CALM), (STORY_S, _CALM))
SLEEPS_S = (400.0, 460.0)
_STORIES = 100


def make_story() -> ServerSetup:
    """Return a small server whose pool is exhausted within minutes."""
    points = tuple((STORY_S * turn + at_s, rate) for turn in range(_STORIES) for at_s, rate in _POINTS)
    plan = MemoryPlan(total_bytes=40 * GIB, token_bytes=128 << 10)
    traffic = Traffic(Rate(points), output_tokens=600, prompt_tokens=500)
    return ServerSetup(plan=plan, traffic=traffic, most_sequences=160, most_queued=80, longest=4096)


class DeviceReport:
    """Reports the device of a simulated server to an agent, by the wire of the probe."""

    def __init__(self, folder: str, setup: ServerSetup) -> None:
        self._connection = Connection(folder, SystemClock())
        self._outbox = Outbox()
        self._context_bytes = setup.plan.context_bytes
        self._outbox.say_hello(
            {
                "pid": os.getpid(),
                "started_s": read_started_s(),
                "command": " ".join(read_command()),
                "backend": "cuda",
                "is_simulated": True,
                "device": {
                    "index": 0,
                    "uuid": f"sim-serving-{os.getpid()}",
                    "name": "simulated device",
                    "total_bytes": setup.plan.total_bytes,
                },
                "context_bytes": setup.plan.context_bytes,
                "demands": (),
            }
        )

    def send(self, used_bytes: int) -> None:
        if self._connection.open():
            self._outbox.begin_connection()
        reserved = max(0, used_bytes - self._context_bytes)
        nothing = (None,) * 2
        self._outbox.put_reading((time.time(), *nothing, None, reserved, None, 0, 0, None, None))
        self._outbox.flush(self._connection.send)
        self._connection.receive()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m vramscope.engine.workloads.serving", description=__doc__)
    parser.add_argument("command", nargs="*", help="the command line that it pretends to have")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--answer-as", choices=get_args(Format), default="vllm")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--runtime-dir")
    options, _ = parser.parse_known_args()
    setup = make_story()
    server = SimulatedServer(setup, options.seed)
    endpoint = SimulatedEndpoint(server, options.answer_as, port=options.port)
    sys.stdout.write(server.write_log() + f"Simulated server on {endpoint.url}\n")
    sys.stdout.flush()
    report = None if options.runtime_dir is None else DeviceReport(options.runtime_dir, setup)
    while True:
        used_bytes = endpoint.advance()
        at_s = server.now_s % STORY_S
        if (SLEEPS_S[0] <= at_s < SLEEPS_S[1]) != server.is_asleep:
            (endpoint.wake if server.is_asleep else endpoint.sleep)()
        if report is not None:
            report.send(used_bytes)
        time.sleep(TICK_S)


if __name__ == "__main__":
    sys.exit(main())
