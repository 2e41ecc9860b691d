"""`vramscope record`: samples and findings of this node, written to a file."""

from argparse import SUPPRESS, ArgumentParser, Namespace
from pathlib import Path

from vramscope.engine.errors import UsageError
from vramscope.engine.units import MIB

from ..frame.emit import leave_now
from ..frame.flags import build_sampling_flags, duration, size
from ..frame.parse import SubParsers, add_verb
from ..frame.settings import read_settings

DESCRIPTION = "Record samples, findings, steps and events of this node into a file."
EXAMPLES = """\
vramscope record -o run.vscope
vramscope record -o run.vscope --duration 1h --interval 500ms
vramscope record -o node.vscope --rotate 1GiB --keep 7d
vramscope leak --input run.vscope"""
NOTES = """\
Where an agent runs (the live view starts one), it records what the agent sends, with the training processes.
Otherwise it samples the devices itself. If FILE exists and is a recording, it is continued."""
EXIT_CODES: dict[int | str, str] = {
    0: "recorded; also after Ctrl-C",
    2: "wrong flags, or a file that cannot be written",
    4: "no device or no driver library",
    5: "the driver is not loaded, or does not match its library",
    6: "no permission",
}


def register(subparsers: SubParsers, common: list[ArgumentParser]) -> None:
    parents = [build_sampling_flags(), *common]
    parser = add_verb(
        subparsers, parents, "record", DESCRIPTION, examples=EXAMPLES, notes=NOTES, exit_codes=EXIT_CODES
    )
    above_zero = duration(lambda seconds: seconds > 0, "a time above zero, for example 1h")
    parser.add_argument(
        "-o", "--output", metavar="FILE", type=Path, required=True, help="the recording to write"
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
        help="start a new file at this size: run.vscope, run.0001.vscope, ...",
    )
    parser.add_argument(
        "--keep",
        metavar="TIME",
        type=above_zero,
        help="with --rotate: delete files whose newest sample is older than this, for example 7d",
    )
    parser.add_argument(
        "--with-past", action="store_true", help="start with the last hour, which a running agent remembers"
    )
    parser.add_argument("--until-exit", metavar="PID", type=int, help="end when this process has ended")
    parser.add_argument("--until-job", metavar="NAME", help=SUPPRESS)
    parser.add_argument("--for-viewers", action="store_true", help=SUPPRESS)


def run(arguments: Namespace) -> int:
    from vramscope.engine.recording.follower import JobEnd

    from ..recorder import Recorder

    if arguments.keep is not None and arguments.rotate is None:
        raise UsageError("--keep deletes whole files and needs --rotate SIZE, for example --rotate 1GiB")
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
        leave_now(code)  # a thread hangs in the driver: a normal exit would wait for it
    return code
