"""`vramscope replay`: what was recorded, by whatever tool, in the live view, played by this very process."""

from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from vramscope.engine.errors import UsageError

from ..frame.configuration import read_settings
from ..frame.parser_flags import (
    add_replay_flags,
    build_view_flags,
    read_capacity,
    read_replay_interval,
    read_speed,
)
from ..frame.registry import SubParsers

if TYPE_CHECKING:
    from vramscope.engine.settings import Settings
    from vramscope.engine.viewer.feed import Feed

    from ..replay_files import ReplayFiles
    from ..replay_sweep import SweepFolders

SUMMARY = "play recordings, memory traces, logs and series of other tools in the live view"
DESCRIPTION = """\
Play in the live view what was recorded; what a file is, its content says: recordings of `vramscope record`,
memory traces (files, or the folder of a run), memory snapshots, profiler traces and memory timelines of
PyTorch, series CSV, logs of nvidia-smi and of training frameworks, and all else that `vramscope import`
knows. Files of one rank or device each are joined. The traces of a sweep play configuration by
configuration."""
EPILOG = """\
examples:
  vramscope replay run.vscope
  vramscope replay gpu.csv --capacity 80GiB
  vramscope replay rank0.csv rank1.csv
  vramscope replay memory_traces/30b_pp4_tp2 --speed 10
  vramscope replay memory_traces/30b_pp4_tp2 memory_traces_scaling/30b_pp4_tp2
  vramscope replay traces/485B --log-dir log/CONFIG_SWEEP_WS8192_485_20250726_012803

keys: space pause, [ ] one sample, j k 10 s, g go to a moment, n N next finding, + - speed, ? all of them
of a sweep: j k next configuration and the one before, { } 10 s"""


def register(subparsers: SubParsers, common: list[ArgumentParser]) -> None:
    """Add the verb's parser."""
    parser = subparsers.add_parser(
        "replay",
        help=SUMMARY,
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=RawDescriptionHelpFormatter,
        parents=[build_view_flags(), *common],
        allow_abbrev=False,
    )
    parser.add_argument(
        "paths",
        metavar="FILE|DIR",
        type=Path,
        nargs="+",
        help="file, folder of memory traces of a run or a sweep, or folder of recordings (*.vscope)",
    )
    parser.add_argument(
        "--log-dir", metavar="DIR", type=Path, help="of a sweep: folder of its logs, which tell what failed"
    )
    parser.add_argument(
        "--recorded-findings",
        action="store_true",
        help="of recordings: show findings as they were recorded instead of finding them again",
    )
    parser.add_argument(
        "--compare",
        action="store_true",
        help="of a real run and its simulation: print the error of every rank, and leave",
    )
    add_replay_flags(parser, interval_flag="--interval")


def run(arguments: Namespace) -> int:
    """Play until the view is quit.

    Raises:
        InputFileError: A file cannot be read, or is of no known format.
        UsageError: What was asked for is not in such a file.
        OutputFileError: There is no room for what has to be imported first.
    """
    from ..replay_files import ReplayFiles
    from ..replay_sweep import find_sweep

    settings = read_settings(arguments)
    speed = read_speed(arguments)
    sweep = find_sweep(arguments.paths, arguments.log_dir)
    if sweep is not None:
        return _replay_sweep(sweep, arguments, settings, speed)
    files = ReplayFiles(
        arguments.paths,
        capacity_bytes=read_capacity(arguments),
        interval_s=read_replay_interval(arguments),
        is_as_recorded=arguments.recorded_findings,
    )
    if arguments.compare:
        return _print_comparison(files, settings)
    return _replay_files(files, arguments, settings, speed)


def _replay_files(files: "ReplayFiles", arguments: Namespace, settings: "Settings", speed: float) -> int:
    from vramscope.engine.sampling.live import node_name

    from ..live import open_view

    with ExitStack() as stack:

        def start_feed() -> "Feed":
            from vramscope.engine.plugins import make_analyzers
            from vramscope.engine.replay.feed import ReplayFeed
            from vramscope.engine.replay.player import ReplayOptions

            return ReplayFeed(
                stack.enter_context(files.prepared()),
                make_analyzers=lambda: make_analyzers().made,
                options=ReplayOptions(speed, arguments.recorded_findings),
            )

        config = getattr(arguments, "config", None)
        return open_view(start_feed, settings, config=config, local_node=node_name(), is_replay=True)


def _replay_sweep(sweep: "SweepFolders", arguments: Namespace, settings: "Settings", speed: float) -> int:
    from ..replay_sweep import replay_sweep
    from ..sweep_replay import DEFAULT_OPTIONS

    for flag, is_given in (
        ("--compare", arguments.compare),
        ("--recorded-findings", arguments.recorded_findings),
    ):
        if is_given:
            raise UsageError(
                f"{flag}: {sweep.memory_dir} holds traces of a sweep; name the folder of one run"
            )
    interval_s = read_replay_interval(arguments)
    options = DEFAULT_OPTIONS._replace(
        speed=speed,
        interval_s=DEFAULT_OPTIONS.interval_s if interval_s is None else interval_s,
        capacity_bytes=read_capacity(arguments),
    )
    config = getattr(arguments, "config", None)
    return replay_sweep(sweep, options, settings=settings, config=config)


def _print_comparison(files: "ReplayFiles", settings: "Settings") -> int:
    from vramscope.exporters.inspect import format_comparison

    from ..frame.printing import choose_style, emit

    style = choose_style(settings)
    text = format_comparison(files.read_comparison(), style.width)
    emit(f"{text}\n", is_ascii=style.is_ascii)
    return 0
