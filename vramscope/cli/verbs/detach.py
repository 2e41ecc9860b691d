"""`vramscope detach`: end the probe in a process, which goes on as if it had never been."""

from argparse import ArgumentParser, Namespace

from ..frame.configuration import refuse_if_read_only
from ..frame.parser_flags import add_read_only_flag
from ..frame.registry import SubParsers

SUMMARY = "end the probe in a process that reports; the process goes on"


def register(subparsers: SubParsers, common: list[ArgumentParser]) -> None:
    """Add the verb's parser."""
    parser = subparsers.add_parser(
        "detach",
        help=SUMMARY,
        description=f"{SUMMARY[0].upper()}{SUMMARY[1:]}.",
        parents=common,
        allow_abbrev=False,
    )
    parser.add_argument("pid", metavar="PID", type=int, help="the process")
    add_read_only_flag(parser)


def run(arguments: Namespace) -> int:
    """Detach and say so."""
    from vramscope.engine.viewer.client import connect

    refuse_if_read_only(arguments, f"detach would change process {arguments.pid}")

    with connect() as client:
        client.detach(arguments.pid)
    print(f"process {arguments.pid} no longer reports")
    return 0
