"""`vramscope demo`: a real training job on a simulated card, and the live view on it, without a GPU."""

from argparse import ArgumentParser, Namespace
from importlib.util import find_spec
from typing import TYPE_CHECKING

from vramscope.engine.errors import SourceUnavailableError, UsageError
from vramscope.engine.settings import Settings
from vramscope.engine.units import parse_bytes, parse_duration

from ..frame.configuration import read_settings
from ..frame.diagnostics import complain
from ..frame.flag_words import add_old_flag
from ..frame.parser_flags import build_view_flags
from ..frame.registry import SubParsers

if TYPE_CHECKING:
    from vramscope.engine.jobs.demonstration import Demonstration
    from vramscope.engine.viewer.feed import Feed

SUMMARY = "watch a real training job on a simulated card leak, fragment and run out of memory; no GPU needed"
DESCRIPTION = """\
Start a small training job on a simulated card and open the live view on it. The job keeps what it should let
go: within two minutes memory is out, a flight record is written, and the story begins anew. What ends the
view ends the job. Needs torch: pip install 'vramscope[train]'."""

HISTORY_S = 180.0
"""Window of the graphs: the story and a half."""


def register(subparsers: SubParsers, common: list[ArgumentParser]) -> None:
    """Add the verb's parser."""
    from argparse import RawDescriptionHelpFormatter

    parser = subparsers.add_parser(
        "demo",
        help=SUMMARY,
        description=DESCRIPTION,
        formatter_class=RawDescriptionHelpFormatter,
        parents=[build_view_flags(), *common],
        allow_abbrev=False,
    )
    parser.add_argument("--duration", dest="duration_of_demo", metavar="TIME", help="end after this time")
    add_old_flag(parser, "--for", use="--duration", dest="duration_of_demo")
    parser.add_argument(
        "--capacity", metavar="SIZE", help="memory of the simulated card, at least 896MiB (default 1.5GiB)"
    )
    add_old_flag(parser, "--size", use="--capacity", dest="capacity")


def run(arguments: Namespace) -> int:
    """Show the job until the view is quit.

    Raises:
        UsageError: Nothing can be drawn here, or a flag has a value that cannot be used.
        SourceUnavailableError: torch is not installed.
    """
    from vramscope.engine.sampling.live import node_name
    from vramscope.tui.frame.launch import check_terminal

    from ..live import open_view, prepare_recording

    settings = read_settings(arguments)
    duration_s = _read_duration(arguments)
    size_bytes = _read_size(arguments)
    if find_spec("torch") is None:
        raise SourceUnavailableError(
            "the demo trains a small model, and torch is not installed here: pip install 'vramscope[train]'"
        )
    check_terminal(settings)
    demonstration = _prepare(size_bytes)

    def start_feed() -> "Feed":
        return demonstration.start(
            interval_s=settings.interval_s, memory_interval_s=settings.memory_interval_s
        )

    try:
        complain(demonstration.announcement, program="vramscope demo")
        code = open_view(
            start_feed,
            _shorten_history(settings),
            config=getattr(arguments, "config", None),
            local_node=node_name(),
            duration_s=duration_s,
            recording=prepare_recording(settings, demonstration.runtime_dir, is_private=True),
        )
    finally:
        status = demonstration.end()
    return _tell_end(demonstration, status) or code


def _shorten_history(settings: Settings) -> Settings:
    """Return settings whose graphs show no more than the story takes, unless less was set."""
    import msgspec

    return msgspec.structs.replace(settings, history_window_s=min(settings.history_window_s, HISTORY_S))


def _prepare(size_bytes: int | None) -> "Demonstration":
    from vramscope.engine.jobs.demonstration import Demonstration

    return Demonstration() if size_bytes is None else Demonstration(size_bytes)


def _tell_end(demonstration: "Demonstration", status: int | None) -> int:
    """Say what is left to look at; return 1 where the job had ended by itself, as it never should."""
    from vramscope.engine.files.flight_record import find_newest_flight_record

    record = find_newest_flight_record([demonstration.flight_folder])
    if record is not None:
        complain(f"why memory ran out: vramscope inspect {record}", program="vramscope demo")
    if status is None:
        return 0
    complain(f"the job ended with status {status}; its output is in {demonstration.output}")
    return 1


def _read_duration(arguments: Namespace) -> float | None:
    text = arguments.duration_of_demo
    if text is None:
        return None
    try:
        duration_s = parse_duration(text)
    except UsageError as error:
        raise UsageError(f"--duration {text}: {error}") from error
    if duration_s < 1:
        raise UsageError(f"--duration {text}: expected a second or more, for example 3m")
    return duration_s


def _read_size(arguments: Namespace) -> int | None:
    text = arguments.capacity
    if text is None:
        return None
    try:
        return parse_bytes(text)
    except UsageError as error:
        raise UsageError(f"--capacity {text}: {error}") from error
