"""Python processes to attach to, and what they tell of themselves."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ...waiting import wait_until

SPINNING = "while True:\n    sum(range(1000))\n"
BUSY = "import time\nwhile True:\n    sum(range(10000))\n    time.sleep(0.002)\n"
"""As a job that waits for a device now and then: tests beside it get their share of the processors."""
HAMMER = """
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
"""
"""Threads that are nearly always inside malloc, the garbage collector or a hand-over of the GIL."""


class Target:
    """A process that runs a script; `said` is what it has written to its standard output."""

    def __init__(self, process: "subprocess.Popen[bytes]", output: Path) -> None:
        self.process, self._output = process, output

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def said(self) -> str:
        return self._output.read_text()

    def wait_for(self, text: str) -> None:
        wait_until(
            lambda: text in self.said or self.process.poll() is not None, 120.0, f"{text!r} of the target"
        )
        assert text in self.said


@contextmanager
def running(
    script: str, folder: Path, *, python: Path | str = sys.executable, **variables: str
) -> Iterator[Target]:
    """Run a script, and end it.

    Args:
        script: Its text.
        folder: Where its files are put.
        python: Interpreter.
        variables: Environment variables besides this process's own.
    """
    path, output = folder / "target.py", folder / "target.out"
    path.write_text(script)
    with output.open("wb") as stdout:
        process = subprocess.Popen(
            [str(python), str(path)],
            stdout=stdout,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONUNBUFFERED": "1", **variables},
        )
    try:
        yield Target(process, output)
    finally:
        process.kill()
        process.wait()


def make_stub_torch(folder: Path) -> str:
    """Return a search path with a torch that can do nothing, for Pythons that have none."""
    (folder / "stub/torch").mkdir(parents=True)
    (folder / "stub/torch/__init__.py").write_text("__version__ = '0'\n")
    return str(folder / "stub")
