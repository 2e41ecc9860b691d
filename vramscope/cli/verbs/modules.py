"""`vramscope modules`: what a training step holds by module, as tables, JSON and charts."""

import sys
from argparse import SUPPRESS, ArgumentParser, Namespace, RawDescriptionHelpFormatter
from pathlib import Path

from vramscope.engine.errors import UsageError

from ..configuration import read_settings
from ..parser_flags import build_look_flags
from . import SubParsers

SUMMARY = "memory by module: parameters, gradients, optimizer and activations, measured beside computed"
DESCRIPTION = """\
Show what a profile by module says: module_memory.jsonl and memory.log as SimpleMemoryProfiler and
`vramscope run --profiling` write them, the memory.log of InternLM and InternEvo, and their charts."""
EPILOG = """\
examples:
  vramscope modules memory_trace/rank0_dp0_tp0/memory.log
  vramscope modules memory_trace --output charts      sunbursts (HTML) and icicles (PDF, SVG) of each rank
  vramscope modules memory_trace --screen             the icicle: zoom, kinds, points
  vramscope modules run1 run2 --screen                two runs: the second against the first
  vramscope modules memory_trace --json | jq .breakdown

exit codes: 0 done, 2 usage, or a file or folder that cannot be read"""
MOST_DEPTH = 64


def register(subparsers: SubParsers, common: list[ArgumentParser]) -> None:
    """Add the verb's parser."""
    parser = subparsers.add_parser(
        "modules",
        help=SUMMARY,
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=RawDescriptionHelpFormatter,
        parents=[build_look_flags(), *common],
        allow_abbrev=False,
    )
    parser.add_argument(
        "paths",
        metavar="FILE|DIR",
        type=Path,
        nargs="+",
        help="a profile, or a folder with those of ranks; several with --screen",
    )
    output = parser.add_argument_group("output")
    output.add_argument("--screen", action="store_true", help="show it on a screen: zoom, kinds, points")
    output.add_argument("-o", "--output", metavar="DIR", type=Path, help="write charts into this folder")
    output.add_argument(
        "--table", "--text", dest="table", action="store_true", help="print tables (the default)"
    )
    output.add_argument("--json", action="store_true", default=SUPPRESS, help="print one JSON object a rank")
    output.add_argument("--depth", metavar="N", default="2", help="levels of the printed trees (default 2)")


def run(arguments: Namespace) -> int:
    """Show the profile, or write its charts.

    Raises:
        UsageError: A flag has a value that cannot be used.
        InputFileError: The profile cannot be read or understood.
        OutputFileError: A chart cannot be written.
    """
    from ..modules import print_modules, print_modules_as_json, show_modules, write_charts

    if arguments.json and arguments.table:
        raise UsageError("--json does not go with --table: give one of both")
    if not (arguments.depth.isdecimal() and 1 <= int(arguments.depth) <= MOST_DEPTH):
        raise UsageError(f"--depth {arguments.depth}: expected a whole number from 1 to {MOST_DEPTH}")
    settings = read_settings(arguments)
    if arguments.screen:
        _refuse_with_screen(arguments)
        return show_modules(arguments.paths, settings)
    if len(arguments.paths) > 1:
        raise UsageError("several profiles are compared on a screen: give --screen, or one FILE or DIR")
    (profile,) = arguments.paths
    if arguments.output is not None:
        for path in write_charts(profile, arguments.output):
            print(f"vramscope modules: wrote {path}", file=sys.stderr)
    if arguments.json:
        print_modules_as_json(profile)
    elif arguments.output is None or arguments.table:
        print_modules(profile, settings, depth=int(arguments.depth))
    return 0


def _refuse_with_screen(arguments: Namespace) -> None:
    """Refuse what prints or writes: on the screen `E` exports.

    Raises:
        UsageError: Such a flag was given.
    """
    for flag, is_given in (
        ("--json", arguments.json),
        ("--table", arguments.table),
        ("--output", arguments.output is not None),
    ):
        if is_given:
            raise UsageError(f"{flag} does not go with --screen: on the screen, E writes the files")
