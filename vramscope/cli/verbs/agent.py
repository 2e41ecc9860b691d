"""`vramscope agent`: the hub alone, for viewers that come and go."""

from argparse import SUPPRESS, ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from vramscope import __version__

from ..frame.configuration import read_settings
from ..frame.flag_words import given_by
from ..frame.parser_flags import add_endpoint_flags, add_replay_flags, build_sampling_flags
from ..frame.registry import SubParsers
from ..relaying import add_relay_flags, check_relay_flags, run_relay

if TYPE_CHECKING:
    from vramscope.engine.cluster.gate import Listening
    from vramscope.engine.settings import AlertSettings, Settings

SUMMARY = "run the agent alone: it samples, analyzes and remembers until it is told to end"


def register(subparsers: SubParsers, common: list[ArgumentParser]) -> None:
    """Add the verb's parser."""
    parser = subparsers.add_parser(
        "agent",
        help=SUMMARY,
        description=f"{SUMMARY[0].upper()}{SUMMARY[1:]}. `vramscope` attaches to it and shows its history.",
        parents=[build_sampling_flags(), *common],
        allow_abbrev=False,
    )
    parser.add_argument(
        "--test-alert",
        action="store_true",
        help="send a test alert to the command and the webhook of the settings, say how that went, and leave",
    )
    parser.add_argument(
        "--no-worker",
        action="store_true",
        help="run no analyzers; `vramscope worker --connect` may",
    )
    _add_elsewhere(parser)
    add_endpoint_flags(parser)
    # What a viewer or a job tells the agent it starts; people use `vramscope` and its verbs.
    parser.add_argument("--leave-with-viewers", action="store_true", help=SUPPRESS)
    parser.add_argument("--first-within", type=float, metavar="SECONDS", help=SUPPRESS)
    parser.add_argument("--linger", type=float, default=0.0, metavar="SECONDS", help=SUPPRESS)
    parser.add_argument("--private-folder", action="store_true", help=SUPPRESS)
    parser.add_argument("--no-hooks", action="store_true", help=SUPPRESS)
    parser.add_argument("--replay", type=Path, help=SUPPRESS)
    add_replay_flags(parser, interval_flag="--replay-interval", is_hidden=True)


def _add_elsewhere(parser: ArgumentParser) -> None:
    """Add the flags by which others are let in, and by which a relay knows whom it passes on."""
    elsewhere = parser.add_argument_group("viewers elsewhere")
    elsewhere.add_argument(
        "--stdio",
        action="store_true",
        help="serve one viewer over standard input and output: what --ssh starts on a node",
    )
    elsewhere.add_argument(
        "--listen",
        metavar="[ADDRESS:]PORT",
        nargs="?",
        const="",
        help="let viewers elsewhere in by tcp (default 127.0.0.1:5757; *:5757 is every address), with keys "
        "beyond loopback: see `vramscope keys`",
    )
    add_relay_flags(parser, elsewhere)
    elsewhere.add_argument(
        "--insecure",
        action="store_true",
        help="beyond loopback: --listen and the nodes of a --relay without keys, --prometheus without TLS; "
        "readable by everybody between",
    )


def run(arguments: Namespace) -> int:
    """Serve until told to end."""
    from vramscope.engine.agent.agent import AgentOptions, run_agent
    from vramscope.engine.agent.supervisor import VIEWER_WITHIN_S
    from vramscope.engine.paths import locate_runtime_folder

    from ..frame.parser_flags import read_capacity, read_replay_interval, read_speed

    check_relay_flags(arguments)
    if arguments.relay:
        return run_relay(arguments)
    settings = read_settings(arguments)
    if arguments.stdio:
        return _serve_on_stdio(arguments, settings)
    if arguments.test_alert:
        return _test_alert(settings.alerts)
    return run_agent(
        AgentOptions(
            version=__version__,
            runtime_dir=locate_runtime_folder(),
            interval_s=settings.interval_s,
            memory_interval_s=settings.memory_interval_s,
            replay=arguments.replay,
            speed=read_speed(arguments),
            replay_interval_s=read_replay_interval(arguments) or 0.1,
            capacity_bytes=read_capacity(arguments),
            leaves_with_viewers=arguments.leave_with_viewers,
            first_within_s=VIEWER_WITHIN_S if arguments.first_within is None else arguments.first_within,
            linger_s=arguments.linger,
            is_folder_private=arguments.private_folder,
            has_worker=not arguments.no_worker,
            alerts=None if arguments.no_hooks else settings.alerts,
            exporter_arguments=_read_exporter(arguments),
            listening=_read_listening(arguments),
        )
    )


def _serve_on_stdio(arguments: Namespace, settings: "Settings") -> int:
    """Serve a viewer elsewhere that has started this process through ssh, until it leaves."""
    from vramscope.engine.cluster.ssh import run_bridge
    from vramscope.engine.paths import locate_runtime_folder

    config = getattr(arguments, "config", None)
    named = () if config is None else ("--config", str(config.absolute()))
    intervals = ("--interval", str(settings.interval_s), "--memory-interval", str(settings.memory_interval_s))
    return run_bridge(locate_runtime_folder(), (*intervals, *named))


def _read_listening(arguments: Namespace) -> "Listening | None":
    """Return where the agent listens beyond its folder; None for nowhere.

    Raises:
        UsageError: It may not listen there.
        InputFileError: The keys cannot be used.
    """
    if arguments.listen is None:
        return None
    from vramscope.engine.cluster.addresses import parse_listen_address
    from vramscope.engine.cluster.gate import prepare_listening

    with given_by("--listen", arguments.listen):
        parse_listen_address(arguments.listen)
    return prepare_listening(arguments.listen, is_insecure=arguments.insecure)


def _read_exporter(arguments: Namespace) -> tuple[str, ...] | None:
    """Return the flags of the exporter that the agent starts, found to be sound; None where there is none.

    Raises:
        UsageError: They cannot be used, or there is nothing that they could protect.
        InputFileError: The web configuration cannot be used.
    """
    from vramscope.engine.errors import UsageError

    flags = ("--insecure",) if arguments.insecure else ()
    if arguments.prometheus is None:
        if arguments.web_config is not None or (flags and arguments.listen is None):
            raise UsageError("--web-config goes with --prometheus, --insecure with that or with --listen")
        return None
    from vramscope.exporters.prometheus.endpoint import read_endpoint_options

    read_endpoint_options(arguments.prometheus, arguments.web_config, is_insecure=arguments.insecure)
    if arguments.web_config is not None:
        flags = (*flags, "--web-config", str(arguments.web_config.absolute()))
    return (f"--prometheus={arguments.prometheus}", *flags)


def _test_alert(settings: "AlertSettings") -> int:
    """Try every hook out and say how it went; return 1 where one did not take the alert.

    Raises:
        UsageError: There is no hook to try.
    """
    from vramscope.engine.alerts.delivery import try_hooks
    from vramscope.engine.errors import UsageError
    from vramscope.engine.sampling.live import node_name

    statuses = try_hooks(settings, node_name(), __version__)
    if not statuses:
        raise UsageError("there is no hook to try: set alerts.command or alerts.webhook_url (docs/alerts.md)")
    for status in statuses:
        went = "delivered" if status.delivered else f"not delivered: {status.reason or 'it took too long'}"
        print(f"{status.name} {status.target}: {went}")
    return 0 if all(status.delivered for status in statuses) else 1
