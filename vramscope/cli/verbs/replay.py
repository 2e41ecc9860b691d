"""`vramscope replay`: recorded memory traces in the live view, through a hub and worker of their own."""

from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from ..configuration import read_settings
from ..parser_flags import add_replay_flags, build_view_flags, read_capacity, read_replay_interval, read_speed
from . import SubParsers

if TYPE_CHECKING:
    from vramscope.engine.bus.feed import Feed

SUMMARY = "play recorded memory traces in the live view"


def register(subparsers: SubParsers, common: list[ArgumentParser]) -> None:
    """Add the verb's parser."""
    parser = subparsers.add_parser(
        "replay",
        help=SUMMARY,
        description="Play a folder of memory traces (memory_trace_rank*.json, one a rank) in the live view.",
        parents=[build_view_flags(), *common],
        allow_abbrev=False,
    )
    parser.add_argument(
        "path", metavar="DIR", type=Path, help="folder of trace files, or the file of one rank"
    )
    add_replay_flags(parser, interval_flag="--interval")


def run(arguments: Namespace) -> int:
    """Play the traces until the view is quit.

    Raises:
        InputFileError: The traces cannot be read.
    """
    from vramscope.engine.errors import InputFileError
    from vramscope.engine.readers.input_file import show_path
    from vramscope.engine.readers.series_format import is_database
    from vramscope.engine.sampling.node import node_name
    from vramscope.engine.sampling.trace_player import TracePlayer

    from ..live import open_view

    settings = read_settings(arguments)
    speed, interval_s = read_speed(arguments), read_replay_interval(arguments)
    capacity_bytes = read_capacity(arguments)
    if arguments.path.is_file() and is_database(arguments.path):
        name = show_path(arguments.path)
        raise InputFileError(
            f"{name}: a recording, which the screens do not play; expected memory traces: "
            f"read it with `vramscope profile --input {name}`, or oom, leak, fragment"
        )
    # What is wrong with the files is told here and now, not by a hub that ends behind the screen.
    TracePlayer(arguments.path, speed=speed, interval_s=interval_s, capacity_bytes=capacity_bytes)

    def start_feed() -> "Feed":
        from vramscope.engine.bus.attach import play

        return play(arguments.path, speed=speed, interval_s=interval_s, capacity_bytes=capacity_bytes)

    return open_view(start_feed, settings, config=getattr(arguments, "config", None), local_node=node_name())
