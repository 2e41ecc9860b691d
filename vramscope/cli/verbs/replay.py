"""`vramscope replay`: recordings and files of other tools in the live view, played by this process."""

from argparse import ArgumentParser, Namespace
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

DESCRIPTION = "Play recordings, memory traces, logs and series of other tools in the live view."
EXAMPLES = """\
vramscope replay run.vscope
vramscope replay gpu.csv --capacity 80GiB
vramscope replay rank0.csv rank1.csv               # joined on one clock
vramscope replay memory_traces/30b_pp4_tp2 --speed 10
vramscope replay memory_traces/30b_pp4_tp2 memory_traces_scaling/30b_pp4_tp2
vramscope replay traces/485B --log-dir log         # a sweep"""
NOTES = """\
It recognizes a file by its content and plays everything that `vramscope import` reads, see `vramscope help
import`. The traces of a sweep play configuration by configuration.

Keys: space pause, [ ] one sample, j k 10 s, g go to a time, n N next finding, + - speed, ? all keys. In a
sweep: j k next and previous configuration, { } 10 s."""
EXIT_CODES: dict[int | str, str] = {
    0: "you quit the view",
    2: "wrong flags, no terminal, or a file that cannot be read",
    4: "a package of an extra is not installed",
}


def register(subparsers: SubParsers, common: list[ArgumentParser]) -> None:
    parents = [build_view_flags(), *common]
    parser = add_verb(
        subparsers, parents, "replay", DESCRIPTION, examples=EXAMPLES, notes=NOTES, exit_codes=EXIT_CODES
    )
    parser.add_argument(
        "paths",
        metavar="FILE|DIR",
        type=Path,
        nargs="+",
        help="a file, a folder of memory traces of a run or a sweep, or a folder of recordings (*.vscope)",
    )
    parser.add_argument(
        "--log-dir",
        metavar="DIR",
        type=Path,
        help="for a sweep: folder of its logs, for the runs that failed",
    )
    parser.add_argument(
        "--recorded-findings",
        action="store_true",
        help="for recordings: show the recorded findings instead of analyzing again",
    )
    parser.add_argument(
        "--compare",
        action="store_true",
        help="for a real run and its simulation: print the error of every rank and exit",
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

    def start_feed() -> "Feed":
        from vramscope.engine.plugins import make_analyzers
        from vramscope.engine.replay.feed import ReplayFeed
        from vramscope.engine.replay.player import ReplayOptions

        tapes = files.open_tapes()
        return ReplayFeed(
            lambda: tapes,
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
            raise UsageError(f"{flag}: {sweep.memory_dir} has traces of a sweep; name the folder of one run")
    interval_s = arguments.replay_interval
    options = DEFAULT_OPTIONS._replace(
        speed=arguments.speed,
        interval_s=DEFAULT_OPTIONS.interval_s if interval_s is None else interval_s,
        capacity_bytes=arguments.capacity,
    )
    config = getattr(arguments, "config", None)
    return replay_sweep(sweep, options, settings=settings, config=config)


def _print_comparison(files: "ReplayFiles", settings: "Settings") -> int:
    from vramscope.exporters.inspect.text import format_comparison

    emit_fitted(settings, lambda width: f"{format_comparison(files.read_comparison(), width)}\n")
    return 0
