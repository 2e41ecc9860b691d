"""`vramscope diff`: two runs side by side, where and when they part."""

import sys
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from pathlib import Path
from typing import TYPE_CHECKING

from vramscope.engine.settings import Settings

from ..comparing import PROGRAM, compare_files, read_threshold
from ..drawing import can_draw
from ..frame.configuration import read_settings
from ..frame.figure_flag import add_figure_flag
from ..frame.flag_words import add_format_flags
from ..frame.parser_flags import build_look_flags
from ..frame.registry import SubParsers

if TYPE_CHECKING:
    from vramscope.analyzers.comparison import Comparison

SUMMARY = "compare two recordings, or traces, series and logs: where and when they part"
DESCRIPTION = """\
Compare two runs step by step, rank by rank: from which step on they differ for good, by how much, in what,
and what was found in one of them only. Each is a recording, or anything that `import` reads: memory traces, a
series CSV, logs. Differences are B less A. A terminal gets a screen; a pipe gets the text."""
EPILOG = """\
examples:
  vramscope diff yesterday.vscope today.vscope
  vramscope diff base.vscope new.vscope --format text --fail-on +5%
  vramscope diff base.vscope new.vscope --figure difference.pdf

--fail-on: 500MiB or 5% either way, +500MiB or +5% where B needs more; also where only B runs out of memory
exit codes: 0 compared, 2 usage or a file that cannot be read, 3 they part by more than --fail-on"""
EXIT_PARTED = 3


def register(subparsers: SubParsers, common: list[ArgumentParser]) -> None:
    """Add the verb's parser."""
    parser = subparsers.add_parser(
        "diff",
        help=SUMMARY,
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=RawDescriptionHelpFormatter,
        parents=[build_look_flags(), *common],
        allow_abbrev=False,
    )
    parser.add_argument(
        "a", metavar="A", type=Path, help="the run to compare with: a file, or a folder of traces"
    )
    parser.add_argument("b", metavar="B", type=Path, help="the run to compare")
    output = parser.add_argument_group("output")
    add_format_flags(
        output,
        text="text: print it, also in a terminal",
        json="print one JSON object with its schema's name",
        old=("--text", "--once"),
    )
    add_figure_flag(output, "draw the rank or device that parts first")
    output.add_argument(
        "--fail-on", metavar="SIZE|PERCENT", help="exit code 3 where they part by more, for example +5%%"
    )


def run(arguments: Namespace) -> int:
    """Compare the runs.

    Raises:
        UsageError: A flag has a value that cannot be used.
        InputFileError: A file cannot be read or understood.
        OutputFileError: The figure cannot be written.
    """
    threshold = read_threshold(arguments.fail_on)
    figure = arguments.figure
    if figure is not None:
        figure.check()
    settings = read_settings(arguments)
    code = 0
    comparison: Comparison | None = None
    if arguments.format is not None or arguments.json or figure is not None or not can_draw(settings):
        comparison = _compare(arguments)
        _print(comparison, settings, is_json=arguments.json)
    else:
        from vramscope.tui.diff.screen import show_difference

        code, comparison = show_difference(
            lambda tell: compare_files(arguments.a, arguments.b, tell), settings=settings
        )
    if figure is not None and comparison is not None:
        from vramscope.exporters.diff import draw_difference

        for path in figure.list_files("difference"):
            draw_difference(comparison, path)
    is_crossed = (
        threshold is not None and comparison is not None and threshold.is_crossed(comparison.difference)
    )
    return EXIT_PARTED if is_crossed and code == 0 else code


def _compare(arguments: Namespace) -> "Comparison":
    from ..frame.progress import ProgressLine

    progress = ProgressLine(PROGRAM)
    try:
        return compare_files(arguments.a, arguments.b, progress.show_share)
    finally:
        progress.clear()


def _print(comparison: "Comparison", settings: Settings, *, is_json: bool) -> None:
    if is_json:
        from vramscope.exporters.json_lines import write_line

        write_line(comparison.difference, sys.stdout.buffer)
        return
    from vramscope.exporters.diff import describe_difference

    from ..frame.printing import choose_style, emit

    style = choose_style(settings)
    text = describe_difference(comparison, style.width)
    emit(text, is_ascii=style.is_ascii)
