"""`vramscope modules`: what a training step holds by module, as tables, JSON and charts."""

from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from vramscope.engine.errors import UsageError
from vramscope.engine.settings import Settings

from ..frame.configuration import read_settings
from ..frame.diagnostics import complain
from ..frame.figure_flag import FigureTarget, add_figure_flag, read_old_figure
from ..frame.flag_words import add_format_flags, add_old_flag
from ..frame.parser_flags import build_look_flags
from ..frame.registry import SubParsers

if TYPE_CHECKING:
    from ..modules import NamedMemory

SUMMARY = "memory by module: parameters, gradients, optimizer and activations, measured beside computed"
DESCRIPTION = """\
Show what a profile by module says: module_memory.jsonl and memory.log as SimpleMemoryProfiler and
`vramscope run --profiling` write them, the memory.log of InternLM and InternEvo, and their charts. Of two
profiles, or runs with several ranks, show what differs; of a running job, what it holds."""
EPILOG = """\
examples:
  vramscope modules memory_trace/rank0_dp0_tp0/memory.log
  vramscope modules memory_trace --figure charts/     sunbursts (HTML) and icicles (PDF, SVG) of each rank
  vramscope modules rank0/memory.log --figure rank0.pdf    the icicle of one rank
  vramscope modules memory_trace --screen             the icicle: zoom, kinds, points
  vramscope modules run1 run2                         what the second run has more or less than the first
  vramscope modules run1 run2 --figure difference/    the same as icicle (PDF, SVG) and table (CSV)
  vramscope modules --pid 4242                        of a process that trains now, over a step
  vramscope modules memory_trace --json | jq .breakdown

exit codes: 0 done, 2 usage, or a file, folder or process that cannot be read, 7 no agent, or no answer"""
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
        nargs="*",
        help="a profile, or a folder with those of ranks; two are compared, any number with --screen",
    )
    live = parser.add_argument_group("of a running job")
    live.add_argument("--pid", metavar="PID", dest="live_pid", type=int, help="a process that reports")
    live.add_argument("--job", metavar="NAME", dest="live_job", help="all ranks of a job of `vramscope run`")
    live.add_argument(
        "--timeout",
        metavar="TIME",
        default="60s",
        help="how long a step may take to end (default 60s)",
    )
    output = parser.add_argument_group("output")
    output.add_argument("--screen", action="store_true", help="show it on a screen: zoom, kinds, points")
    add_figure_flag(output, "draw the icicle")
    for old in ("-o", "--output"):
        add_old_flag(output, old, use="--figure FILE or DIR/", dest="figure", type=read_old_figure)
    output.add_argument("--pages", action="store_true", help="with --figure DIR/: the sunbursts alone")
    add_format_flags(
        output,
        text="text: print tables, the default",
        json="print one JSON object a rank",
        old=("--table", "--text"),
    )
    output.add_argument("--depth", metavar="N", default="2", help="levels of the printed trees (default 2)")


def run(arguments: Namespace) -> int:
    """Show profiles, hold two against each other, or write their charts.

    Raises:
        UsageError: A flag has a value that cannot be used, or a process cannot be asked.
        InputFileError: A profile cannot be read or understood.
        OutputFileError: A chart cannot be written.
        HubUnreachableError: No agent runs, or a process does not answer in time.
    """
    if not (arguments.depth.isdecimal() and 1 <= int(arguments.depth) <= MOST_DEPTH):
        raise UsageError(f"--depth {arguments.depth}: expected a whole number from 1 to {MOST_DEPTH}")
    figure: FigureTarget | None = arguments.figure
    if arguments.pages and (figure is None or not figure.is_folder):
        raise UsageError("--pages: says which charts to write; name their folder with --figure DIR/")
    _check_sources(arguments)
    settings = read_settings(arguments)
    if arguments.screen:
        from ..modules import show_modules

        _refuse_with_screen(arguments)
        return show_modules(arguments.paths, settings)
    if len(arguments.paths) == 2:
        _compare(arguments, settings)
    else:
        _print(arguments, settings)
    return 0


def _check_sources(arguments: Namespace) -> None:
    """Refuse what says nothing of whose memory is meant, or too much.

    Raises:
        UsageError: It does.
    """
    is_live = arguments.live_pid is not None or arguments.live_job is not None
    if arguments.live_pid is not None and arguments.live_job is not None:
        raise UsageError("--pid does not go with --job: give one of both")
    if is_live and arguments.paths:
        raise UsageError("FILE or DIR does not go with --pid or --job, which ask a running process")
    if is_live and arguments.screen:
        raise UsageError("--screen shows files: a running process is on the screen of `vramscope`, key 7")
    if not is_live and not arguments.paths:
        raise UsageError("expected FILE or DIR, or --pid PID or --job NAME of a running job")
    if len(arguments.paths) > 2 and not arguments.screen:
        raise UsageError("two profiles are compared; give --screen for more of them")


def _compare(arguments: Namespace, settings: Settings) -> None:
    from ..module_differences import (
        pair_profiles,
        print_differences,
        print_differences_as_json,
        write_differences,
    )

    pairs = pair_profiles(*arguments.paths)
    if arguments.figure is not None:
        _check_one(arguments.figure, len(pairs))
        _tell_written(write_differences(pairs, arguments.figure.path, file=arguments.figure.file))
    if arguments.json:
        print_differences_as_json(pairs)
    elif arguments.figure is None or arguments.format == "text":
        print_differences(pairs, settings, depth=int(arguments.depth))


def _print(arguments: Namespace, settings: Settings) -> None:
    from ..modules import print_modules, print_modules_as_json, read_named, write_charts

    profiles = read_named(arguments.paths[0]) if arguments.paths else _ask(arguments)
    figure: FigureTarget | None = arguments.figure
    if figure is not None:
        _check_one(figure, len(profiles))
        _tell_written(write_charts(profiles, figure.path, has_figures=not arguments.pages, file=figure.file))
    if arguments.json:
        print_modules_as_json(profiles)
    elif arguments.figure is None or arguments.format == "text":
        print_modules(profiles, settings, depth=int(arguments.depth))


def _ask(arguments: Namespace) -> "list[NamedMemory]":
    """Return the profiles of the processes that are asked for."""
    from vramscope.engine.units import parse_duration
    from vramscope.engine.viewer.client import connect

    from ..live_modules import Wanted, ask_profiles

    try:
        timeout_s = parse_duration(arguments.timeout)
    except UsageError as error:
        raise UsageError(f"--timeout {arguments.timeout}: {error}") from error
    with connect() as client:
        return ask_profiles(client, Wanted(arguments.live_pid, arguments.live_job), timeout_s)


def _check_one(figure: FigureTarget, charts: int) -> None:
    """Refuse one file for charts of several ranks.

    Raises:
        UsageError: There are several.
    """
    if figure.file is not None and charts > 1:
        raise UsageError(
            f"--figure {figure.file}: there are {charts} ranks, each with a chart; name a folder: --figure "
            f"{figure.file.with_suffix('')}/"
        )


def _tell_written(paths: "Sequence[Path]") -> None:
    if not paths:
        complain("the profile has no modules to draw, so no file was written", program="vramscope modules")
    for path in paths:
        complain(f"wrote {path}", program="vramscope modules")


def _refuse_with_screen(arguments: Namespace) -> None:
    """Refuse what prints or writes: on the screen `E` exports.

    Raises:
        UsageError: Such a flag was given.
    """
    for flag, is_given in (
        ("--json", arguments.json),
        ("--format", arguments.format is not None),
        ("--figure", arguments.figure is not None),
    ):
        if is_given:
            raise UsageError(f"{flag} does not go with --screen: on the screen, E writes the files")
