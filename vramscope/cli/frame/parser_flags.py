"""Flags that several verbs have, as parent parsers; what is not given is not set."""

from argparse import SUPPRESS, ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from vramscope.engine.errors import UsageError
from vramscope.engine.settings.model import list_choices
from vramscope.engine.units import parse_bytes, parse_duration

from .diagnostics import EXIT_FINDINGS

if TYPE_CHECKING:
    from argparse import _ArgumentGroup

MIN_SPEED = 0.001
MAX_SPEED = 10_000.0


def build_common_flags() -> ArgumentParser:
    """Return the flags that every verb has, as a parent parser."""
    flags = ArgumentParser(add_help=False, argument_default=SUPPRESS, allow_abbrev=False)
    group = flags.add_argument_group("settings")
    group.add_argument("--config", metavar="FILE", type=Path, help="read this settings file and no other")
    group.add_argument(
        "--runtime-dir", metavar="DIR", type=Path, help="private folder of the agent and its viewers"
    )
    return flags


def build_sampling_flags() -> ArgumentParser:
    """Return the flags of verbs that sample devices, as a parent parser."""
    flags = ArgumentParser(add_help=False, argument_default=SUPPRESS, allow_abbrev=False)
    group = flags.add_argument_group("sampling")
    group.add_argument("--interval", metavar="TIME", help="from one sample to the next (default 1s)")
    group.add_argument(
        "--memory-interval",
        metavar="TIME",
        help="from one reading of device memory to the next; least and most are kept (default 100ms)",
    )
    return flags


def build_look_flags() -> ArgumentParser:
    """Return the flags of verbs that draw, as a parent parser."""
    flags = ArgumentParser(add_help=False, argument_default=SUPPRESS, allow_abbrev=False)
    _add_look(flags.add_argument_group("view"))
    return flags


def build_view_flags() -> ArgumentParser:
    """Return the flags of verbs that open the live view, as a parent parser."""
    flags = ArgumentParser(add_help=False, argument_default=SUPPRESS, allow_abbrev=False)
    group = flags.add_argument_group("view")
    _add_look(group)
    add_read_only_flag(group)
    group.add_argument("--sort", choices=list_choices("sort"), help="sort processes by this column")
    return flags


def add_read_only_flag(group: "ArgumentParser | _ArgumentGroup") -> None:
    """Add the flag that refuses what changes something, also to verbs that would do nothing else."""
    group.add_argument(
        "--read-only",
        action="store_true",
        default=SUPPRESS,
        help="change nothing: send no signal, attach to nothing, give no advice",
    )


def _add_look(group: "_ArgumentGroup") -> None:
    group.add_argument("--theme", choices=list_choices("theme"), help="colours of the screens")
    group.add_argument("--ascii", action="store_true", help="draw with ASCII characters only")
    group.add_argument("--color", action="store_true", help="print in colour even into a pipe")
    group.add_argument("--no-color", dest="color", action="store_false", help="print without colour")


def add_replay_flags(parser: ArgumentParser, *, interval_flag: str, is_hidden: bool = False) -> None:
    """Add the flags of a replay to a verb.

    Args:
        parser: Parser of the verb.
        interval_flag: Name of the flag for the interval in the trace.
        is_hidden: Keep them out of the help.
    """
    flags = (
        ("--speed", "speed", "N", "1", "times as fast as it was recorded (default 1)"),
        ("--capacity", "capacity", "SIZE", None, "memory of the recorded devices, for example 80GiB"),
        (
            interval_flag,
            "replay_interval",
            "TIME",
            None,
            "from one sample to the next, in time of what is played (default: as it is; 100ms of traces)",
        ),
    )
    for flag, name, metavar, default, text in flags:
        parser.add_argument(
            flag, dest=name, metavar=metavar, default=default, help=SUPPRESS if is_hidden else text
        )


def add_endpoint_flags(parser: ArgumentParser, *, default: str | None = None) -> "_ArgumentGroup":
    """Add the flags of verbs that serve Prometheus, but for `--insecure`; return their group.

    Args:
        parser: Parser of the verb.
        default: What `--prometheus` is where it is not given; None for no endpoint.
    """
    group = parser.add_argument_group("Prometheus")
    group.add_argument(
        "--prometheus",
        metavar="ADDRESS:PORT",
        nargs="?",
        const="",
        default=default,
        help="serve /metrics (default 127.0.0.1:9464; :PORT is loopback too)",
    )
    group.add_argument(
        "--web-config",
        metavar="FILE",
        type=Path,
        help="web configuration of Prometheus's exporters: TLS certificate, passwords",
    )
    return group


def add_fit_flag(group: "_ArgumentGroup") -> None:
    """Add the flag of verbs that say whether something fits into a card."""
    group.add_argument(
        "--fail-on", choices=("unfit",), help="exit with 3 where it does not fit (otherwise that is 0)"
    )


def choose_fit_code(arguments: Namespace, *, does_fit: bool | None) -> int:
    """Return the exit code of an answer to whether something fits: 3 for no under `--fail-on unfit`, else 0.

    Args:
        arguments: Of a verb with `add_fit_flag`.
        does_fit: The answer; None where it is not known.
    """
    return EXIT_FINDINGS if does_fit is False and arguments.fail_on is not None else 0


def read_speed(arguments: Namespace) -> float:
    """Return the speed of a replay.

    Raises:
        UsageError: It is no number, or out of range.
    """
    text = str(arguments.speed).removesuffix("x")
    try:
        speed = float(text)
    except ValueError:
        speed = 0.0
    if not MIN_SPEED <= speed <= MAX_SPEED:
        raise UsageError(f"--speed {arguments.speed}: expected a number from {MIN_SPEED:g} to {MAX_SPEED:g}")
    return speed


def read_capacity(arguments: Namespace) -> int | None:
    """Return the capacity of the recorded devices in bytes, or None where none was given.

    Raises:
        UsageError: It is not a size.
    """
    if arguments.capacity is None:
        return None
    try:
        capacity_bytes = parse_bytes(arguments.capacity)
    except UsageError as error:
        raise UsageError(f"--capacity {arguments.capacity}: {error}") from error
    if capacity_bytes == 0:
        raise UsageError("--capacity 0: expected a size above zero, for example 80GiB")
    return capacity_bytes


def read_replay_interval(arguments: Namespace) -> float | None:
    """Return the seconds of what is played from one sample to the next, or None where none were given.

    Raises:
        UsageError: It is not a duration.
    """
    if arguments.replay_interval is None:
        return None
    try:
        return parse_duration(arguments.replay_interval)
    except UsageError as error:
        raise UsageError(f"--interval {arguments.replay_interval}: {error}") from error
