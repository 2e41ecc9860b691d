"""The flags by which a Prometheus server is viewed, and what they mean."""

import stat
import time
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from vramscope.engine.errors import InputFileError, UsageError
from vramscope.engine.units import parse_duration

if TYPE_CHECKING:
    from vramscope.engine.prometheus.server import ServerAddress

EPOCH_FROM_S = 1e9
"""Numbers from here on are seconds since the epoch, lesser ones a time ago."""
LIMIT_BYTES = 4096


def add_prometheus_flags(parser: ArgumentParser) -> None:
    """Add the flags to the parser of the view."""
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


def check_prometheus_flags(arguments: Namespace) -> None:
    """Refuse flags that say something of a server where none is named, or contradict each other.

    Raises:
        UsageError: They do.
    """
    if arguments.from_prometheus is None:
        for flag, value in (
            ("--from", arguments.past_from),
            ("--to", arguments.past_to),
            ("--auth-file", arguments.auth_file),
        ):
            if value is not None:
                raise UsageError(f"{flag} goes with --from-prometheus URL")
        return
    for flag in ("connect", "hosts", "ssh"):
        if getattr(arguments, flag, None) is not None:
            raise UsageError(f"--{flag} views agents, --from-prometheus a server: choose one of them")
    if arguments.past_to is not None and arguments.past_from is None:
        raise UsageError("--to: expected --from as well, the begin of the span")
    if arguments.past_from is not None and (arguments.once or arguments.duration is not None):
        raise UsageError(
            "--from shows the past, and goes with --json or the view: not with --once or --duration"
        )
    if arguments.duration is not None and (arguments.once or not arguments.json):
        raise UsageError("--duration goes with --json; the live view runs until you quit it")


def read_server(arguments: Namespace) -> "ServerAddress":
    """Return the server that is named.

    Raises:
        UsageError: The address is none.
        InputFileError: The file of the password cannot be used.
    """
    from vramscope.engine.prometheus.server import parse_server_url

    path = arguments.auth_file
    return parse_server_url(arguments.from_prometheus, None if path is None else _read_credentials(path))


def read_span(arguments: Namespace) -> tuple[float, float]:
    """Return the span of the past that is asked for, in seconds since the epoch.

    Raises:
        UsageError: A time is none, or the span is empty.
    """
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
