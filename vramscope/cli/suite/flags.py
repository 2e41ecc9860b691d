"""Flags of the suite, as the original has them and some more; read with what is wrong said in one line."""

from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, cast

from vramscope.engine.errors import UsageError
from vramscope.engine.model import SEVERITIES, Severity
from vramscope.engine.units import parse_duration
from vramscope.memory.selection import Selection

from ..frame.figure_flag import FigureTarget, add_figure_flag
from ..frame.flag_words import add_format_flags, add_old_flag
from ..frame.registry import SubParsers
from .options import Format, WatchOptions

if TYPE_CHECKING:
    from argparse import _ArgumentGroup

LEAST_INTERVAL_S = 0.1
MOST_INTERVAL_S = 3600.0
LEAST_PERIOD_S = 1.0


class Defaults(NamedTuple):
    """What a verb watches where nothing is said."""

    duration: str
    interval: str


def add_watch_parser(
    subparsers: SubParsers,
    common: list[ArgumentParser],
    verb: str,
    defaults: Defaults,
    *,
    summary: str,
    epilog: str,
    description: str | None = None,
    has_input: bool = True,
) -> ArgumentParser:
    """Add the parser of a verb of the suite, with the flags that all of them have, and return it.

    Args:
        subparsers: Where verbs are added.
        common: Parsers whose flags every verb of the program has.
        verb: Its name.
        defaults: What it watches where nothing is said.
        summary: One line for the list of verbs.
        epilog: Examples and exit codes.
        description: More than the summary says, for its own help.
        has_input: Whether it reads files too.
    """
    parser = subparsers.add_parser(
        verb,
        help=summary,
        description=description or f"{summary[0].upper()}{summary[1:]}.",
        epilog=epilog,
        formatter_class=RawDescriptionHelpFormatter,
        parents=common,
        allow_abbrev=False,
    )
    _add_watch_flags(parser, defaults, has_input=has_input)
    return parser


def _add_watch_flags(parser: ArgumentParser, defaults: Defaults, *, has_input: bool) -> None:
    what = parser.add_argument_group("what is watched")
    what.add_argument(
        "--devices",
        metavar="N",
        nargs="+",
        help="only these: index, label (0:1, sim0) or UUID (default: all)",
    )
    what.add_argument("--pid", metavar="PID", dest="watch_pid", help="only this process, and its devices")
    what.add_argument("--job", metavar="NAME", dest="watch_job", help="only this job of `vramscope run`")
    if has_input:
        _add_input_flags(what)
    else:
        parser.set_defaults(input=None, capacity=None)
    _add_times(parser, defaults)
    _add_outputs(parser)


def _add_input_flags(group: "_ArgumentGroup") -> None:
    group.add_argument(
        "--input",
        metavar="FILE",
        type=Path,
        help="a file instead of this node: series CSV, nvidia-smi log, memory traces, exported snapshots",
    )
    group.add_argument(
        "--capacity", metavar="SIZE", help="memory of the devices, where FILE does not tell it"
    )


def _add_times(parser: ArgumentParser, defaults: Defaults) -> None:
    times = parser.add_argument_group("how long")
    times.add_argument(
        "--duration",
        metavar="TIME",
        dest="watch_duration",
        help=f"such as 60, 90s, 10m; 0 is until Ctrl-C (default {defaults.duration} s; a file to its end)",
    )
    times.add_argument(
        "--interval",
        metavar="TIME",
        dest="watch_interval",
        help=f"from one snapshot to the next (default {defaults.interval} s; of a file each sample)",
    )
    times.add_argument("--every", metavar="TIME", help="a report each period, such as 1h, until Ctrl-C")
    times.add_argument(
        "--archive", metavar="DIR", type=Path, help="folder of those reports, each named by its time"
    )


def _add_outputs(parser: ArgumentParser) -> None:
    output = parser.add_argument_group("output")
    output.add_argument(
        "-o", "--output", metavar="FILE", type=Path, help="write the report (JSON) to this file"
    )
    add_format_flags(
        output,
        text="of standard output (default: text in a terminal, JSON into a pipe)",
        json="as --format json",
    )
    add_figure_flag(output, "draw memory of one device, or the heat map of several")
    add_old_flag(output, "--plot", use="--figure DIR/", dest="has_plots", nargs=0, const=True)
    parser.set_defaults(has_plots=False)
    output.add_argument(
        "--fail-on",
        choices=SEVERITIES,
        metavar="LEVEL",
        help="exit with 3 if a finding reaches this severity",
    )


def read_watch_options(arguments: Namespace, verb: str, defaults: Defaults) -> WatchOptions:
    """Return what was asked for.

    Raises:
        UsageError: A flag has a value that cannot be used, or two contradict each other.
    """
    every_s = None if arguments.every is None else read_time("--every", arguments.every, LEAST_PERIOD_S)
    _check_together(arguments, every_s)
    return WatchOptions(
        verb=verb,
        duration_s=_read_duration(arguments, every_s, defaults),
        interval_s=_read_interval(arguments, defaults),
        selection=_read_selection(arguments),
        input=arguments.input,
        capacity_bytes=_read_capacity(arguments),
        output=arguments.output,
        format=cast("Format | None", arguments.format),
        figure=_choose_figure(arguments),
        fail_on=cast("Severity | None", arguments.fail_on),
        every_s=every_s,
        archive=arguments.archive,
    )


def _choose_figure(arguments: Namespace) -> FigureTarget | None:
    """Return where figures go; the old `--plot` means the folder of the report, else the working folder."""
    if arguments.figure is not None or not arguments.has_plots:
        return cast("FigureTarget | None", arguments.figure)
    report: Path | None = arguments.output
    folder = arguments.archive or (Path() if report is None else report.parent)
    return FigureTarget(folder, is_folder=True)


def read_time(flag: str, text: str, least_s: float = 0.0, most_s: float = float("inf")) -> float:
    """Return the seconds that a flag was given.

    Raises:
        UsageError: It is no duration, or out of range.
    """
    try:
        seconds = parse_duration(text)
    except UsageError as error:
        raise UsageError(f"{flag} {text}: {error}") from error
    if not least_s <= seconds <= most_s:
        upper = "" if most_s == float("inf") else f" and {most_s:g} s at most"
        raise UsageError(f"{flag} {text}: expected {least_s:g} s at least{upper}")
    return seconds


def read_number(flag: str, text: str, least: float, most: float) -> float:
    """Return the number that a flag was given.

    Raises:
        UsageError: It is no number, or out of range.
    """
    try:
        number = float(text)
    except ValueError:
        number = float("nan")
    if not least <= number <= most:
        raise UsageError(f"{flag} {text}: expected a number from {least:g} to {most:g}")
    return number


def read_count(flag: str, text: str, least: int, most: int) -> int:
    """Return the whole number that a flag was given.

    Raises:
        UsageError: It is no whole number, or out of range.
    """
    if text.isdecimal() and least <= int(text) <= most:
        return int(text)
    raise UsageError(f"{flag} {text}: expected a whole number from {least} to {most:,}")


def _read_duration(arguments: Namespace, every_s: float | None, defaults: Defaults) -> float | None:
    if arguments.watch_duration is not None:
        return read_time("--duration", arguments.watch_duration) or None
    is_endless = arguments.input is not None or every_s is not None
    return None if is_endless else parse_duration(defaults.duration)


def _read_interval(arguments: Namespace, defaults: Defaults) -> float:
    if arguments.watch_interval is None:
        return 0.0 if arguments.input is not None else parse_duration(defaults.interval)
    return read_time("--interval", arguments.watch_interval, LEAST_INTERVAL_S, MOST_INTERVAL_S)


def _read_selection(arguments: Namespace) -> Selection:
    words = None
    if arguments.devices is not None:
        words = tuple(word for given in arguments.devices for word in given.split(",") if word)
        if not words:
            raise UsageError("--devices: expected at least one device, for example --devices 0 1")
    pid = None
    if arguments.watch_pid is not None:
        pid = read_count("--pid", arguments.watch_pid, 1, 2**31 - 1)
    return Selection(words, pid, arguments.watch_job)


def _read_capacity(arguments: Namespace) -> int | None:
    from ..frame.parser_flags import read_capacity

    capacity_bytes = read_capacity(arguments)
    if capacity_bytes is not None and arguments.input is None:
        raise UsageError("--capacity goes with --input: a device of this node tells its own")
    return capacity_bytes


def _check_together(arguments: Namespace, every_s: float | None) -> None:
    if (every_s is None) != (arguments.archive is None):
        raise UsageError(
            "--every and --archive go together: --every 1h --archive DIR writes a report an hour into DIR"
        )
    if every_s is not None and arguments.output is not None:
        raise UsageError("--output does not go with --every, which writes its reports into --archive DIR")
    if arguments.input is not None and (arguments.watch_pid is not None or arguments.watch_job is not None):
        raise UsageError("--pid and --job do not go with --input: a file tells of devices only")
