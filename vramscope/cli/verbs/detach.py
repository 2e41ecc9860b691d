"""`vramscope detach`: remove the probe from a process, which goes on without it."""

from argparse import ArgumentParser, Namespace

from ..frame.emit import complain
from ..frame.flags import add_read_only_flag
from ..frame.parse import SubParsers, add_verb
from ..frame.settings import refuse_if_read_only

DESCRIPTION = "Remove the probe from a process that reports; the process goes on."
EXAMPLES = "vramscope detach 4242"
EXIT_CODES: dict[int | str, str] = {
    0: "the process no longer reports",
    2: "wrong flags, or a process that does not report",
    6: "read_only is set",
    7: "no agent runs, or the process did not answer",
}


def register(subparsers: SubParsers, common: list[ArgumentParser]) -> None:
    parser = add_verb(subparsers, common, "detach", DESCRIPTION, examples=EXAMPLES, exit_codes=EXIT_CODES)
    parser.add_argument("pid", metavar="PID", type=int, help="the process")
    add_read_only_flag(parser)


def run(arguments: Namespace) -> int:
    from vramscope.engine.ranks.demands import ANSWER_WITHIN_S
    from vramscope.engine.viewer.client import connect

    pid: int = arguments.pid
    refuse_if_read_only(arguments, f"detach would change process {pid}")

    def say_that_it_waits() -> None:
        complain(
            f"process {pid} has not answered yet: it is stopped, or its calls hold Python's lock (GIL); "
            f"waiting for up to {ANSWER_WITHIN_S:g} s"
        )

    with connect() as client:
        client.detach(pid, on_wait=say_that_it_waits)
    print(f"process {pid} no longer reports")
    return 0
