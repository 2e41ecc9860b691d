"""Flags that the verbs which watch for a while and report share, and the options read from them."""

from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, cast

from vramscope.engine.errors import UsageError
from vramscope.engine.model import SEVERITIES, Severity
from vramscope.exporters.reports.log import MAX_SNAPSHOTS
from vramscope.memory.watch import Selection

from ..frame.flags import (
    CAPACITY,
    FigureTarget,
    add_figure_flag,
    add_format_flags,
    add_old_flag,
    duration,
    whole,
)
from ..frame.parse import SubParsers, add_verb

if TYPE_CHECKING:
    from argparse import _ArgumentGroup


Format = Literal["json", "text"]


class WatchOptions(NamedTuple):
    verb: str
    # How long to watch; None until Ctrl-C, or to the end of a file.
    duration_s: float | None
    # From one snapshot to the next.
    interval_s: float
    selection: Selection = Selection()
    input: Path | None = None
    capacity_bytes: int | None = None
    output: Path | None = None
    format: Format | None = None
    figure: FigureTarget | None = None
    fail_on: Severity | None = None
    every_s: float | None = None
    archive: Path | None = None
    max_snapshots: int = MAX_SNAPSHOTS
    # Whether each finding is printed on stderr as it opens.
    prints_findings: bool = False


EXIT_CODES: dict[int | str, str] = {
    0: "done",
    2: "wrong flags, or a file that cannot be read",
    3: "a finding reached --fail-on",
    4: "no device; or a package of an extra is not installed",
    5: "the driver is not loaded or does not answer",
}


class Defaults(NamedTuple):
    duration_s: float
    interval_s: float


def add_watch_parser(
    subparsers: SubParsers,
    common: list[ArgumentParser],
    verb: str,
    defaults: Defaults,
    *,
    description: str,
    examples: str,
    notes: str = "",
    exit_codes: Mapping[int | str, str] | None = None,
    has_input: bool = True,
) -> ArgumentParser:
    """Add the parser of such a verb with its common flags, and return it."""
    parser = add_verb(
        subparsers,
        common,
        verb,
        description,
        examples=examples,
        notes=notes,
        exit_codes=EXIT_CODES if exit_codes is None else exit_codes,
    )
    _add_watch_flags(parser, defaults, has_input=has_input)
    return parser


def _add_watch_flags(parser: ArgumentParser, defaults: Defaults, *, has_input: bool) -> None:
    what = parser.add_argument_group("what is watched")
    what.add_argument(
        "--devices",
        metavar="N",
        nargs="+",
        help="only these devices: index, label (0:1, sim0) or UUID (default: all)",
    )
    what.add_argument(
        "--pid",
        metavar="PID",
        dest="watch_pid",
        type=whole(1, 2**31 - 1),
        help="only this process and its devices",
    )
    what.add_argument(
        "--job", metavar="NAME", dest="watch_job", help="only this job, started by `vramscope run`"
    )
    if has_input:
        _add_input_flags(what)
    else:
        parser.set_defaults(input=None, capacity=None)
    _add_times(parser, defaults, has_input=has_input)
    _add_outputs(parser)


def _add_input_flags(group: "_ArgumentGroup") -> None:
    group.add_argument(
        "--input",
        metavar="FILE",
        type=Path,
        help="analyze a file instead of this node: recording, series CSV, nvidia-smi log, memory traces, "
        "exported snapshots",
    )
    group.add_argument(
        "--capacity",
        metavar="SIZE",
        type=CAPACITY,
        help="with --input: memory of the devices, if the file does not contain it",
    )


def _add_times(parser: ArgumentParser, defaults: Defaults, *, has_input: bool) -> None:
    times = parser.add_argument_group("how long")
    times.add_argument(
        "--duration",
        metavar="TIME",
        dest="watch_duration",
        type=duration(),
        help="how long to watch: 60, 90s, 10m; 0 for until Ctrl-C "
        f"(default {defaults.duration_s:g} s{'; a file to its end' if has_input else ''})",
    )
    times.add_argument(
        "--interval",
        metavar="TIME",
        dest="watch_interval",
        type=duration(lambda seconds: 0.1 <= seconds <= 3600, "from 0.1 s to 3600 s"),
        help=f"time between snapshots (default {defaults.interval_s:g} s"
        f"{'; in a file each sample' if has_input else ''})",
    )
    times.add_argument(
        "--every",
        metavar="TIME",
        type=duration(lambda seconds: seconds >= 1, "1 s or more"),
        help="write a report every TIME, for example 1h, until Ctrl-C; needs --archive",
    )
    times.add_argument(
        "--archive", metavar="DIR", type=Path, help="with --every: folder for the reports, named by time"
    )


def _add_outputs(parser: ArgumentParser) -> None:
    output = parser.add_argument_group("output")
    output.add_argument(
        "-o", "--output", metavar="FILE", type=Path, help="write the report (JSON) to this file"
    )
    add_format_flags(
        output,
        text="format of standard output (default: text in a terminal, JSON into a pipe)",
        json="short for --format json",
    )
    add_figure_flag(output, "draw the memory of one device, or a heat map of several")
    add_old_flag(output, "--plot", use="--figure DIR/", dest="has_plots", nargs=0, const=True)
    parser.set_defaults(has_plots=False)
    output.add_argument(
        "--fail-on",
        choices=SEVERITIES,
        metavar="LEVEL",
        help=f"exit with 3 if a finding reaches LEVEL: {', '.join(SEVERITIES[:-1])} or {SEVERITIES[-1]}",
    )


def read_watch_options(arguments: Namespace, verb: str, defaults: Defaults) -> WatchOptions:
    _check_together(arguments)
    return WatchOptions(
        verb=verb,
        duration_s=_choose_duration(arguments, defaults),
        interval_s=_choose_interval(arguments, defaults),
        selection=_read_selection(arguments),
        input=arguments.input,
        capacity_bytes=arguments.capacity,
        output=arguments.output,
        format=cast("Format | None", arguments.format),
        figure=_choose_figure(arguments),
        fail_on=cast("Severity | None", arguments.fail_on),
        every_s=arguments.every,
        archive=arguments.archive,
    )


def _choose_figure(arguments: Namespace) -> FigureTarget | None:
    """Return where figures go; the old `--plot` means the folder of the report, else the current folder."""
    if arguments.figure is not None or not arguments.has_plots:
        return cast("FigureTarget | None", arguments.figure)
    report: Path | None = arguments.output
    folder = arguments.archive or (Path() if report is None else report.parent)
    return FigureTarget(folder, is_folder=True)


def _choose_duration(arguments: Namespace, defaults: Defaults) -> float | None:
    if arguments.watch_duration is not None:
        return arguments.watch_duration or None
    is_endless = arguments.input is not None or arguments.every is not None
    return None if is_endless else defaults.duration_s


def _choose_interval(arguments: Namespace, defaults: Defaults) -> float:
    if arguments.watch_interval is None:
        return 0.0 if arguments.input is not None else defaults.interval_s
    return float(arguments.watch_interval)


def _read_selection(arguments: Namespace) -> Selection:
    words = None
    if arguments.devices is not None:
        words = tuple(word for given in arguments.devices for word in given.split(",") if word)
        if not words:
            raise UsageError("--devices: expected at least one device, for example --devices 0 1")
    return Selection(words, arguments.watch_pid, arguments.watch_job)


def _check_together(arguments: Namespace) -> None:
    if (arguments.every is None) != (arguments.archive is None):
        raise UsageError(
            "--every and --archive need each other: --every 1h --archive DIR writes a report an hour to DIR"
        )
    if arguments.every is not None and arguments.output is not None:
        raise UsageError("--output does not go with --every, which writes its reports to --archive DIR")
    if arguments.input is not None and (arguments.watch_pid is not None or arguments.watch_job is not None):
        raise UsageError("--pid and --job do not go with --input: choose devices of a file with --devices")
    if arguments.capacity is not None and arguments.input is None:
        raise UsageError("--capacity needs --input: the memory of this node's devices is known")
