"""`vramscope attach`: bring the probe into a job that already runs."""

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from ..frame.flags import add_read_only_flag, duration
from ..frame.parse import SubParsers, add_verb
from ..frame.settings import refuse_if_read_only

if TYPE_CHECKING:
    from vramscope.engine.jobs.attach import Attached

SUMMARY = "bring the probe into a Python process that already runs"


def register(subparsers: SubParsers, common: list[ArgumentParser]) -> None:
    parser = add_verb(
        subparsers,
        common,
        "attach",
        SUMMARY,
        f"{SUMMARY[0].upper()}{SUMMARY[1:]}: by sys.remote_exec from Python 3.14 on, by gdb before.",
    )
    parser.add_argument("pid", metavar="PID", type=int, help="the process that trains; one of them a rank")
    parser.add_argument(
        "--timeout",
        metavar="TIME",
        type=duration(),
        default="10s",
        help="how long to wait for its first report (default 10s)",
    )
    add_read_only_flag(parser)


def run(arguments: Namespace) -> int:
    from vramscope.engine.errors import UsageError
    from vramscope.engine.jobs.attach import attach
    from vramscope.engine.paths import locate_runtime_folder

    refuse_if_read_only(arguments, f"attach would change process {arguments.pid}")
    if arguments.pid <= 0:
        raise UsageError(f"PID {arguments.pid}: expected the number of a process")
    print(_describe(attach(arguments.pid, locate_runtime_folder(), timeout_s=arguments.timeout)))
    return 0


def _describe(attached: "Attached") -> str:
    rank = attached.rank
    coordinates = rank.coordinates
    which = "" if coordinates is None else f" as rank {coordinates.rank}"
    if attached.was_reporting:
        return f"process {rank.pid} reports already{which}"
    held = "" if attached.stopped_s is None else f"; it was stopped for {attached.stopped_s:.2f} s"
    return f"process {rank.pid} reports{which} (attached in {attached.taken_s:.1f} s{held})"
