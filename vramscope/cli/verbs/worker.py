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
    """Analyze until the agent ends.

    Raises:
        RuntimeFolderError: The folder is not private.
        HubUnreachableError: No agent serves it, and none started this process.
    """
    from vramscope.engine.bus.lock import is_hub_alive
    from vramscope.engine.errors import HubUnreachableError
    from vramscope.engine.paths import check_private, locate_runtime_folder

    folder, parent_fd = locate_runtime_folder(), _find_parent_pipe()
    if folder.exists() or folder.is_symlink():
        check_private(folder)
    if parent_fd is None and not is_hub_alive(folder):
        raise HubUnreachableError(f"no agent serves {folder}: start one with `vramscope agent`")
    from vramscope.engine.bus.worker import run_worker

    return run_worker(folder, parent_fd=parent_fd)


def _find_parent_pipe() -> int | None:
    """Return the descriptor of standard input where it is a pipe, as an agent gives its worker."""
    try:
        descriptor = sys.stdin.fileno()
        is_pipe = stat.S_ISFIFO(os.fstat(descriptor).st_mode)
    except (AttributeError, OSError, ValueError):
        return None
    return descriptor if is_pipe else None
