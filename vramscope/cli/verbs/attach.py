"""`vramscope attach`: bring the probe into a job that already runs."""

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from ..frame.configuration import refuse_if_read_only
from ..frame.parser_flags import add_read_only_flag
from ..frame.registry import SubParsers

if TYPE_CHECKING:
    from vramscope.engine.jobs.attach import Attached

SUMMARY = "bring the probe into a Python process that already runs"


def register(subparsers: SubParsers, common: list[ArgumentParser]) -> None:
    """Add the verb's parser."""
    parser = subparsers.add_parser(
        "attach",
        help=SUMMARY,
        description=f"{SUMMARY[0].upper()}{SUMMARY[1:]}: "
        "by sys.remote_exec from Python 3.14 on, by gdb before.",
        parents=common,
        allow_abbrev=False,
    )
    parser.add_argument("pid", metavar="PID", type=int, help="the process that trains; one of them a rank")
    parser.add_argument(
        "--timeout", metavar="TIME", default="10s", help="how long to wait for its first report (default 10s)"
    )
    add_read_only_flag(parser)


def run(arguments: Namespace) -> int:
    """Attach and say what reports."""
    from vramscope.engine.errors import UsageError
    from vramscope.engine.jobs.attach import attach
    from vramscope.engine.paths import locate_runtime_folder
    from vramscope.engine.units import parse_duration

    refuse_if_read_only(arguments, f"attach would change process {arguments.pid}")
    if arguments.pid <= 0:
        raise UsageError(f"PID {arguments.pid}: expected the number of a process")
    try:
        timeout_s = parse_duration(arguments.timeout)
    except UsageError as error:
        raise UsageError(f"--timeout {arguments.timeout}: {error}") from error
    print(_describe(attach(arguments.pid, locate_runtime_folder(), timeout_s=timeout_s)))
    return 0


def _describe(attached: "Attached") -> str:
    rank = attached.rank
    coordinates = rank.coordinates
    which = "" if coordinates is None else f" as rank {coordinates.rank}"
    if attached.was_reporting:
        return f"process {rank.pid} reports already{which}"
    held = "" if attached.stopped_s is None else f"; it was stopped for {attached.stopped_s:.2f} s"
    return f"process {rank.pid} reports{which} (attached in {attached.taken_s:.1f} s{held})"
