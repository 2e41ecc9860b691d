"""Many attachments to jobs of every kind, whose results must stay identical to the last bit.

`python -m benchmarks.attach_tries 1000` attaches and detaches so often in all, spread over jobs that keep
Python, the kernel, C extensions, threads and compiled graphs busy. Each job then says how many steps it made
and what it computed; the same steps are made once more by a process that nobody touches.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import msgspec

from vramscope.engine.errors import AttachRefusedError, DebuggerMissingError, VramscopeError
from vramscope.engine.jobs.attach import attach
from vramscope.engine.viewer.client import connect

from .measure.tables import format_number, format_table
from .programs import running_agent

_FRAME = """
import hashlib, os, sys, time
import torch
stop, limit = sys.argv[1], int(sys.argv[2])
torch.set_num_threads(1)
torch.manual_seed(0)
state = hashlib.sha256()
def add(*tensors):
    for tensor in tensors:
        state.update(tensor.detach().numpy().tobytes())
%s
step(0)
print("ready", flush=True)
made = 1
while made < limit if limit else not os.path.exists(stop):
    step(made)
    made += 1
print("end", made, state.hexdigest())
"""
_TRAINING = """
model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.GELU(), torch.nn.Linear(128, 8))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
forward = %s
def step(number):
    optimizer.zero_grad()
    loss = forward(torch.randn(32, 64)).square().mean()
    loss.backward()
    optimizer.step()
    time.sleep(0.002)
    add(loss, model[0].weight, model[0].weight.grad)
"""
KINDS = {
    "busy": """
value = 1
def step(number):
    global value
    for _ in range(20000):
        value = (value * 6364136223846793005 + 1442695040888963407) & 0xFFFFFFFFFFFFFFFF
    state.update(value.to_bytes(8, "little"))
""",
    "forking": """
import subprocess
def step(number):
    child = os.fork()
    if child == 0:
        os._exit(sum(range(number)) & 0x7F)
    state.update(bytes([os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])]))
    if number % 8 == 0:
        state.update(subprocess.run(["echo", str(number)], capture_output=True, check=True).stdout)
""",
    "in C extensions": """
left = torch.randn(600, 600)
words = [str((it * 7919) % 100003) for it in range(100003)]
def step(number):
    global left
    left = torch.tanh(left @ left * 0.05)  # without the GIL
    state.update(hashlib.pbkdf2_hmac("sha256", b"key", str(number).encode(), 20000))  # without the GIL
    state.update(sorted(words)[number % len(words)].encode())  # with the GIL
    add(left)
""",
    "threaded": """
import gc, queue, threading
asked, answered = queue.Queue(), queue.Queue()
def work():
    while True:
        number = asked.get()
        answered.put((number, sum(hash((number, it)) & 0xFF for it in range(500))))
def hammer(seed):
    while True:
        keep = [bytearray((seed * it) % 5000 + 600) for it in range(50)]
        ring = {}
        ring["self"] = ring
        if seed == 3:
            gc.collect(0)
        time.sleep(0.0005)
for _ in range(4):
    threading.Thread(target=work, daemon=True).start()
for seed in range(1, 5):
    threading.Thread(target=hammer, args=(seed,), daemon=True).start()
def step(number):
    for it in range(8):
        asked.put(8 * number + it)
    state.update(repr(sorted(answered.get() for _ in range(8))).encode())
""",
    "PyTorch": _TRAINING % "model",
    "torch.compile": _TRAINING % "torch.compile(model)",
}


class Try(msgspec.Struct, frozen=True):
    """One attachment, and the removal of the probe after it."""

    kind: str
    # What passed the probe over; "" if nothing did.
    way: str = ""
    stopped_ms: float | None = None
    # From the command to the first report that the agent received, and from `detach` to its end.
    attached_s: float | None = None
    detached_s: float | None = None
    # Why it was not done.
    failure: str = ""
    # Whether vramscope declined before anything was done to the job, and says so.
    is_refused: bool = False


class Job(msgspec.Struct, frozen=True):
    """What one job computed while it was attached to, and what it computes undisturbed."""

    kind: str
    tries: int
    steps: int
    exit_code: int
    is_identical: bool


# A line of the file of results.
Line = Try | Job


def run_jobs(times: int, kinds: list[str], most_per_job: int, write: Callable[[Line], None]) -> None:
    """Attach so many times in all, in equal parts for each kind, by jobs of some tries each."""
    shares = [times // len(kinds) + (place < times % len(kinds)) for place in range(len(kinds))]
    with (
        tempfile.TemporaryDirectory(prefix="vs-", dir="/tmp") as folder,
        running_agent(Path(folder), "100ms"),
    ):
        # In turns, so that a run that is cut short has tried every kind.
        for first in range(0, max(shares), most_per_job):
            for kind, share in zip(kinds, shares, strict=True):
                if share > first:
                    run_job(kind, min(most_per_job, share - first), Path(folder), write)


def run_job(kind: str, times: int, folder: Path, write: Callable[[Line], None]) -> None:
    """Attach to one job and detach again, so many times; then repeat its steps undisturbed."""
    script, stop, output = folder / "job.py", folder / "stop", folder / "job.out"
    script.write_text(_FRAME % KINDS[kind])
    stop.unlink(missing_ok=True)
    command = [sys.executable, str(script), str(stop)]
    with ExitStack() as stack:
        job = stack.enter_context(
            subprocess.Popen(
                [*command, "0"], stdout=stack.enter_context(output.open("wb")), stderr=subprocess.STDOUT
            )
        )
        stack.callback(job.kill)
        while "ready" not in output.read_text() and job.poll() is None:
            time.sleep(0.05)
        for _ in range(times):
            write(try_once(kind, job.pid, folder))
        stop.touch()
        exit_code = job.wait()
    said = output.read_text()
    ending = said.split()[-3:]
    # Anything else that the job printed is a difference too: warnings, tracebacks.
    if exit_code or said.count("\n") != 2 or ending[0] != "end":
        sys.stderr.write(said)
        write(Job(kind, times, 0, exit_code, is_identical=False))
        return
    _, steps, digest = ending
    repeated = subprocess.run([*command, steps], capture_output=True, text=True, check=True).stdout.split()
    write(Job(kind, times, int(steps), exit_code, is_identical=repeated[-1] == digest))


def try_once(kind: str, pid: int, folder: Path) -> Try:
    try:
        attached = attach(pid, folder, timeout_s=20.0)
        if attached.was_reporting or attached.way is None:
            return Try(kind, failure="was said to report already")
        begun_s = time.monotonic()
        with connect(folder) as client:
            client.detach(pid, timeout_s=20.0)  # a busy thread keeps the GIL from the probe's
    except (AttachRefusedError, DebuggerMissingError) as error:
        return Try(kind, failure=str(error), is_refused=True)
    except VramscopeError as error:
        return Try(kind, failure=str(error))
    return Try(
        kind,
        attached.way,
        None if attached.stopped_s is None else 1e3 * attached.stopped_s,
        attached.taken_s,
        time.monotonic() - begun_s,
    )


class Results(NamedTuple):
    tries: list[Try]
    jobs: list[Job]

    @property
    def are_good(self) -> bool:
        """Whether nothing failed; a refusal leaves the job alone, so it is none."""
        is_harmless = all(job.is_identical and job.exit_code == 0 for job in self.jobs)
        return is_harmless and all(it.is_refused or not it.failure for it in self.tries)


def read_results(path: Path) -> Results:
    """Read the lines of one or several runs."""
    results = Results([], [])
    for line in path.read_text().splitlines():
        content = json.loads(line)
        if "steps" in content:
            results.jobs.append(msgspec.convert(content, Job))
        else:
            results.tries.append(msgspec.convert(content, Try))
    return results


HEAD = [
    "job", "tries", "attached by", "refused", "failed", "stopped ms", "99 %", "most", "attach s", "detach s",
    "jobs", "steps", "result",
]  # fmt: skip


def format_tries(results: Results) -> str:
    kinds = list(dict.fromkeys([it.kind for it in results.tries] + [it.kind for it in results.jobs]))
    rows = [_format_row(kind, results) for kind in kinds]
    if len(kinds) > 1:
        rows.append(_format_row(None, results))
    failures = Counter(f"{it.kind}: {it.failure}" for it in results.tries if it.failure)
    return "\n".join(
        [
            format_table("Attach and detach (medians)", HEAD, rows),
            *(f"{count} × {reason}" for reason, count in failures.items()),
        ]
    )


def _format_row(kind: str | None, results: Results) -> list[str]:
    """Return the row of one kind, or that of all."""
    tries = [it for it in results.tries if kind in (None, it.kind)]
    jobs = [it for it in results.jobs if kind in (None, it.kind)]
    ways = Counter(it.way for it in tries if it.way)
    stopped_ms = sorted(it.stopped_ms for it in tries if it.stopped_ms is not None)
    different = sum(not it.is_identical for it in jobs)
    return [
        kind or "all",
        f"{len(tries):,}",
        ", ".join(f"{way} {count:,}" for way, count in ways.items()),
        str(sum(it.is_refused for it in tries)),
        str(sum(bool(it.failure) and not it.is_refused for it in tries)),
        _format_median(stopped_ms),
        format_number(stopped_ms[len(stopped_ms) * 99 // 100], 2) if stopped_ms else "—",
        format_number(stopped_ms[-1], 2) if stopped_ms else "—",
        _format_median([it.attached_s for it in tries if it.attached_s is not None]),
        _format_median([it.detached_s for it in tries if it.detached_s is not None]),
        str(len(jobs)),
        f"{sum(it.steps for it in jobs):,}",
        "identical" if not different else f"{different} DIFFERENT",
    ]


def _format_median(values: list[float]) -> str:
    return format_number(statistics.median(values), 2) if values else "—"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "times", type=int, nargs="?", default=60, help="tries in all; 0 only sums up the file of --json"
    )
    parser.add_argument("--only", choices=sorted(KINDS), action="append")
    parser.add_argument("--per-job", type=int, default=30, help="tries on one job before the next starts")
    parser.add_argument("--json", type=Path, help="file to which each try is appended as a line of JSON")
    options = parser.parse_args()
    with ExitStack() as stack:
        if options.json is None:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="vs-", dir="/tmp"))
            options.json = Path(folder) / "lines"
        file = stack.enter_context(options.json.open("ab", buffering=0))
        if options.times:
            run_jobs(
                options.times,
                options.only or list(KINDS),
                options.per_job,
                lambda line: file.write(msgspec.json.encode(line) + b"\n") and None,
            )
        results = read_results(options.json)
    print(format_tries(results))
    return 0 if results.are_good else 1


if __name__ == "__main__":
    sys.exit(main())
