"""`vramscope sweep`: every sweep over TP and PP in some folders, as a screen, a table or a figure."""

from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from pathlib import Path
from typing import TYPE_CHECKING

from ..drawing import can_draw
from ..frame.configuration import read_settings
from ..frame.figure_flag import add_figure_flag
from ..frame.flag_words import add_format_flags, add_old_flag
from ..frame.parser_flags import add_fit_flag, build_look_flags, choose_fit_code
from ..frame.registry import SubParsers
from ..sweep_flags import ITERATION_HELP, add_sweep_capacity_flag, read_iteration, read_sweep_capacity

if TYPE_CHECKING:
    from ..sweeps import SweepJob

SUMMARY = "list sweeps over TP and PP, walk through their grids, draw them side by side"
DESCRIPTION = """\
Find every sweep in folders of memory traces, of logs, or trees of both; tell of each what fits, what is best
and how wrong the theory was. Traces and logs are put together by model and world size, or by what they hold;
it says how. A terminal gets screens, a pipe gets the table."""
EPILOG = """\
examples:
  vramscope sweep memory_traces_scaling log
  vramscope sweep . --filter 'model=485B gpus>=1024 state=oom'
  vramscope sweep . --json | jq '.sweeps[] | [.name, .best.actual_gb]'
  vramscope sweep . --figure sweeps.pdf

GB in names of keys is 2^30 bytes; tables and figures say GiB.
exit codes: 0 done, 3 nothing that ran in one of them fits --capacity and --fail-on unfit is given, 2 usage,
or a folder that cannot be read or holds no sweep"""


def register(subparsers: SubParsers, common: list[ArgumentParser]) -> None:
    """Add the verb's parser."""
    parser = subparsers.add_parser(
        "sweep",
        help=SUMMARY,
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=RawDescriptionHelpFormatter,
        parents=[build_look_flags(), *common],
        allow_abbrev=False,
    )
    parser.add_argument(
        "folders", metavar="DIR", type=Path, nargs="+", help="folder of traces, of logs, or a tree of both"
    )
    sweep = parser.add_argument_group("sweep")
    add_sweep_capacity_flag(sweep)
    sweep.add_argument("--iteration", metavar="N", help=ITERATION_HELP)
    sweep.add_argument(
        "--filter",
        metavar="WORDS",
        default="",
        help="only these: model=485B, gpus=8192 (or >=, <=), state=oom, words of the name",
    )
    output = parser.add_argument_group("output")
    add_format_flags(
        output,
        text="text: print the table, also in a terminal",
        json="print one JSON object",
        old=("--table",),
    )
    add_fit_flag(output)
    add_figure_flag(output, "draw them as small multiples")
    add_old_flag(output, "--output", use="--figure FILE or DIR/", dest="output", type=Path)
    parser.set_defaults(output=None)


def run(arguments: Namespace) -> int:
    """Show the sweeps, or print them.

    Raises:
        UsageError: A flag has a value that cannot be used.
        InputFileError: A folder cannot be read, or there is no sweep in any.
        OutputFileError: A file cannot be written.
    """
    from ..sweeps import print_sweeps

    is_json = getattr(arguments, "json", False)
    base = arguments.output
    figure = arguments.figure
    is_drawn = base is not None or figure is not None
    is_screen = not (is_json or is_drawn) and arguments.format is None and arguments.fail_on is None
    settings = read_settings(arguments)
    job = read_job(arguments)
    if is_screen and can_draw(settings):
        from ..sweeps_screen import walk_through_sweeps

        return walk_through_sweeps(job, settings, config=getattr(arguments, "config", None))
    if figure is not None:
        figure.check()
        base = figure.path / "sweeps" if figure.is_folder else base
    file = None if figure is None else figure.file
    fits = print_sweeps(job, settings, base=base, file=file, is_json=is_json)
    return choose_fit_code(arguments, does_fit=fits)


def read_job(arguments: Namespace) -> "SweepJob":
    """Return which sweeps are wanted.

    Raises:
        UsageError: A flag has a value that cannot be used.
    """
    from ..sweeps import SweepJob

    max_memory_gib = read_sweep_capacity(arguments)
    folders = [path.expanduser() for path in arguments.folders]
    return SweepJob(folders, max_memory_gib, arguments.filter, read_iteration(arguments.iteration))
