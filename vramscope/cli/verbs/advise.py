"""`vramscope advise`: ask a training process to do something about its memory."""

import sys
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter

from vramscope.engine.errors import UsageError
from vramscope.engine.model import ADVICE_ACTIONS

from ..frame.configuration import refuse_if_read_only
from ..frame.flag_words import add_format_flags
from ..frame.parser_flags import add_read_only_flag
from ..frame.registry import SubParsers

SUMMARY = "ask a training process to do something about its memory at the end of its next step"
DESCRIPTION = """\
Ask a training process to do something about its memory at the end of its next step, and print what it made of
that. `empty_cache` gives back what its allocator caches; everything else is for the callback that the program
has registered (`vramscope.on_advice`). A process that was started with VRAMSCOPE_ADVICE=off refuses."""
EPILOG = """\
examples:
  vramscope advise 4242 empty_cache
  vramscope advise 4242 skip_long_batch --reason "rank 3 is foreseen to run out"
  vramscope advise 4242 empty_cache --connect node03

exit codes: 0 done, 2 refused or usage, 3 the process answered that it did not, 6 read_only is set,
7 agent unreachable"""
EXIT_DECLINED = 3


def register(subparsers: SubParsers, common: list[ArgumentParser]) -> None:
    """Add the verb's parser."""
    parser = subparsers.add_parser(
        "advise",
        help=SUMMARY,
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=RawDescriptionHelpFormatter,
        parents=common,
        allow_abbrev=False,
    )
    parser.add_argument("pid", metavar="PID", type=int, help="the process, as the agent of its node knows it")
    parser.add_argument("action", metavar="ACTION", choices=ADVICE_ACTIONS, help=", ".join(ADVICE_ACTIONS))
    parser.add_argument(
        "--reason", metavar="TEXT", default="", help="why; the callback of the program gets it"
    )
    parser.add_argument(
        "--within", metavar="TIME", default="60s", help="how long the step may take (default 60s, 2m at most)"
    )
    add_format_flags(parser, text="text is the default", json="print one JSON object (vramscope.advice/1)")
    add_read_only_flag(parser)
    elsewhere = parser.add_argument_group("a process of another node")
    elsewhere.add_argument(
        "--connect",
        dest="hub",
        metavar="HOST[:PORT]",
        help="the process is of that node, whose agent listens; takes the role controller or worker",
    )
    elsewhere.add_argument(
        "--ssh", dest="ssh_host", metavar="[USER@]HOST", help="the same, through your own ssh"
    )
    elsewhere.add_argument(
        "--node",
        metavar="NAME",
        help="with --connect to a relay: which node behind it, by the name there or its own",
    )


def run(arguments: Namespace) -> int:
    """Give the advice, print the answer and return the exit code.

    Raises:
        UsageError: The words cannot be used, or the process was not asked.
        InputFileError: The keys cannot be used.
        HubUnreachableError: There is no agent, or it does not answer.
    """
    from vramscope.exporters.json_lines import write_line
    from vramscope.exporters.status.document import describe_advice, word_advice

    from ..advising import advise_elsewhere, advise_here

    refuse_if_read_only(arguments, f"advise would have process {arguments.pid} change its memory")
    within_s = _read_time(arguments.within)
    address = arguments.ssh_host if arguments.hub is None else arguments.hub
    if address is None and arguments.node is not None:
        raise UsageError("--node goes with --connect to a relay")
    advise = advise_here if address is None else advise_elsewhere
    report = describe_advice(arguments.action, advise(arguments, within_s), arguments.node or address)
    if arguments.json:
        write_line(report, sys.stdout.buffer)
    else:
        print(word_advice(report))
    return 0 if report.is_obeyed else EXIT_DECLINED


def _read_time(text: str) -> float:
    """Return how long the end of a step may be waited for, in seconds.

    Raises:
        UsageError: It is no such time.
    """
    from vramscope.engine.units import parse_duration

    try:
        within_s = parse_duration(text)
    except UsageError as error:
        raise UsageError(f"--within {text}: {error}") from error
    if not 0 < within_s <= 120:
        raise UsageError(f"--within {text}: expected a time above zero, of two minutes at most")
    return within_s
