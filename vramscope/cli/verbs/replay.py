"""`vramscope replay`: recordings and memory traces in the live view, played by this very process."""

from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from vramscope.engine.errors import UsageError

from ..configuration import read_settings
from ..parser_flags import add_replay_flags, build_view_flags, read_capacity, read_replay_interval, read_speed
from . import SubParsers

if TYPE_CHECKING:
    from vramscope.engine.bus.feed import Feed
    from vramscope.engine.replay.tape import Tape

SUMMARY = "play a recording or memory traces in the live view"


def register(subparsers: SubParsers, common: list[ArgumentParser]) -> None:
    """Add the verb's parser."""
    parser = subparsers.add_parser(
        "replay",
        help=SUMMARY,
        description="Play in the live view what was recorded: a recording of `vramscope record`, or a folder "
        "of memory traces (memory_trace_rank*.json, one a rank).",
        parents=[build_view_flags(), *common],
        allow_abbrev=False,
    )
    parser.add_argument(
        "path",
        metavar="FILE|DIR",
        type=Path,
        help="recording (*.vscope), folder of trace files, or the file of one rank",
    )
    parser.add_argument(
        "--recorded-findings",
        action="store_true",
        help="of a recording: show findings as they were recorded instead of finding them again",
    )
    add_replay_flags(parser, interval_flag="--interval")


def run(arguments: Namespace) -> int:
    """Play until the view is quit.

    Raises:
        InputFileError: The recording or the traces cannot be read.
        UsageError: What was asked for is not in such a file.
    """
    from vramscope.engine.sampling.node import node_name

    from ..live import open_view

    settings, speed = read_settings(arguments), read_speed(arguments)
    open_tape = _choose_tape(arguments)
    # What is wrong with the files is told here and now, not by a thread behind the screen.
    open_tape().close()

    def start_feed() -> "Feed":
        from vramscope.engine.plugins import make_analyzers
        from vramscope.engine.replay.feed import ReplayFeed
        from vramscope.engine.replay.player import ReplayOptions

        return ReplayFeed(
            open_tape,
            make_analyzers=lambda: make_analyzers().made,
            options=ReplayOptions(speed, arguments.recorded_findings),
        )

    config = getattr(arguments, "config", None)
    return open_view(start_feed, settings, config=config, local_node=node_name(), is_replay=True)


def _choose_tape(arguments: Namespace) -> "Callable[[], Tape]":
    """Return what opens the file or folder, by its content."""
    from vramscope.engine.readers.series_format import is_database

    path, capacity_bytes = arguments.path, read_capacity(arguments)
    interval_s = read_replay_interval(arguments)
    if path.is_file() and is_database(path):
        from vramscope.engine.replay.tape import RecordingTape

        return lambda: RecordingTape(path, capacity_bytes=capacity_bytes)
    if arguments.recorded_findings:
        raise UsageError("--recorded-findings: memory traces hold no findings; expected a recording")
    from vramscope.engine.replay.trace_tape import TraceTape

    return lambda: TraceTape(path, interval_s=interval_s, capacity_bytes=capacity_bytes)
