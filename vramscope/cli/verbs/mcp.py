"""`vramscope mcp`: answers about this node's memory to programs that speak the Model Context Protocol."""

from argparse import ArgumentParser, Namespace

from ..frame.flags import add_read_only_flag
from ..frame.parse import SubParsers, add_verb
from ..frame.settings import read_settings, refuse_if_read_only

DESCRIPTION = (
    "Serve this node's memory to an assistant (Model Context Protocol on standard input and output): state, "
    "findings, forecasts, explanations, estimates, differences."
)
EXAMPLES = """\
vramscope mcp
vramscope mcp --allow-control"""
NOTES = """\
A client starts it; it answers until the client closes its input. Every answer is one JSON object, dated, of
at most 48 KiB. It changes nothing without --allow-control, which adds `advise`. It reads every file that its
user may read and that is a snapshot, recording, series, trace, log, calibration or config.json. Needs
the extra vramscope[mcp]."""
EXIT_CODES: dict[int | str, str] = {
    0: "the client closed the connection",
    2: "wrong flags",
    4: "the package mcp is not installed",
    6: "--allow-control, but read_only is set",
}


def register(subparsers: SubParsers, common: list[ArgumentParser]) -> None:
    parser = add_verb(
        subparsers, common, "mcp", DESCRIPTION, examples=EXAMPLES, notes=NOTES, exit_codes=EXIT_CODES
    )
    parser.add_argument(
        "--allow-control",
        action="store_true",
        help="also let the client ask training processes to free memory",
    )
    add_read_only_flag(parser)


def run(arguments: Namespace) -> int:
    if arguments.allow_control:
        refuse_if_read_only(arguments, "mcp --allow-control would let a client change processes")
    from ..mcp_server import serve

    serve(read_settings(arguments), allows_control=arguments.allow_control)
    return 0
