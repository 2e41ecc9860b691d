"""`vramscope agent --relay`: its flags, and the process that passes nodes on."""

import os
from argparse import ArgumentParser, Namespace
from pathlib import Path

from vramscope import __version__
from vramscope.engine.errors import UsageError

from .diagnostics import complain
from .remote_flags import read_nodes


def add_relay_flags(parser: ArgumentParser) -> None:
    """Add the flags to the parser of the agent; they are not those of the view, which name what is drawn."""
    group = parser.add_argument_group("relay")
    group.add_argument(
        "--relay",
        action="store_true",
        help="sample nothing: follow the nodes that are named and pass them on, at --listen",
    )
    group.add_argument(
        "--connect",
        dest="relay_connect",
        metavar="HOST[:PORT],…",
        help="with --relay: agents, and other relays, that listen there",
    )
    group.add_argument(
        "--hosts", dest="relay_hosts", metavar="FILE", type=Path, help="with --relay: the hosts of a file"
    )
    group.add_argument(
        "--ssh", dest="relay_ssh", metavar="[USER@]HOST,…", help="with --relay: nodes through your own ssh"
    )
    group.add_argument(
        "--ssh-command",
        dest="relay_ssh_command",
        metavar="PATH",
        help="with --ssh: what starts vramscope there (VRAMSCOPE_SSH_COMMAND)",
    )


def check_relay_flags(arguments: Namespace) -> None:
    """Refuse flags that say nothing to a relay, or nothing without one.

    Raises:
        UsageError: There are such.
    """
    nodes = (arguments.relay_connect, arguments.relay_hosts, arguments.relay_ssh)
    has_nodes = any(it is not None for it in nodes)
    if not arguments.relay and has_nodes:
        raise UsageError("--connect, --hosts and --ssh of an agent name the nodes that a --relay passes on")
    if arguments.relay_ssh_command is not None and arguments.relay_ssh is None:
        raise UsageError("--ssh-command goes with --ssh")
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
    """Pass nodes on until told to end.

    Raises:
        UsageError: A node is none, or it may not listen there.
        InputFileError: The file of hosts, or the keys, cannot be used.
    """
    from vramscope.engine.cluster.descriptors import allow_many_descriptors
    from vramscope.engine.cluster.listening import prepare_listening
    from vramscope.engine.cluster.trust import read_trust
    from vramscope.engine.relay.relay import Relay, stop_on_signals
    from vramscope.engine.sampling.node import node_name

    addresses = read_nodes(_name_nodes(arguments))
    is_by_tcp = arguments.relay_connect is not None or arguments.relay_hosts is not None
    trust = read_trust(is_insecure=arguments.insecure or not is_by_tcp)
    listening = prepare_listening(arguments.listen, is_insecure=arguments.insecure)
    allow_many_descriptors()
    relay = Relay(addresses, trust, listening, name=node_name(), version=__version__)
    stop_on_signals(relay)
    number = "one node" if len(addresses) == 1 else f"{len(addresses)} nodes"
    complain(f"passing on {number} (process {os.getpid()}); Ctrl-C ends it", program="vramscope agent")
    complain(listening.words, program="vramscope agent")
    relay.run()
    return 0


def _name_nodes(arguments: Namespace) -> Namespace:
    """Return the flags as those of the view, of which they have the meaning."""
    return Namespace(
        connect=arguments.relay_connect,
        hosts=arguments.relay_hosts,
        ssh=arguments.relay_ssh,
        ssh_command=arguments.relay_ssh_command,
        slurm=None,
        by_ssh=False,
        slurm_port=None,
    )
