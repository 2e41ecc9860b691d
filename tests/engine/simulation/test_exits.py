"""How a simulated job ends: with its own exit code, whatever its threads do at that moment."""

import subprocess
import sys
from pathlib import Path

from tests.engine.simulation.simulated import answers

MANY_JOBS = 2

ENDING = """
import threading, time, torch
def use_torch():
    torch.ones(10, device="cuda") + 1
    have_used.wait()
    while True:
        time.sleep(0.0001)
def use_nothing():
    while True:
        time.sleep(0.0001)
def end_last():
    torch.ones(10, device="cuda")
    have_used.wait()
    last.wait()
# A thread that is inside an operation at the exit aborts any process of torch, so all have left theirs.
have_used, last = threading.Barrier(5), threading.Event()
for function in (use_torch, use_nothing, *[end_last] * 3):
    threading.Thread(target=function, daemon=True).start()
have_used.wait()
print(any(it.name == "vramscope-probe" for it in threading.enumerate()))
last.set()
"""


def test_threads_that_live_or_end_at_the_exit_do_not_break_it(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(ENDING, encoding="utf-8")
    command = (sys.executable, "-m", "vramscope", "run", "--no-hub", "--quiet", "--simulate", "1GiB", "--")
    jobs = [
        subprocess.Popen(
            [*command, sys.executable, str(script)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(MANY_JOBS)
    ]
    written = [job.communicate(timeout=110) for job in jobs]
    assert [job.returncode for job in jobs] == [0] * MANY_JOBS, written
    assert [(output, errors.count("\n")) for output, errors in written] == [("True\n", 1)] * MANY_JOBS


LEAVING = """
import json, threading, torch
from torch.utils._python_dispatch import TorchDispatchMode
during, after = [], []
class Thread(threading.Thread):
    def run(self):
        during.append(torch._C._len_torch_dispatch_stack())
        if self.name == "leaving":
            torch.ones(1 << 20, device="cuda")
            TorchDispatchMode().__enter__()
        if self.name == "failing":
            raise SystemExit
    def _bootstrap(self):
        super()._bootstrap()
        after.append(torch._C._len_torch_dispatch_stack())
for name in ("plain", "leaving", "failing", "vramscope-probe"):
    thread = Thread(name=name)
    thread.start()
    thread.join()
print(json.dumps([during, after]))
"""


def test_no_thread_holds_the_accounting_past_its_end_and_the_probe_never_does(tmp_path: Path) -> None:
    during, after = answers(tmp_path, LEAVING)
    assert during == [1, 1, 1, 0]
    assert after == [0, 0, 0, 0]
