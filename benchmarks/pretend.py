"""Open the live view on pretend devices: `make pretend`, or python -m benchmarks.pretend --devices 64.

The real program, hub and worker run over a pretend driver library that this compiles; device names say so.
"""

import argparse
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from types import FrameType

from .machine import Machine
from .measure.processes import MARK
from .programs import find_vramscope

MOST_DEVICES = 128
FORWARDED = (signal.SIGTERM, signal.SIGHUP)
"""Signals that end the program; those of the keyboard reach it without us."""


class Ending:
    """Takes the signals that end a program, so that what was made is removed whatever ends it."""

    def __init__(self) -> None:
        self.number: int | None = None
        """The newest signal; None as long as none came."""
        self._program: subprocess.Popen[bytes] | None = None

    def install(self) -> None:
        """Take over the signals; a handler, unlike ignoring, is not handed down to programs."""
        for number in (*FORWARDED, signal.SIGINT):
            signal.signal(number, self._take)

    def run(self, command: Sequence[str], environment: dict[str, str]) -> int:
        """Run a program, hand on to it what ends this one, and return an exit code.

        Args:
            command: Command line.
            environment: All of its variables.
        """
        self._program = subprocess.Popen(command, env=environment)
        self._forward()
        code = self._program.wait()
        return code if code >= 0 else 128 - code

    def _take(self, number: int, _frame: FrameType | None) -> None:
        self.number = number
        self._forward()

    def _forward(self) -> None:
        if self._program is not None and self.number in FORWARDED:
            with suppress(ProcessLookupError):
                self._program.send_signal(self.number)


def main() -> int:
    """Run vramscope on a pretend machine and return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pretend", description=__doc__)
    parser.add_argument("--devices", type=int, default=8, help=f"1 to {MOST_DEVICES} (8)")
    options, arguments = parser.parse_known_args()
    if not 1 <= options.devices <= MOST_DEVICES:
        parser.error(f"--devices {options.devices}: expected 1 to {MOST_DEVICES}")
    ending = Ending()
    ending.install()
    try:
        machine = Machine(options.devices, name="Simulated GPU 80GB")
    except FileNotFoundError as error:
        print(f"make pretend: {error} (Debian: apt-get install gcc libc6-dev)", file=sys.stderr)
        return 2
    with machine:
        if ending.number is not None:
            return 128 + ending.number
        print("make pretend: these devices are pretended", file=sys.stderr)
        code = ending.run([*find_vramscope().live, *arguments], _make_environment(machine))
        # The agent leaves a moment after its viewer; until then it writes into the folder.
        machine.wait_until_gone(machine.folder)
        return code


def _make_environment(machine: Machine) -> dict[str, str]:
    """Return this environment with the pretend driver: the user's terminal and settings stay."""
    names = ("LD_LIBRARY_PATH", "PRETEND_NVML_STATE", "XDG_RUNTIME_DIR")
    return {**os.environ, **{name: machine.env[name] for name in names}, MARK: machine.folder}


if __name__ == "__main__":
    sys.exit(main())
