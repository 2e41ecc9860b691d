"""The pipe by which a process that an agent started knows that the agent has ended."""

import os
import stat
import sys


def find_parent_pipe() -> int | None:
    """Return the descriptor of standard input where it is a pipe, as an agent gives its processes."""
    try:
        descriptor = sys.stdin.fileno()
        is_pipe = stat.S_ISFIFO(os.fstat(descriptor).st_mode)
    except (AttributeError, OSError, ValueError):
        return None
    return descriptor if is_pipe else None
