"""`vramscope agent`: the hub without a viewer, for viewers that come and go; also as a relay."""

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


DESCRIPTION = "Sample and analyze this node in the background, for viewers here and on other machines."
EXAMPLES = """\
vramscope agent                                  # `vramscope` attaches to it
vramscope agent --listen '*:5757' --prometheus   # for other machines too
vramscope agent --relay --hosts nodes.txt --listen '*:5757'
vramscope agent --test-alert"""
EXIT_CODES: dict[int | str, str] = {
    0: "ended by a signal",
    1: "--test-alert: an alert was not delivered",
    2: "wrong flags or settings, or an agent runs already",
    4: "a package of an extra is not installed",
    6: "the runtime folder is not private",
}


def register(subparsers: SubParsers, common: list[ArgumentParser]) -> None:
    parents = [build_sampling_flags(), *common]
    parser = add_verb(subparsers, parents, "agent", DESCRIPTION, examples=EXAMPLES, exit_codes=EXIT_CODES)
    parser.add_argument(
        "--test-alert",
        action="store_true",
        help="send a test alert to the command and webhook of the settings, print the result and exit",
    )
    parser.add_argument(
        "--no-worker",
        action="store_true",
        help="run no analyzers here; `vramscope worker --connect` can run them elsewhere",
    )
    _add_elsewhere(parser)
    add_endpoint_flags(parser)
    # Set by a viewer or a job that starts an agent; people use `vramscope` and its verbs.
    parser.add_argument("--leave-with-viewers", action="store_true", help=SUPPRESS)
    parser.add_argument("--first-within", type=float, metavar="SECONDS", help=SUPPRESS)
    parser.add_argument("--linger", type=float, default=0.0, metavar="SECONDS", help=SUPPRESS)
    parser.add_argument(
        "--private-folder",
        action="store_true",
        help="remove the runtime folder at the end: it is this agent's alone, as the folder of a Slurm job",
    )
    parser.add_argument("--no-hooks", action="store_true", help=SUPPRESS)
    parser.add_argument("--replay", type=Path, help=SUPPRESS)
    add_replay_flags(parser, interval_flag="--replay-interval", is_hidden=True)


def _add_elsewhere(parser: ArgumentParser) -> None:
    """Add the flags of viewers on other machines, and of a relay."""
    elsewhere = parser.add_argument_group("viewers on other machines")
    elsewhere.add_argument(
        "--stdio",
        action="store_true",
        help="serve one viewer over standard input and output (started by --ssh)",
    )
    elsewhere.add_argument(
        "--listen",
        metavar="[ADDRESS:]PORT",
        nargs="?",
        const="",
        help="accept viewers by tcp (default 127.0.0.1:5757; *:5757 for every address); beyond loopback with "
        "keys, see `vramscope keys`",
    )
    add_relay_flags(parser, elsewhere)
    elsewhere.add_argument(
        "--insecure",
        action="store_true",
        help="beyond loopback, use no keys for --listen and the nodes of --relay, and no TLS for "
        "--prometheus and --otlp; everybody on the way can read",
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
            serving=settings.serving,
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
    """Serve the viewer that started this process through ssh, until it leaves."""
    from vramscope.engine.cluster.ssh import run_bridge
    from vramscope.engine.paths import locate_runtime_folder

    config = getattr(arguments, "config", None)
    named = () if config is None else ("--config", str(config.absolute()))
    intervals = ("--interval", str(settings.interval_s), "--memory-interval", str(settings.memory_interval_s))
    return run_bridge(locate_runtime_folder(), (*intervals, *named))


def _read_listening(arguments: Namespace) -> "Listening | None":
    """Return where the agent listens for other machines; None if it does not."""
    if arguments.listen is None:
        return None
    from vramscope.engine.cluster.addresses import parse_listen_address
    from vramscope.engine.cluster.gate import prepare_listening

    with given_by("--listen", arguments.listen):
        parse_listen_address(arguments.listen)
    return prepare_listening(arguments.listen, is_insecure=arguments.insecure)


def _read_exporter(arguments: Namespace) -> tuple[str, ...] | None:
    """Return the checked flags of the exporter that the agent starts; None without one."""
    from .exporter import read_outputs

    read_outputs(arguments)
    if arguments.prometheus is None and arguments.otlp is None:
        if arguments.insecure and arguments.listen is None:
            raise UsageError("--insecure needs --prometheus, --otlp or --listen")
        return None
    given = (
        (arguments.prometheus is not None, f"--prometheus={arguments.prometheus}"),
        (arguments.otlp is not None, f"--otlp={arguments.otlp}"),
        (arguments.dcgm_names, "--dcgm-names"),
        (arguments.insecure, "--insecure"),
    )
    flags = tuple(text for is_given, text in given if is_given)
    web_config = arguments.web_config
    return flags if web_config is None else (*flags, "--web-config", str(web_config.absolute()))


def _test_alert(settings: "AlertSettings") -> int:
    """Send a test alert to every hook and print the results; return 1 if one was not delivered."""
    from vramscope.engine.alerts.delivery import try_hooks
    from vramscope.engine.errors import UsageError
    from vramscope.engine.sampling.live import node_name

    statuses = try_hooks(settings, node_name(), __version__)
    if not statuses:
        raise UsageError("no hook is set: set alerts.command or alerts.webhook_url (docs/alerts.md)")
    for status in statuses:
        went = "delivered" if status.delivered else f"not delivered: {status.reason or 'it took too long'}"
        print(f"{status.name} {status.target}: {went}")
    return 0 if all(status.delivered for status in statuses) else 1


def add_relay_flags(parser: ArgumentParser, elsewhere: "_ArgumentGroup") -> None:
    """Add the flags of a relay; they have other names in the result than those of the view."""
    elsewhere.add_argument(
        "--relay",
        action="store_true",
        help="sample nothing; follow other nodes and pass them on at --listen",
    )
    add_node_flags(parser, "nodes of --relay", "relay")


def check_relay_flags(arguments: Namespace) -> None:
    """Refuse flags that a relay does not have, and flags that only a relay has."""
    has_nodes = is_remote(take_node_flags(arguments, "relay"))
    if not arguments.relay and has_nodes:
        raise UsageError("--connect, --hosts and --ssh need --relay: they name the nodes that it passes on")
    if not arguments.relay:
        return
    if not has_nodes:
        raise UsageError("--relay needs nodes to pass on: name them with --connect, --hosts or --ssh")
    if arguments.listen is None:
        raise UsageError("--relay needs a port for viewers: add --listen, for example --listen '*:5757'")
    exports = arguments.prometheus is not None or arguments.otlp is not None
    others = (arguments.test_alert, arguments.no_worker, arguments.stdio, exports)
    if any(others) or arguments.replay is not None:
        raise UsageError(
            "--relay does not go with --test-alert, --no-worker, --prometheus or --otlp: give these to the "
            "agents behind the relay"
        )


def run_relay(arguments: Namespace) -> int:
    """Pass nodes on until a signal ends it."""
    from vramscope.engine.agent.supervisor import allow_many_descriptors
    from vramscope.engine.cluster.addresses import parse_listen_address
    from vramscope.engine.cluster.gate import prepare_listening
    from vramscope.engine.cluster.relay import Relay, stop_on_signals
    from vramscope.engine.cluster.trust import read_trust
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
    complain(f"passing on {number} (process {os.getpid()}); press Ctrl-C to end", program="vramscope agent")
    complain(listening.words, program="vramscope agent")
    relay.run()
    return 0
