"""Open the live view on simulated devices: `make demo`, or python -m benchmarks.demo --devices 64.

The real program, hub and worker run over a pretend driver library that this compiles; device names say so.
"""

import argparse
import os
import signal
import subprocess
import sys

from .machine import Machine
from .programs import find_vramscope

MOST_DEVICES = 128


def main() -> int:
    """Run vramscope on a pretend machine and return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.demo", description=__doc__)
    parser.add_argument("--devices", type=int, default=8, help=f"1 to {MOST_DEVICES} (8)")
    options, arguments = parser.parse_known_args()
    if not 1 <= options.devices <= MOST_DEVICES:
        parser.error(f"--devices {options.devices}: expected 1 to {MOST_DEVICES}")
    try:
        machine = Machine(options.devices, name="Simulated GPU 80GB")
    except FileNotFoundError as error:
        print(f"make demo: {error} (Debian: apt-get install gcc libc6-dev)", file=sys.stderr)
        return 2
    with machine:
        # The demo keeps the user's terminal and settings; only driver and runtime folder are its own.
        ours = {
            name: machine.env[name] for name in ("LD_LIBRARY_PATH", "PRETEND_NVML_STATE", "XDG_RUNTIME_DIR")
        }
        # Ctrl-C is for the program; a handler, unlike ignoring, is not handed down to it.
        signal.signal(signal.SIGINT, lambda *_: None)
        print("make demo: these devices are simulated", file=sys.stderr)
        return subprocess.run(
            [*find_vramscope().live, *arguments], env={**os.environ, **ours}, check=False
        ).returncode


if __name__ == "__main__":
    sys.exit(main())
