"""The program without a verb: the view of this node, of other nodes, or of a Prometheus server; its flags."""

import stat
import time
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from vramscope.engine.errors import InputFileError, UsageError
from vramscope.engine.units import parse_duration

from .frame.flags import pick, refuse
from .frame.help import Page
from .nodes import add_choice_flags, add_node_flags, check_node_flags, is_by_tcp, is_remote

if TYPE_CHECKING:
    from vramscope.engine.prometheus.server import ServerAddress

DESCRIPTION = "Live GPU memory in the terminal: will this job run out of memory, when and why."
USAGE = "vramscope [VERB] [flags]"
PAGE = Page(
    examples="""\
vramscope                          # watch the GPUs of this machine
vramscope run -- python train.py   # start a job so that its steps show
vramscope demo                     # watch a job run out of memory, no GPU""",
    notes="more: vramscope help VERB | flags",
    exit_codes={
        0: "done",
        1: "internal error",
        2: "wrong flags, or a file that cannot be read",
        3: "a finding reached --fail-on",
        4: "no device or no driver library",
        5: "the driver is not loaded, or does not match its library",
        6: "no permission",
        7: "the agent cannot be reached",
        130: "interrupted by Ctrl-C",
    },
)
SETTINGS = (
    "Settings come from a flag, then from a VRAMSCOPE_* variable, then from ./vramscope.toml, then from "
    "config.toml of the user."
)
# Larger numbers are seconds since the epoch, smaller ones seconds ago.
EPOCH_FROM_S = 1e9
LIMIT_BYTES = 4096


def add_flags(parser: ArgumentParser) -> None:
    output = parser.add_argument_group("output without a screen")
    output.add_argument("--once", action="store_true", help="print the state of this node once and exit")
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
        help="follow the nodes of a Prometheus server",
    )
    group.add_argument(
        "--from",
        dest="past_from",
        metavar="TIME",
        help="show the past from this time on: '2h ago' or 2026-01-31T10:00",
    )
    group.add_argument("--to", dest="past_to", metavar="TIME", help="end of the past shown (default: now)")
    group.add_argument(
        "--auth-file", metavar="FILE", type=Path, help="file with user:password for the server, mode 0600"
    )
    nodes = add_node_flags(parser, "other nodes")
    add_choice_flags(parser)
    nodes.add_argument(
        "--insecure",
        action="store_true",
        help="use no keys beyond this machine; everybody on the way can read",
    )


def show_view(arguments: Namespace) -> int:
    """Show the live view, or print what the flags ask for, and return the exit code."""
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
        raise UsageError("--duration needs --json; the live view runs until you quit it")
    from .live import show_live

    return show_live(arguments)


def refuse_with_verb(arguments: Namespace) -> None:
    """Refuse flags of the view before a verb."""
    for flag in ("once", "duration"):
        if getattr(arguments, flag):
            raise UsageError(f"--{flag} shows this node and does not go with the verb {arguments.verb}")
    if arguments.from_prometheus is not None:
        raise UsageError(f"--from-prometheus opens a view and does not go with the verb {arguments.verb}")
    check_prometheus_flags(arguments)
    check_remote_flags(arguments)


def check_remote_flags(arguments: Namespace) -> None:
    """Refuse flags of other nodes that conflict with each other or with a verb."""
    if arguments.verb is not None and is_remote(arguments):
        raise UsageError(
            f"--connect, --hosts, --ssh and --slurm open a view and do not go with the verb {arguments.verb}"
        )
    if is_remote(arguments) and arguments.duration is not None and not arguments.json:
        raise UsageError("--duration needs --json; the live view runs until you quit it")
    if arguments.verb is None and arguments.insecure and not is_by_tcp(arguments):
        raise UsageError("--insecure needs --connect, --hosts or --slurm")
    check_node_flags(arguments)


def check_prometheus_flags(arguments: Namespace) -> None:
    """Refuse flags of a Prometheus server where none is named, and flags that contradict each other."""
    if arguments.from_prometheus is None:
        given = {"--from": arguments.past_from, "--to": arguments.past_to, "--auth-file": arguments.auth_file}
        refuse(given, "needs --from-prometheus URL")
        return
    refuse(
        pick(arguments, ("connect", "hosts", "ssh")),
        "follows agents and --from-prometheus follows a server: give only one of them",
    )
    if arguments.past_to is not None and arguments.past_from is None:
        raise UsageError("--to needs --from, the beginning of the past to show")
    if arguments.past_from is not None and (arguments.once or arguments.duration is not None):
        raise UsageError(
            "--from shows the past and does not go with --once or --duration: use the view or --json"
        )
    if arguments.duration is not None and (arguments.once or not arguments.json):
        raise UsageError("--duration needs --json; the live view runs until you quit it")


def read_server(arguments: Namespace) -> "ServerAddress":
    from vramscope.engine.prometheus.server import parse_server_url

    path = arguments.auth_file
    return parse_server_url(arguments.from_prometheus, None if path is None else _read_credentials(path))


def read_span(arguments: Namespace) -> tuple[float, float]:
    """Return beginning and end of the past to show, in seconds since the epoch."""
    now_s = time.time()
    start_s = _read_moment("--from", arguments.past_from, now_s)
    end_s = now_s if arguments.past_to is None else _read_moment("--to", arguments.past_to, now_s)
    if end_s <= start_s:
        end = "now" if arguments.past_to is None else f"--to {arguments.past_to}"
        raise UsageError(f"--from {arguments.past_from}: expected a time before {end}")
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
    """Return the `user:password` of a file that only its owner can read; no error repeats it."""
    from vramscope.engine.files.base.input_file import read_input_file, show_path

    data = read_input_file(path, LIMIT_BYTES)
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & 0o077:
        raise InputFileError(
            f"{show_path(path)}: others can read this file (mode {mode:04o}); run chmod 600 on it"
        )
    try:
        text = data.decode().strip()
    except UnicodeDecodeError:
        text = ""
    if ":" not in text or "\n" in text:
        raise InputFileError(f"{show_path(path)}: expected one line, user:password")
    return text
