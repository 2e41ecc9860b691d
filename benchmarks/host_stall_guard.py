"""`vramscope guard --signal-job` on real growth: `python -m benchmarks.host_stall_guard`, as root.

A job of PyTorch grows in a control group, which the agent reads as a host with an APU; the guard has to end
it before anything waits for memory.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path

from tests.engine.sources.drm_root import DrmMachine
from vramscope.engine.sources.host import parse_stall_us
from vramscope.engine.units import GIB, MIB, parse_bytes

from .host_stall import COPY_S, Group, Root
from .programs import ENVIRONMENT

JOB = "victim"
LONGEST_S = 330.0
_TRAIN = """
import sys, time, torch
torch.set_num_threads(1)
base_bytes, rate_bytes = (float(word) for word in sys.argv[1:3])
held, model = [], torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
began_s = time.monotonic()
while True:
    while len(held) * (4 << 20) < base_bytes + rate_bytes * max(0.0, time.monotonic() - began_s - 30.0):
        held.append(torch.rand(1 << 20))
    optimizer.zero_grad()
    model(torch.rand(8, 64)).sum().backward()
    optimizer.step()
    for block in held[::7]:
        block.add_(1)
    time.sleep(0.05)
"""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.host_stall_guard", description=__doc__)
    parser.add_argument("--limit", type=parse_bytes, default=GIB, help="memory of the group (default 1GiB)")
    limit_bytes = parser.parse_args().limit
    with tempfile.TemporaryDirectory(prefix="vramscope-") as name, ExitStack() as stack:
        folder = Path(name)
        group = Group(limit_bytes)
        stack.callback(group.remove)
        root = Root(folder / "root", group)
        stack.callback(root.close)
        DrmMachine(folder / "root").add_apu()
        (folder / "run").mkdir(mode=0o700)
        env = {
            **os.environ,
            "VRAMSCOPE_RUNTIME_DIR": str(folder / "run/hub"),
            "XDG_STATE_HOME": str(folder / "state"),
        }

        def start(*words: str, **variables: str) -> "subprocess.Popen[str]":
            process = subprocess.Popen(
                [str(ENVIRONMENT / "vramscope"), *words],
                env=env | variables,
                stderr=subprocess.PIPE,
                encoding="utf-8",
            )
            stack.callback(process.wait)
            stack.callback(process.terminate)
            return process

        agent = start("agent", VRAMSCOPE_ROOT=str(folder / "root"))
        assert agent.stderr is not None  # noqa: S101  (a pipe was asked for)
        agent.stderr.readline()
        script = folder / "train.py"
        script.write_text(_TRAIN)
        sizes = (str(0.25 * limit_bytes), str(0.004 * limit_bytes))
        job = start("run", "--no-hub", "--job", JOB, "--", sys.executable, str(script), *sizes)
        group.enter(job.pid)
        guard = start("guard", "--signal-job", JOB)
        threading.Thread(target=_print_lines, args=(guard,), daemon=True).start()
        return _watch(root, group, job)


def _watch(root: Root, group: Group, job: "subprocess.Popen[str]") -> int:
    began_s = before_s = time.monotonic()
    before_us = parse_stall_us(group.read()[1].encode()) or 0
    most_percent = 0.0
    available = group.read()[0]
    while job.poll() is None and time.monotonic() - began_s < LONGEST_S:
        root.copy()
        now_s = time.monotonic()
        if now_s - before_s >= 1.0:
            available, pressure = group.read()
            stalled_us = parse_stall_us(pressure.encode()) or 0
            most_percent = max(most_percent, 1e-4 * (stalled_us - before_us) / (now_s - before_s))
            before_s, before_us = now_s, stalled_us
        time.sleep(COPY_S)
    has_ended = job.poll() is not None
    print(
        f"the job {'ended' if has_ended else 'runs on'} after {time.monotonic() - began_s:.0f} s with "
        f"{available / MIB:.0f} MiB available; most stalled {most_percent:.1f} %"
    )
    return 0 if has_ended else 1


def _print_lines(process: "subprocess.Popen[str]") -> None:
    assert process.stderr is not None  # noqa: S101  (a pipe was asked for)
    for line in process.stderr:
        print(line, end="", flush=True)


if __name__ == "__main__":
    sys.exit(main())
