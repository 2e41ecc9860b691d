"""CPU of the agent on eight MI300X with 64 processes, next to a loop that only reads memory.

`python -m benchmarks.amd_agent`, as root: `/sys` is a folder of files in a mount namespace of its own, the
processes are real ones that sleep. Files of a real kernel may cost more to read.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
import uuid
from contextlib import ExitStack
from pathlib import Path

from tests.engine.sources.drm_root import DrmMachine

from .agent import measure_with_loop, wait_for_worker
from .measure.processes import MARK
from .programs import ENVIRONMENT

DEVICES = 8
PROCESSES = 64
SETTLE_S = 15.0
ASKED_PERCENT = 0.4
_LOOP = """
import os, sys, time
files = [os.open(path, os.O_RDONLY) for path in sys.argv[1:]]
due_s = time.monotonic()
while True:
    for file in files:
        int(os.pread(file, 64, 0))
    due_s += 0.1
    time.sleep(max(0.0, due_s - time.monotonic()))
"""
# Control groups stay as they are; all else of /sys is replaced.
_ENTER = (
    'mkdir -p "$0/sys/fs/cgroup" && mount --rbind /sys/fs/cgroup "$0/sys/fs/cgroup" && '
    'mount --rbind "$0/sys" /sys && exec "$@"'
)


def build(root: Path, pids: list[int]) -> list[Path]:
    """Make the machine; return the files with the memory in use of each device."""
    (root / "proc").mkdir(parents=True)
    machine = DrmMachine(root)
    used = []
    for number in range(DEVICES):
        bus = 5 + 0x10 * number
        folder = machine.add_mi300x(f"0000:{bus:02x}:00.0")
        machine.write(f"{folder}/unique_id", f"b7f8a1c2d3e4f5{number:02x}")
        used.append(root / folder / "mem_info_vram_used")
    for number in range(DEVICES):  # a card that is added writes the first node
        node = f"sys/class/kfd/kfd/topology/nodes/{1 + number}"
        machine.write(f"{node}/gpu_id", 5000 + number)
        machine.write(f"{node}/properties", f"simd_count 304\nlocation_id {5 + 0x10 * number << 8}\ndomain 0")
    for link in (root / "sys/class/drm").glob("card*/device"):
        if link.is_symlink():  # the test's own is absolute, and would lead out of the namespace
            target = f"../../../devices/pci0000:00/{link.readlink().name}"
            link.unlink()
            link.symlink_to(target)
    for place, pid in enumerate(pids):
        for device in range(DEVICES):
            held = (4 << 30) if device == place % DEVICES else 0
            machine.write(f"sys/class/kfd/kfd/proc/{pid}/vram_{5000 + device}", held)
    return used


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.amd_agent", description=__doc__)
    parser.add_argument("--window", type=float, default=60.0, help="seconds of each run (default 60)")
    parser.add_argument("--runs", type=int, default=2)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="vramscope-") as folder, ExitStack() as stack:
        jobs = [subprocess.Popen(["sleep", "infinity"]) for _ in range(PROCESSES)]
        for job in jobs:
            stack.callback(job.wait)
            stack.callback(job.kill)
        used = build(Path(folder, "root"), [job.pid for job in jobs])
        for _ in range(arguments.runs):
            _measure_once(Path(folder), used, arguments.window)
    return 0


def _measure_once(folder: Path, used: list[Path], window_s: float) -> None:
    mark = uuid.uuid4().hex[:8]
    runtime = folder / f"runtime-{mark}"
    runtime.mkdir(mode=0o700)
    env = {
        **os.environ,
        MARK: mark,
        "VRAMSCOPE_RUNTIME_DIR": str(runtime / "hub"),
        "XDG_STATE_HOME": str(runtime),
    }
    log = folder / "agent.log"
    agent_command = [str(ENVIRONMENT / "vramscope"), "agent"]
    with log.open("wb") as stderr:
        agent = subprocess.Popen(
            ["unshare", "--mount", "sh", "-c", _ENTER, str(folder / "root"), *agent_command],
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
        )
    loop = subprocess.Popen([sys.executable, "-c", _LOOP, *map(str, used)])
    try:
        wait_for_worker(mark, log)
        time.sleep(SETTLE_S)
        seen = subprocess.run(
            [*agent_command[:1], "--json", "--once"],
            env=env,
            capture_output=True,
            encoding="utf-8",
            check=False,
        ).stdout
        costs, bare = measure_with_loop(loop.pid, mark, window_s)
        roles = "  ".join(f"{role} {cost.cpu_percent:.3f} %" for role, cost in sorted(costs.items()))
        what = f"{seen.count('MI300X')} devices, {seen.count('sleep infinity')} processes"
        load = os.getloadavg()[0]
        print(f"{what}: {roles}  bare loop {bare.cpu_percent:.3f} %  load {load:.1f}", flush=True)
    finally:
        loop.kill()
        loop.wait()
        agent.terminate()
        agent.wait(10.0)


if __name__ == "__main__":
    sys.exit(main())
