"""`vramscope record`: everything that is measured and concluded on this node, into a file."""

from argparse import SUPPRESS, ArgumentParser, Namespace, RawDescriptionHelpFormatter
from pathlib import Path

from vramscope.engine.errors import UsageError
from vramscope.engine.units import parse_bytes, parse_duration

from ..frame.configuration import read_settings
from ..frame.diagnostics import leave_now
from ..frame.parser_flags import build_sampling_flags
from ..frame.registry import SubParsers

SUMMARY = "record this node into a file, beside a viewer or alone"
DESCRIPTION = """\
Record this node into a file: samples, findings, steps and events. With an agent (or a viewer, which starts
one) it follows that one, training processes included; without, it samples the devices itself. A recording
that is there already is continued."""
EPILOG = """\
examples:
  vramscope record -o run.vscope
  vramscope record -o run.vscope --duration 1h --interval 500ms
  vramscope record -o node.vscope --rotate 1GiB --keep 7d
  vramscope leak --input run.vscope

exit codes: 0 recorded (Ctrl-C ends it), 2 usage, or a file that cannot be written, 4 no device or library,
5 driver not loaded or mismatch, 6 permission"""
LEAST_ROTATE_BYTES = 1 << 20


def register(subparsers: SubParsers, common: list[ArgumentParser]) -> None:
    """Add the verb's parser."""
    parser = subparsers.add_parser(
        "record",
        help=SUMMARY,
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=RawDescriptionHelpFormatter,
        parents=[build_sampling_flags(), *common],
        allow_abbrev=False,
    )
    parser.add_argument(
        "-o", "--output", metavar="FILE", type=Path, required=True, help="file to record into"
    )
    parser.add_argument(
        "--duration", dest="record_duration", metavar="TIME", help="end after this time, for example 1h"
    )
    parser.add_argument(
        "--rotate",
        metavar="SIZE",
        help="go on in another file at this size: run.vscope, run.0001.vscope, ...",
    )
    parser.add_argument(
        "--keep",
        metavar="TIME",
        help="with --rotate: delete files whose newest sample is older, for example 7d",
    )
    parser.add_argument(
        "--with-past", action="store_true", help="begin with the hour that the agent remembers, if one runs"
    )
    parser.add_argument("--until-exit", metavar="PID", type=int, help="end when this process has ended")
    parser.add_argument("--until-job", metavar="NAME", help=SUPPRESS)
    parser.add_argument("--for-viewers", action="store_true", help=SUPPRESS)


def run(arguments: Namespace) -> int:
    """Record until the time is up or Ctrl-C; return the exit code.

    Raises:
        UsageError: A flag makes no sense.
        OutputFileError: The file cannot be written.
        InputFileError: The file is there and is no recording.
    """
    from vramscope.engine.recording.follower import JobEnd

    from ..recorder import Recorder

    duration_s = _read_time("--duration", arguments.record_duration)
    keep_s = _read_time("--keep", arguments.keep)
    rotate_bytes = _read_rotate(arguments.rotate)
    if keep_s is not None and rotate_bytes is None:
        raise UsageError("--keep deletes whole files; give --rotate SIZE with it, for example --rotate 1GiB")
    pid = arguments.until_exit
    recorder = Recorder(
        arguments.output,
        read_settings(arguments),
        rotate_bytes=rotate_bytes,
        keep_s=keep_s,
        has_past=arguments.with_past,
        job_end=None if pid is None else JobEnd(pid, arguments.until_job),
        is_for_viewers=arguments.for_viewers,
    )
    code = recorder.run(duration_s)
    if recorder.has_held_calls:
        leave_now(code)  # a thread hangs in the driver: the interpreter's own way out would wait for it
    return code


def _read_time(flag: str, text: str | None) -> float | None:
    if text is None:
        return None
    try:
        seconds = parse_duration(text)
    except UsageError as error:
        raise UsageError(f"{flag} {text}: {error}") from error
    if seconds <= 0:
        raise UsageError(f"{flag} {text}: expected a time above zero, for example 1h")
    return seconds


def _read_rotate(text: str | None) -> int | None:
    if text is None:
        return None
    try:
        rotate_bytes = parse_bytes(text)
    except UsageError as error:
        raise UsageError(f"--rotate {text}: {error}") from error
    if rotate_bytes < LEAST_ROTATE_BYTES:
        raise UsageError(f"--rotate {text}: expected 1MiB or more, for example 1GiB")
    return rotate_bytes
