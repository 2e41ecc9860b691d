"""`vramscope detach`: end the probe in a process, which goes on as if it had never been."""

from argparse import ArgumentParser, Namespace

from ..frame.flags import add_read_only_flag
from ..frame.parse import SubParsers, add_verb
from ..frame.settings import refuse_if_read_only

SUMMARY = "end the probe in a process that reports; the process goes on"


def register(subparsers: SubParsers, common: list[ArgumentParser]) -> None:
    parser = add_verb(subparsers, common, "detach", SUMMARY)
    parser.add_argument("pid", metavar="PID", type=int, help="the process")
    add_read_only_flag(parser)


def run(arguments: Namespace) -> int:
    from vramscope.engine.viewer.client import connect

    refuse_if_read_only(arguments, f"detach would change process {arguments.pid}")

    with connect() as client:
        client.detach(arguments.pid)
    print(f"process {arguments.pid} no longer reports")
    return 0
