"""Let the live view run for hours under a changing load and random keys: does any of our processes grow?

python -m benchmarks.soak --hours 2

Eight pretend devices whose memory changes, jobs that come, leak, end and are replaced by others, an agent,
its worker, a viewer in tmux, a recorder and `--json`. One JSON line a minute and process: resident and
proportional set size, descriptors, threads, CPU time. Exits with 1 where a process ends more than 10 MiB
above the most of its first ten minutes, and with 2 as soon as one of them has ended.
"""

import argparse
import json
import random
import signal
import statistics
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.engine.ranks.probe_client import ProbeClient, make_hello, make_readings
from vramscope.engine.paths import locate_runtime_folder
from vramscope.engine.ranks.messages import ProbedDevice

from .machine import Machine
from .measure.processes import MARK, ProcessCost, find_marked, observe
from .measure.tmux import TmuxWindow
from .programs import find_vramscope

GIB, MIB = 1 << 30, 1 << 20
MOST_GROWTH_MIB = 10.0
FIRST_MINUTES, LAST_MINUTES = 10, 5
SIZES = ((200, 50), (200, 50), (120, 32), (80, 24))
KEYS = (
    *("1", "2", "3", "5", "6", "7"),
    *("Enter", "Escape", "Escape", "Tab", "BTab"),
    *("Up", "Down", "Left", "Right", "PageUp", "PageDown", "Home", "End"),
    *("s", "<", ">", "I", "i", "T", "Space", "?", "C-p"),
)
"""Keys that neither end the view nor signal a process; words are typed into a filter by themselves."""


class Job:
    """A training process on one device: it steps, some of them leak, and it ends.

    Args:
        folder: Runtime folder of the agent.
        device: Number of the device.
        device_uuid: The same device as the driver names it.
        chance: Where its course comes from.
    """

    def __init__(self, folder: Path, device: int, device_uuid: str, chance: random.Random) -> None:
        self._probe = ProbeClient(folder, has_own_process=True)
        self._chance = chance
        self._is_leaking = chance.random() < 0.4
        self._floor_bytes = chance.randrange(10, 40) * GIB
        self._growth_bytes = chance.randrange(20, 400) * MIB if self._is_leaking else 0
        self._step = 0
        self.seconds_left = chance.randrange(45, 600)
        self.pid = self._probe.pid
        self.allocated_bytes = self._floor_bytes
        name = f"pretrain-{chance.randrange(10_000)}"
        card = ProbedDevice(device, device_uuid, total_bytes=80 * GIB)
        self._probe.send(
            make_hello(self.pid, rank=device, device=card, job=name, command=f"python {name}.py")
        )

    def advance(self) -> None:
        """Report another second of training: ten readings and the steps that ended."""
        self.seconds_left -= 1
        self._floor_bytes = min(self._floor_bytes + self._growth_bytes, 70 * GIB)
        peak = self._floor_bytes + self._chance.randrange(1, 8) * GIB
        between = range(self._floor_bytes, peak, (peak - self._floor_bytes) // 9)
        readings = [reading // 512 * 512 for reading in between][:10]
        self.allocated_bytes = readings[-1]
        self._probe.send(make_readings(*readings, reserved=tuple(peak // 512 * 512 for _ in readings)))
        rows = []
        for part in range(self._chance.randrange(4)):
            self._step += 1
            ended_s = time.time() - 0.2 * part
            rows.append((self._step, ended_s, 0.3, self._floor_bytes, peak, True))
        if rows:
            self._probe.send_steps(*rows)
        while self._probe.has_demand():
            self._probe.receive()

    def end(self) -> None:
        """End as a process does that is killed."""
        self._probe.kill()


class Jobs:
    """One job a device, and what the driver says of them.

    Args:
        machine: Where they run.
        folder: Runtime folder of the agent.
        chance: Where their course comes from.
    """

    def __init__(self, machine: Machine, folder: Path, chance: random.Random) -> None:
        self._machine, self._folder, self._chance = machine, folder, chance
        self._jobs: dict[int, Job] = {}

    def advance(self) -> None:
        """Let a second pass on every device."""
        for index, device in enumerate(self._machine.devices):
            job = self._jobs.get(index)
            if job is None:
                job = self._jobs[index] = Job(self._folder, index, device.uuid, self._chance)
            try:
                job.advance()
            except (BrokenPipeError, ConnectionError):  # the agent has let go of it
                job.seconds_left = 0
            held = job.allocated_bytes + GIB
            device.set_memory(held + self._chance.randrange(64) * MIB)
            device.set_processes([(job.pid, held, "compute")])
            if job.seconds_left <= 0:
                job.end()
                del self._jobs[index]

    def end(self) -> None:
        """End all."""
        for job in self._jobs.values():
            job.end()


class Hands:
    """Somebody who presses keys."""

    def __init__(self, window: TmuxWindow, chance: random.Random) -> None:
        self._window, self._chance = window, chance

    def press(self) -> None:
        """Press a key, filter by a word, or change the size of the window."""
        kind = self._chance.random()
        if kind < 0.05:
            word = str(self._chance.randrange(1000))
            self._window.press("Escape", "/", *word, "Enter")
        elif kind < 0.08:
            self._window.resize(*self._chance.choice(SIZES))
        else:
            self._window.press(self._chance.choice(KEYS))


def main() -> int:
    """Run the load, write the log, judge it, and return the exit code."""
    options = parse_options()
    for number in (
        signal.SIGINT,
        signal.SIGTERM,
    ):  # a shell lets what runs in the background ignore the first
        signal.signal(number, lambda ended_by, _: sys.exit(128 + ended_by))
    chance = random.Random(options.seed)
    mark = uuid.uuid4().hex[:8]
    log: dict[str, list[ProcessCost]] = {}
    end_s = time.monotonic() + options.hours * 3600
    with ExitStack() as stack:
        machine = stack.enter_context(Machine(8))
        window = stack.enter_context(
            TmuxWindow(find_vramscope().live, machine.env, mark, Path(machine.folder), SIZES[0])
        )
        window.wait_for("GiB", timeout_s=60.0)
        stack.enter_context(run_meanwhile("--json", machine=machine, mark=mark))
        recorded = str(Path(machine.folder) / "soak.vram")
        stack.enter_context(run_meanwhile("record", "--output", recorded, machine=machine, mark=mark))
        jobs = Jobs(machine, locate_runtime_folder(machine.env), chance)
        stack.callback(jobs.end)
        hands = Hands(window, chance)
        for second in count_seconds(end_s):
            jobs.advance()
            if second % options.keys_every == 0:
                hands.press()
            if second % 60 == 59:
                note_minute(second // 60 + 1, mark, log)
                if gone := find_ended(log):
                    print(f"{', '.join(gone)} ended; the window shows:\n{window.picture()}", flush=True)
                    return 2
        window.press("C-c")
    return judge(log)


def parse_options() -> argparse.Namespace:
    """Return what the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description=__doc__)
    parser.add_argument("--hours", type=float, default=2.0, help="how long (2)")
    parser.add_argument("--keys-every", type=int, default=3, help="seconds from one key to the next (3)")
    parser.add_argument("--seed", type=int, default=17, help="of the load and the keys (17)")
    return parser.parse_args()


def count_seconds(end_s: float) -> Iterator[int]:
    """Yield the number of each second from now on until the end, when it begins."""
    begin_s = time.monotonic()
    second = 0
    while begin_s + second < end_s:
        time.sleep(max(0.0, begin_s + second - time.monotonic()))
        yield second
        second += 1


@contextmanager
def run_meanwhile(*arguments: str, machine: Machine, mark: str) -> Iterator[None]:
    """Run vramscope without a terminal meanwhile; what it prints is not kept."""
    process = subprocess.Popen(
        [*find_vramscope().live, *arguments],
        env={**machine.env, MARK: mark},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield
    finally:
        process.terminate()
        process.wait(10.0)


def note_minute(minute: int, mark: str, log: dict[str, list[ProcessCost]]) -> None:
    """Print and keep what each process holds."""
    for pid, cost in observe(find_marked(mark)).items():
        log.setdefault(f"{cost.role} {pid}", []).append(cost)
        descriptors = count_descriptors(pid)
        line = {
            "minute": minute,
            "role": cost.role,
            "pid": pid,
            "rss_mib": round(cost.rss_mib, 2),
            "pss_mib": round(cost.pss_mib, 2),
            "fds": descriptors,
            "threads": cost.threads,
            "cpu_s": round(cost.cpu_s, 1),
        }
        print(json.dumps(line), flush=True)


def count_descriptors(pid: int) -> int | None:
    """Return how many files a process holds open; None where it has ended."""
    try:
        return len(list(Path(f"/proc/{pid}/fd").iterdir()))
    except OSError:
        return None


def find_ended(log: dict[str, list[ProcessCost]]) -> list[str]:
    """Return the processes that were there a minute ago."""
    longest = max((len(costs) for costs in log.values()), default=0)
    return [name for name, costs in log.items() if len(costs) < longest]


def judge(log: dict[str, list[ProcessCost]]) -> int:
    """Print by how much each process has grown, and return the exit code."""
    code = 0
    for name, costs in log.items():
        first = max(cost.rss_mib for cost in costs[:FIRST_MINUTES])
        last = statistics.median(cost.rss_mib for cost in costs[-LAST_MINUTES:])
        has_grown = last - first > MOST_GROWTH_MIB
        code = code or int(has_grown)
        verdict = "grew too much" if has_grown else "fine"
        print(f"{name}: at most {first:.1f} MiB in {FIRST_MINUTES} minutes, {last:.1f} at the end: {verdict}")
    return code


if __name__ == "__main__":
    sys.exit(main())
