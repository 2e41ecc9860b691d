"""Which pids mean the same here as to the driver: those of the kernel's first pid namespace."""

import os
from pathlib import Path

INITIAL_PID_NAMESPACE = "pid:[4026531836]"
"""Name of the kernel's first pid namespace (PROC_PID_INIT_INO), in which the host's processes are."""


def has_own_pids(proc: Path = Path("/proc")) -> bool:
    """Return whether this process is in a pid namespace of its own, where the driver's pids are strangers.

    Args:
        proc: Where the machine's /proc is found.
    """
    try:
        return os.readlink(proc / "self/ns/pid") != INITIAL_PID_NAMESPACE  # noqa: PTH115 - a name, no path
    except OSError:
        return False
