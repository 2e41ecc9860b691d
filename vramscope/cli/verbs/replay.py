"""`vramscope replay`: what was recorded, by whatever tool, in the live view, played by this very process."""

from argparse import ArgumentParser, Namespace
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from vramscope.engine.errors import UsageError

from ..frame.emit import emit_fitted
from ..frame.flags import add_replay_flags, build_view_flags
from ..frame.parse import SubParsers, add_verb
from ..frame.settings import read_settings

if TYPE_CHECKING:
    from vramscope.engine.settings import Settings
    from vramscope.engine.viewer.feed import Feed

    from ..replay import ReplayFiles, SweepFolders

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
    parser = add_verb(subparsers, [build_view_flags(), *common], "replay", SUMMARY, DESCRIPTION, EPILOG)
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
    from ..replay import ReplayFiles, find_sweep

    settings = read_settings(arguments)
    sweep = find_sweep(arguments.paths, arguments.log_dir)
    if sweep is not None:
        return _replay_sweep(sweep, arguments, settings)
    files = ReplayFiles(
        arguments.paths,
        capacity_bytes=arguments.capacity,
        interval_s=arguments.replay_interval,
        is_as_recorded=arguments.recorded_findings,
    )
    if arguments.compare:
        return _print_comparison(files, settings)
    return _replay_files(files, arguments, settings)


def _replay_files(files: "ReplayFiles", arguments: Namespace, settings: "Settings") -> int:
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
                options=ReplayOptions(arguments.speed, arguments.recorded_findings),
            )

        config = getattr(arguments, "config", None)
        return open_view(start_feed, settings, config=config, local_node=node_name(), is_replay=True)


def _replay_sweep(sweep: "SweepFolders", arguments: Namespace, settings: "Settings") -> int:
    from ..replay import DEFAULT_OPTIONS, replay_sweep

    for flag, is_given in (
        ("--compare", arguments.compare),
        ("--recorded-findings", arguments.recorded_findings),
    ):
        if is_given:
            raise UsageError(
                f"{flag}: {sweep.memory_dir} holds traces of a sweep; name the folder of one run"
            )
    interval_s = arguments.replay_interval
    options = DEFAULT_OPTIONS._replace(
        speed=arguments.speed,
        interval_s=DEFAULT_OPTIONS.interval_s if interval_s is None else interval_s,
        capacity_bytes=arguments.capacity,
    )
    config = getattr(arguments, "config", None)
    return replay_sweep(sweep, options, settings=settings, config=config)


def _print_comparison(files: "ReplayFiles", settings: "Settings") -> int:
    from vramscope.exporters.inspect import format_comparison

    emit_fitted(settings, lambda width: f"{format_comparison(files.read_comparison(), width)}\n")
    return 0
