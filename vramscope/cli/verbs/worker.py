"""`vramscope worker`: a process that runs the analyzers for an agent."""

import os
import stat
import sys
from argparse import ArgumentParser, Namespace

from . import SubParsers

SUMMARY = "run the analyzers for the agent of this node; an agent starts its own"


def register(subparsers: SubParsers, common: list[ArgumentParser]) -> None:
    """Add the verb's parser."""
    subparsers.add_parser(
        "worker",
        help=SUMMARY,
        description="Run the analyzers for the agent of this node; as a filter, end when the input closes.",
        parents=common,
        allow_abbrev=False,
    )


def run(arguments: Namespace) -> int:
    """Analyze until the agent ends."""
    from vramscope.engine.bus.worker import run_worker
    from vramscope.engine.paths import check_private, locate_runtime_folder

    folder = locate_runtime_folder()
    check_private(folder)
    return run_worker(folder, parent_fd=_find_parent_pipe())


def _find_parent_pipe() -> int | None:
    """Return the descriptor of standard input where it is a pipe, as an agent gives its worker."""
    try:
        descriptor = sys.stdin.fileno()
        is_pipe = stat.S_ISFIFO(os.fstat(descriptor).st_mode)
    except (AttributeError, OSError, ValueError):
        return None
    return descriptor if is_pipe else None
