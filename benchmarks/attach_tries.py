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
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path

from vramscope.engine.errors import VramscopeError
from vramscope.engine.jobs.attach import attach, find_rank
from vramscope.engine.viewer.client import connect

from .attach import running_agent
from .measure.tables import format_number, format_table

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


@dataclass
class Tries:
    """What became of all tries on one job."""

    kind: str
    tries: int
    stopped_ms: list[float] = field(default_factory=list)
    taken_s: list[float] = field(default_factory=list)
    ways: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    steps: int = 0
    is_identical: bool = False
    has_survived: bool = False


def try_all(times: int, kinds: list[str]) -> list[Tries]:
    """Attach so many times in all, in equal parts."""
    shares = [times // len(kinds) + (place < times % len(kinds)) for place in range(len(kinds))]
    with (
        tempfile.TemporaryDirectory(prefix="vs-", dir="/tmp") as folder,
        running_agent(Path(folder), "100ms"),
    ):
        return [
            try_kind(kind, share, Path(folder)) for kind, share in zip(kinds, shares, strict=True) if share
        ]


def try_kind(kind: str, times: int, folder: Path) -> Tries:
    """Attach to a job of one kind and detach again, so many times; then repeat its steps undisturbed."""
    result = Tries(kind, times)
    script, stop, output = folder / "job.py", folder / "stop", folder / "job.out"
    script.write_text(_FRAME % KINDS[kind])
    stop.unlink(missing_ok=True)
    command = [sys.executable, str(script), str(stop)]
    with ExitStack() as stack:
        job = stack.enter_context(
            subprocess.Popen([*command, "0"], stdout=stack.enter_context(output.open("wb")))
        )
        stack.callback(job.kill)
        while "ready" not in output.read_text() and job.poll() is None:
            time.sleep(0.05)
        for _ in range(times):
            _try_once(job.pid, folder, result)
        stop.touch()
        result.has_survived = job.wait() == 0
    _, steps, digest = output.read_text().split()[-3:]
    repeated = subprocess.run([*command, steps], capture_output=True, text=True, check=True).stdout.split()
    result.steps = int(steps)
    result.is_identical = repeated[-1] == digest
    return result


def _try_once(pid: int, folder: Path, result: Tries) -> None:
    try:
        attached = attach(pid, folder, timeout_s=20.0)
        result.ways[attached.way or "already there"] += 1
        result.taken_s.append(attached.taken_s)
        result.stopped_ms.append(1e3 * (attached.stopped_s or 0.0))
        with connect(folder) as client:
            client.detach(pid)
            while find_rank(client, pid) is not None:
                client.snapshot(timeout_s=0.1)
    except VramscopeError as error:
        result.failures.append(str(error))


def format_tries(results: list[Tries]) -> str:
    rows = [
        [
            it.kind,
            str(it.tries),
            ", ".join(f"{count} {way}" for way, count in it.ways.items()),
            format_number(statistics.median(it.stopped_ms), 2) if it.stopped_ms else "—",
            format_number(sorted(it.stopped_ms)[len(it.stopped_ms) * 99 // 100], 2) if it.stopped_ms else "—",
            format_number(max(it.stopped_ms), 2) if it.stopped_ms else "—",
            format_number(statistics.median(it.taken_s), 2) if it.taken_s else "—",
            str(it.steps),
            "yes" if it.has_survived else "NO",
            "identical" if it.is_identical else "DIFFERENT",
        ]
        for it in results
    ]
    head = [
        "job",
        "tries",
        "attached by",
        "stopped ms",
        "99 %",
        "most",
        "taken s",
        "steps",
        "went on",
        "result",
    ]
    failures = [f"{it.kind}: {reason}" for it in results for reason in it.failures]
    return "\n".join([format_table("Attach and detach (medians)", head, rows), *failures])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("times", type=int, nargs="?", default=60)
    parser.add_argument("--only", choices=sorted(KINDS), action="append")
    parser.add_argument("--json", type=Path, help="file for all numbers")
    options = parser.parse_args()
    results = try_all(options.times, options.only or list(KINDS))
    print(format_tries(results))
    if options.json:
        options.json.write_text(json.dumps([asdict(it) for it in results]))
    good = all(it.is_identical and it.has_survived and not it.failures for it in results)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
