"""`vramscope agent`: the hub alone, for viewers that come and go."""

import os
from argparse import SUPPRESS, ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from vramscope import __version__
from vramscope.engine.errors import UsageError

from ..frame.emit import complain
from ..frame.flags import add_endpoint_flags, add_replay_flags, build_sampling_flags, given_by
from ..frame.parse import SubParsers, add_verb
from ..frame.settings import read_settings
from ..nodes import add_node_flags, is_by_tcp, is_remote, read_nodes, take_node_flags

if TYPE_CHECKING:
    from argparse import _ArgumentGroup

    from vramscope.engine.cluster.gate import Listening
    from vramscope.engine.settings import AlertSettings, Settings


SUMMARY = "run the agent alone: it samples, analyzes and remembers until it is told to end"


def register(subparsers: SubParsers, common: list[ArgumentParser]) -> None:
    parser = add_verb(
        subparsers,
        [build_sampling_flags(), *common],
        "agent",
        SUMMARY,
        f"{SUMMARY[0].upper()}{SUMMARY[1:]}. `vramscope` attaches to it and shows its history.",
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
    from vramscope.engine.agent.agent import AgentOptions, run_agent
    from vramscope.engine.agent.supervisor import VIEWER_WITHIN_S
    from vramscope.engine.paths import locate_runtime_folder

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
            speed=arguments.speed,
            replay_interval_s=arguments.replay_interval or 0.1,
            capacity_bytes=arguments.capacity,
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
    """Return where the agent listens beyond its folder; None for nowhere."""
    if arguments.listen is None:
        return None
    from vramscope.engine.cluster.addresses import parse_listen_address
    from vramscope.engine.cluster.gate import prepare_listening

    with given_by("--listen", arguments.listen):
        parse_listen_address(arguments.listen)
    return prepare_listening(arguments.listen, is_insecure=arguments.insecure)


def _read_exporter(arguments: Namespace) -> tuple[str, ...] | None:
    """Return the checked flags of the exporter that the agent starts; None without one."""
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
    """Try every hook out and say how it went; return 1 where one did not take the alert."""
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


def add_relay_flags(parser: ArgumentParser, elsewhere: "_ArgumentGroup") -> None:
    """Add the flags to the parser of the agent; they are not those of the view, which name what is drawn."""
    elsewhere.add_argument(
        "--relay",
        action="store_true",
        help="sample nothing: follow the nodes that are named and pass them on, at --listen",
    )
    add_node_flags(parser, "nodes of a --relay", "relay")


def check_relay_flags(arguments: Namespace) -> None:
    """Refuse flags that say nothing to a relay, or nothing without one."""
    has_nodes = is_remote(take_node_flags(arguments, "relay"))
    if not arguments.relay and has_nodes:
        raise UsageError("--connect, --hosts and --ssh of an agent name the nodes that a --relay passes on")
    if not arguments.relay:
        return
    if not has_nodes:
        raise UsageError("a relay needs nodes to pass on: name them with --connect, --hosts or --ssh")
    if arguments.listen is None:
        raise UsageError("a relay needs a port where viewers come in: name it with --listen, as '*:5757'")
    others = (arguments.test_alert, arguments.no_worker, arguments.stdio, arguments.prometheus is not None)
    if any(others) or arguments.replay is not None:
        raise UsageError(
            "--relay samples and analyzes nothing itself: --test-alert, --no-worker and --prometheus are for "
            "the agents behind it"
        )


def run_relay(arguments: Namespace) -> int:
    """Pass nodes on until told to end."""
    from vramscope.engine.agent.supervisor import allow_many_descriptors
    from vramscope.engine.cluster.addresses import parse_listen_address
    from vramscope.engine.cluster.gate import prepare_listening
    from vramscope.engine.cluster.links import read_trust
    from vramscope.engine.cluster.relay import Relay, stop_on_signals
    from vramscope.engine.sampling.live import node_name

    named = take_node_flags(arguments, "relay")
    addresses = read_nodes(named)
    trust = read_trust(is_insecure=arguments.insecure or not is_by_tcp(named))
    with given_by("--listen", arguments.listen):
        parse_listen_address(arguments.listen)
    listening = prepare_listening(arguments.listen, is_insecure=arguments.insecure)
    allow_many_descriptors()
    relay = Relay(addresses, trust, listening, name=node_name(), version=__version__)
    stop_on_signals(relay)
    number = "one node" if len(addresses) == 1 else f"{len(addresses)} nodes"
    complain(f"passing on {number} (process {os.getpid()}); Ctrl-C ends it", program="vramscope agent")
    complain(listening.words, program="vramscope agent")
    relay.run()
    return 0
