"""Attaching to a job that trains, and what `vramscope run` costs processes that it only passes through."""

import json
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from vramscope.engine.jobs import injector
from vramscope.engine.jobs.interpreter import find_interpreter
from vramscope.engine.jobs.launch import make_environment
from vramscope.engine.sources.processes import read_status

from .budgets import Budget
from .measure.tables import format_number, format_table
from .programs import find_vramscope, running_agent

STRESS_TIMES = 50
_TRAINING = """
import json, sys, time, torch
torch.set_num_threads(1)
model = torch.nn.Linear(256, 256)
optimizer = torch.optim.AdamW(model.parameters())
longest_s, ended_s = 0.0, None
print("ready", flush=True)
while True:
    optimizer.zero_grad()
    model(torch.randn(64, 256)).sum().backward()
    optimizer.step()
    now_s = time.perf_counter()
    if ended_s is not None and now_s - ended_s > longest_s:
        longest_s = now_s - ended_s
        print(json.dumps(longest_s), flush=True)
    ended_s = now_s
"""
_HAMMERING = """
import gc, threading
beat = []
def hammer(seed):
    while True:
        keep = [bytearray((seed * i) % 5000 + 600) for i in range(200)]
        ring = {}
        ring["self"] = ring
        if seed % 3 == 0:
            gc.collect(0)
for seed in range(1, 7):
    threading.Thread(target=hammer, args=(seed,), daemon=True).start()
print("ready", flush=True)
while True:
    sum(range(1000))
"""
_CALLS = """
import json, sys, timeit, vramscope
def in_phase():
    with vramscope.phase("forward"):
        pass
def measure():
    times = 200_000
    calls = (vramscope.step, in_phase)
    return [1e9 * min(timeit.repeat(call, number=times, repeat=5)) / times for call in calls]
without = measure()
vramscope.attach()
print(json.dumps([without, measure()]))
"""


@dataclass(frozen=True)
class Attachment:
    """What one attachment to a job that trains took; seconds."""

    taken_s: float
    """From pressing Enter to the prompt: the agent has heard the process."""
    stopped_s: float
    """From the first to the last moment at which the kernel showed the process as stopped by a tracer, looked
    at once a millisecond; 0.0 if no look fell into the stop."""
    longest_step_s: float
    """The longest step of the job meanwhile; without us its steps take under a millisecond."""


@dataclass(frozen=True)
class Launch:
    """What a process pays for having been started inside a job."""

    shim_s: float
    """Import of the shim by an interpreter that never imports torch (-X importtime)."""
    python_s: float
    """Wall time of `python -c pass` in a job."""
    plain_python_s: float
    step_ns: float
    """`vramscope.step()` where no probe is."""
    phase_ns: float
    probed_step_ns: float
    """The same with the probe, and torch not imported."""
    probed_phase_ns: float


def measure_attachments(runs: int) -> list[Attachment]:
    """Attach to a job of its own in each run, by the command line, with an agent that already runs."""
    with tempfile.TemporaryDirectory(prefix="vs-", dir="/tmp") as folder, running_agent(Path(folder)):
        return [_attach_once(Path(folder)) for _ in range(runs)]


def measure_stress() -> dict[str, float]:
    """Attach many times to one process that is nearly always inside malloc or the garbage collector.

    Raises:
        RuntimeError: The process did not survive, or lost a payload.
    """
    stopped, taken = [], []
    with (
        tempfile.TemporaryDirectory(prefix="vs-", dir="/tmp") as folder,
        _job(_HAMMERING, Path(folder)) as job,
    ):
        beats = Path(folder) / "beats"
        text = f"beat.append(1); open({str(beats)!r}, 'w').write(str(len(beat)))\n".encode()
        for turn in range(1, STRESS_TIMES + 1):
            begun_s = time.monotonic()
            injection = injector.enter(find_interpreter(read_status(job.pid)), text)
            stopped.append(injection.stopped_s)
            taken.append(time.monotonic() - begun_s)
            deadline_s = time.monotonic() + 10.0
            while (beats.read_text() if beats.exists() else "") != str(turn):
                if time.monotonic() > deadline_s or job.poll() is not None:
                    raise RuntimeError(f"the payload of turn {turn} was never run")
                time.sleep(0.01)
            injector.erase(job.pid, injection)
    return {
        "times": STRESS_TIMES,
        "survived": STRESS_TIMES,
        "stopped_median_s": statistics.median(stopped),
        "stopped_most_s": max(stopped),
        "taken_median_s": statistics.median(taken),
    }


def measure_launch(runs: int) -> Launch:
    """Measure interpreters in and outside a job in turn, and the calls of a script."""
    outside = {"PATH": "/usr/bin"}
    inside = make_environment(outside, runtime_dir=Path("/tmp"), job="none")
    shims: list[float] = []
    walls: dict[str, list[float]] = {"inside": [], "outside": []}
    for _ in range(10 * runs):
        shims.append(_time_shim(inside))
        for name, environment in (("inside", inside), ("outside", outside)):
            begun_s = time.perf_counter()
            subprocess.run([sys.executable, "-c", "pass"], env=environment, check=True)
            walls[name].append(time.perf_counter() - begun_s)
    said = subprocess.run(
        [sys.executable, "-c", _CALLS],
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
        check=True,
    )
    (step, phase), (probed_step, probed_phase) = json.loads(said.stdout)
    return Launch(
        statistics.median(shims),
        statistics.median(walls["inside"]),
        statistics.median(walls["outside"]),
        step,
        phase,
        probed_step,
        probed_phase,
    )


def judge_attach(attachments: list[Attachment], stress: dict[str, float], launch: Launch) -> list[Budget]:
    """Return the budgets of attaching and of the shim; the worst run counts."""
    return [
        Budget(
            "attach: until the agent has heard the process", max(a.taken_s for a in attachments), 3.0, "s"
        ),
        Budget("attach: the job stopped", max(a.stopped_s for a in attachments), 0.1, "s"),
        Budget("attach, 50 times under stress: longest stop", stress["stopped_most_s"], 0.1, "s"),
        Budget("shim in a Python without torch", 1e6 * launch.shim_s, 1000.0, "µs"),
    ]


def format_attach(attachments: list[Attachment], stress: dict[str, float], launch: Launch) -> str:
    """Return the tables of attaching and launching."""
    rows = [
        [
            str(run),
            format_number(it.taken_s, 2),
            format_number(it.stopped_s, 3),
            format_number(it.longest_step_s, 3),
        ]
        for run, it in enumerate(attachments, 1)
    ]
    rows.append(
        [
            f"{stress['survived']:.0f} of {stress['times']:.0f} under stress (medians)",
            format_number(stress["taken_median_s"], 2),
            format_number(stress["stopped_median_s"], 3),
            "",
        ]
    )
    calls = [
        ["import of the shim, no torch (median)", f"{1e6 * launch.shim_s:.0f} µs"],
        ["python -c pass in a job (median)", f"{1e3 * launch.python_s:.1f} ms"],
        ["python -c pass outside (median)", f"{1e3 * launch.plain_python_s:.1f} ms"],
        ["vramscope.step(), no probe", f"{launch.step_ns:.0f} ns"],
        ["vramscope.step(), with the probe", f"{launch.probed_step_ns:.0f} ns"],
        ["with vramscope.phase(), no probe", f"{launch.phase_ns:.0f} ns"],
        ["with vramscope.phase(), with the probe", f"{launch.probed_phase_ns:.0f} ns"],
    ]
    return "\n\n".join(
        (
            format_table("Attach (seconds)", ["run", "taken", "stopped", "longest step"], rows),
            format_table("Launch", ["", "cost"], calls),
        )
    )


def _attach_once(folder: Path) -> Attachment:
    with _job(_TRAINING, folder) as job, _Watcher(job.pid) as watcher:
        begun_s = time.monotonic()
        said = subprocess.run(
            [find_vramscope().live[0], "attach", str(job.pid), "--runtime-dir", str(folder)],
            check=False,
            capture_output=True,
            text=True,
        )
        if said.returncode != 0:
            raise RuntimeError(said.stderr)
        taken_s = time.monotonic() - begun_s
        time.sleep(0.5)  # the step in which the probe was loaded has ended
    steps = (folder / "job.out").read_text().split()[1:]
    return Attachment(taken_s, watcher.stopped_s, max(map(float, steps)))


def _time_shim(environment: dict[str, str]) -> float:
    """Return the seconds that an interpreter took to import the shim, as it says itself."""
    said = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", "pass"],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    # The name stands there twice: the shim looks for the one behind it, and its own time holds that.
    found = re.findall(r"\|\s+(\d+) \| +sitecustomize$", said.stderr, re.MULTILINE)
    if not found:
        raise RuntimeError("the interpreter did not import the shim")
    return max(map(int, found)) / 1e6


@contextmanager
def _job(script: str, folder: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """Run a script that says `ready`, from then on; its output is in `job.out`."""
    output = folder / "job.out"
    with (
        output.open("wb") as stdout,
        subprocess.Popen([sys.executable, "-c", script], stdout=stdout) as process,
    ):
        try:
            deadline_s = time.monotonic() + 60.0
            while not output.read_text().startswith("ready") and time.monotonic() < deadline_s:
                time.sleep(0.05)
            yield process
        finally:
            process.kill()


class _Watcher:
    """Looks a thousand times a second whether the kernel shows a process as stopped by a tracer."""

    def __init__(self, pid: int) -> None:
        self._stat = Path(f"/proc/{pid}/stat")
        self._seen: list[float] = []
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    @property
    def stopped_s(self) -> float:
        """Seconds from the first to the last look at which it was stopped."""
        return self._seen[-1] - self._seen[0] if self._seen else 0.0

    def __enter__(self) -> "_Watcher":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._is_over.wait(0.001):
            if self._stat.read_text().rpartition(")")[2].split()[0] == "t":
                self._seen.append(time.monotonic())
