"""`vramscope agent --relay`: its flags, and the process that passes nodes on."""

import os
from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from vramscope import __version__
from vramscope.engine.errors import UsageError

from .frame.diagnostics import complain
from .frame.flag_words import given_by
from .node_flags import add_node_flags, is_by_tcp, is_remote, take_node_flags
from .remote_flags import read_nodes

if TYPE_CHECKING:
    from argparse import _ArgumentGroup


def add_relay_flags(parser: ArgumentParser, elsewhere: "_ArgumentGroup") -> None:
    """Add the flags to the parser of the agent; they are not those of the view, which name what is drawn.

    Args:
        parser: Of the agent.
        elsewhere: Group of the flags that say who is let in.
    """
    elsewhere.add_argument(
        "--relay",
        action="store_true",
        help="sample nothing: follow the nodes that are named and pass them on, at --listen",
    )
    add_node_flags(parser, "nodes of a --relay", "relay")


def check_relay_flags(arguments: Namespace) -> None:
    """Refuse flags that say nothing to a relay, or nothing without one.

    Raises:
        UsageError: There are such.
    """
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
    """Pass nodes on until told to end.

    Raises:
        UsageError: A node is none, or it may not listen there.
        InputFileError: The file of hosts, or the keys, cannot be used.
        HubUnreachableError: A job has no nodes now, or Slurm does not answer.
    """
    from vramscope.engine.agent.resources import allow_many_descriptors
    from vramscope.engine.cluster.addresses import parse_listen_address
    from vramscope.engine.cluster.gate import prepare_listening
    from vramscope.engine.cluster.links import read_trust
    from vramscope.engine.relay.relay import Relay, stop_on_signals
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
