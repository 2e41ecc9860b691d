"""The program without a verb: the view of this node, of other nodes, or of a Prometheus server; its flags."""

import stat
import time
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from vramscope.engine.errors import InputFileError, UsageError
from vramscope.engine.units import parse_duration

from .frame.flags import pick, refuse
from .nodes import add_choice_flags, add_node_flags, check_node_flags, is_by_tcp, is_remote

if TYPE_CHECKING:
    from vramscope.engine.prometheus.server import ServerAddress

DESCRIPTION = """\
Live GPU memory in the terminal: will this job run out of memory, when, why, and what to do.
Without a verb: the live view of this node."""

EPILOG = """\
exit codes: 0 fine, 1 internal error, 2 usage or bad input, 3 findings at --fail-on, 4 no device or
library, 5 driver not loaded or mismatch, 6 permission, 7 agent unreachable, 130 interrupted
settings: flag, then VRAMSCOPE_* variable, then ./vramscope.toml, then the user's config.toml"""
EPOCH_FROM_S = 1e9
"""Numbers from here on are seconds since the epoch, lesser ones a time ago."""
LIMIT_BYTES = 4096


def add_flags(parser: ArgumentParser) -> None:
    """Add the flags of the program to those that verbs share."""
    output = parser.add_argument_group("headless output")
    output.add_argument("--once", action="store_true", help="print the state of this node once and leave")
    output.add_argument(
        "--json", action="store_true", help="print one JSON object a line (vramscope.status/1)"
    )
    output.add_argument(
        "--duration", metavar="TIME", help="with --json: stop after this time, for example 10m"
    )
    group = parser.add_argument_group("Prometheus")
    group.add_argument(
        "--from-prometheus",
        metavar="URL",
        help="view the nodes that a Prometheus server scrapes: vramscope agents, dcgm-exporter, "
        "nvidia_gpu_exporter",
    )
    group.add_argument(
        "--from", dest="past_from", metavar="TIME", help="its past from then on: 2h ago, 2026-01-31T10:00"
    )
    group.add_argument("--to", dest="past_to", metavar="TIME", help="until then (default now)")
    group.add_argument("--auth-file", metavar="FILE", type=Path, help="file of mode 0600 with user:password")
    nodes = add_node_flags(parser, "other nodes")
    add_choice_flags(parser)
    nodes.add_argument(
        "--insecure", action="store_true", help="beyond this machine: without keys, open to everybody between"
    )


def show_view(arguments: Namespace) -> int:
    """Show or print what the words ask for, and return the exit code."""
    check_prometheus_flags(arguments)
    check_remote_flags(arguments)
    if arguments.from_prometheus is not None:
        from .prometheus_view import show_prometheus

        return show_prometheus(arguments)
    if is_remote(arguments):
        from .remote_view import show_remote

        return show_remote(arguments)
    if arguments.once or arguments.json:
        from .status import show_status

        show_status(arguments)
    if arguments.duration is not None:
        raise UsageError("--duration goes with --json; the live view runs until you quit it")
    from .live import show_live

    return show_live(arguments)


def refuse_with_verb(arguments: Namespace) -> None:
    """Refuse flags of the view before a verb."""
    for flag in ("once", "duration"):
        if getattr(arguments, flag):
            raise UsageError(f"--{flag} shows this node and does not go with the verb {arguments.verb}")
    if arguments.from_prometheus is not None:
        raise UsageError(f"--from-prometheus is a view and does not go with the verb {arguments.verb}")
    check_prometheus_flags(arguments)
    check_remote_flags(arguments)


def check_remote_flags(arguments: Namespace) -> None:
    """Refuse flags that do not go with one another, or with a verb."""
    if arguments.verb is not None and is_remote(arguments):
        raise UsageError(
            f"--connect, --hosts, --ssh and --slurm are views and do not go with the verb {arguments.verb}"
        )
    if is_remote(arguments) and arguments.duration is not None and not arguments.json:
        raise UsageError("--duration goes with --json; the live view runs until you quit it")
    if arguments.verb is None and arguments.insecure and not is_by_tcp(arguments):
        raise UsageError("--insecure goes with --connect, --hosts or --slurm")
    check_node_flags(arguments)


def check_prometheus_flags(arguments: Namespace) -> None:
    """Refuse flags that say something of a server where none is named, or contradict each other."""
    if arguments.from_prometheus is None:
        given = {"--from": arguments.past_from, "--to": arguments.past_to, "--auth-file": arguments.auth_file}
        refuse(given, "goes with --from-prometheus URL")
        return
    refuse(
        pick(arguments, ("connect", "hosts", "ssh")),
        "views agents, --from-prometheus a server: choose one of them",
    )
    if arguments.past_to is not None and arguments.past_from is None:
        raise UsageError("--to: expected --from as well, the begin of the span")
    if arguments.past_from is not None and (arguments.once or arguments.duration is not None):
        raise UsageError(
            "--from shows the past, and goes with --json or the view: not with --once or --duration"
        )
    if arguments.duration is not None and (arguments.once or not arguments.json):
        raise UsageError("--duration goes with --json; the live view runs until you quit it")


def read_server(arguments: Namespace) -> "ServerAddress":
    from vramscope.engine.prometheus.server import parse_server_url

    path = arguments.auth_file
    return parse_server_url(arguments.from_prometheus, None if path is None else _read_credentials(path))


def read_span(arguments: Namespace) -> tuple[float, float]:
    """Return the span of the past that is asked for, in seconds since the epoch."""
    now_s = time.time()
    start_s = _read_moment("--from", arguments.past_from, now_s)
    end_s = now_s if arguments.past_to is None else _read_moment("--to", arguments.past_to, now_s)
    if end_s <= start_s:
        raise UsageError(f"--from {arguments.past_from}: is not before the end of the span")
    return start_s, end_s


def _read_moment(flag: str, text: str, now_s: float) -> float:
    from datetime import datetime

    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError):
        pass
    try:
        seconds = parse_duration(text.removesuffix("ago").strip())
    except UsageError:
        raise UsageError(
            f"{flag} {text}: expected a time ago such as 2h, a date and time such as 2026-01-31T10:00, or "
            "seconds since 1970"
        ) from None
    return seconds if seconds >= EPOCH_FROM_S else now_s - seconds


def _read_credentials(path: Path) -> str:
    """Return the `user:password` of a file that nobody else can read; no error repeats it."""
    from vramscope.engine.files.base.input_file import read_input_file, show_path

    data = read_input_file(path, LIMIT_BYTES)
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & 0o077:
        raise InputFileError(f"{show_path(path)}: is open to others (mode {mode:04o}); run chmod 600 on it")
    try:
        text = data.decode().strip()
    except UnicodeDecodeError:
        text = ""
    if ":" not in text or "\n" in text:
        raise InputFileError(f"{show_path(path)}: expected one line, user:password")
    return text
