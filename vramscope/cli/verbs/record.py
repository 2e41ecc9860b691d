"""`vramscope record`: everything that is measured and concluded on this node, into a file."""

from argparse import SUPPRESS, ArgumentParser, Namespace
from pathlib import Path

from vramscope.engine.errors import UsageError
from vramscope.engine.units import MIB

from ..frame.emit import leave_now
from ..frame.flags import build_sampling_flags, duration, size
from ..frame.parse import SubParsers, add_verb
from ..frame.settings import read_settings

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


def register(subparsers: SubParsers, common: list[ArgumentParser]) -> None:
    parser = add_verb(subparsers, [build_sampling_flags(), *common], "record", SUMMARY, DESCRIPTION, EPILOG)
    above_zero = duration(lambda seconds: seconds > 0, "a time above zero, for example 1h")
    parser.add_argument(
        "-o", "--output", metavar="FILE", type=Path, required=True, help="file to record into"
    )
    parser.add_argument(
        "--duration",
        dest="record_duration",
        metavar="TIME",
        type=above_zero,
        help="end after this time, for example 1h",
    )
    parser.add_argument(
        "--rotate",
        metavar="SIZE",
        type=size(lambda size_bytes: size_bytes >= MIB, "1MiB or more, for example 1GiB"),
        help="go on in another file at this size: run.vscope, run.0001.vscope, ...",
    )
    parser.add_argument(
        "--keep",
        metavar="TIME",
        type=above_zero,
        help="with --rotate: delete files whose newest sample is older, for example 7d",
    )
    parser.add_argument(
        "--with-past", action="store_true", help="begin with the hour that the agent remembers, if one runs"
    )
    parser.add_argument("--until-exit", metavar="PID", type=int, help="end when this process has ended")
    parser.add_argument("--until-job", metavar="NAME", help=SUPPRESS)
    parser.add_argument("--for-viewers", action="store_true", help=SUPPRESS)


def run(arguments: Namespace) -> int:
    from vramscope.engine.recording.follower import JobEnd

    from ..recorder import Recorder

    if arguments.keep is not None and arguments.rotate is None:
        raise UsageError("--keep deletes whole files; give --rotate SIZE with it, for example --rotate 1GiB")
    pid = arguments.until_exit
    recorder = Recorder(
        arguments.output,
        read_settings(arguments),
        rotate_bytes=arguments.rotate,
        keep_s=arguments.keep,
        has_past=arguments.with_past,
        job_end=None if pid is None else JobEnd(pid, arguments.until_job),
        is_for_viewers=arguments.for_viewers,
    )
    code = recorder.run(arguments.record_duration)
    if recorder.has_held_calls:
        leave_now(code)  # a thread hangs in the driver: the interpreter's own way out would wait for it
    return code
