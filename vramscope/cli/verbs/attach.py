"""`vramscope attach`: add the probe to a job that already runs."""

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from ..frame.flags import add_read_only_flag, duration
from ..frame.parse import SubParsers, add_verb
from ..frame.settings import refuse_if_read_only

if TYPE_CHECKING:
    from vramscope.engine.jobs.attach import Attached

DESCRIPTION = "Add the probe to a Python process that already runs, so that its memory shows in every view."
EXAMPLES = """\
vramscope attach 4242
vramscope attach 4242 --timeout 60s"""
NOTES = """\
The probe enters by sys.remote_exec in Python 3.14 and later. Before, the process is stopped for about a
millisecond, and gdb is needed only for a Python that vramscope does not know."""
EXIT_CODES: dict[int | str, str] = {
    0: "the process reports",
    2: "wrong flags, or a process that the probe cannot enter",
    4: "gdb is needed for this Python and not installed",
    6: "no permission, or the process refuses; read_only is set",
    7: "the process did not report in time",
}


def register(subparsers: SubParsers, common: list[ArgumentParser]) -> None:
    parser = add_verb(
        subparsers, common, "attach", DESCRIPTION, examples=EXAMPLES, notes=NOTES, exit_codes=EXIT_CODES
    )
    parser.add_argument(
        "pid", metavar="PID", type=int, help="the training process; attach each rank by its PID"
    )
    parser.add_argument(
        "--timeout",
        metavar="TIME",
        type=duration(),
        default="10s",
        help="how long to wait for the first report (default 10s)",
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
    by = " by gdb" if attached.way == "gdb" else ""
    held = "" if attached.stopped_s is None else f"; it was stopped{by} for {attached.stopped_s * 1e3:.1f} ms"
    return f"process {rank.pid} reports{which} (attached in {attached.taken_s:.1f} s{held})"
