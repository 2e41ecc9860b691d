"""Giving an advice to a process of this node or of another one, and waiting for its answer."""

import os
from argparse import Namespace
from typing import TYPE_CHECKING

from vramscope.engine.errors import HubUnreachableError, UsageError

if TYPE_CHECKING:
    from vramscope.engine.bus.messages import Advised
    from vramscope.engine.cluster.hosts import NodeAddress
    from vramscope.engine.cluster.nodes_watch import NodesWatch
    from vramscope.engine.cluster.trust import Trust

MOST_NAMED = 8


def advise_here(arguments: Namespace, within_s: float) -> "Advised":
    """Advise a process of this node and return its answer.

    Raises:
        UsageError: No such process reports, it takes no advice, or no step ended in time.
        HubUnreachableError: No agent runs here, or it does not answer.
    """
    from vramscope.engine.bus.client import connect

    with connect() as client:
        return client.advise_and_wait(
            arguments.pid, arguments.action, reason=arguments.reason, step_end_within_s=within_s
        )


def advise_elsewhere(arguments: Namespace, within_s: float) -> "Advised":
    """Advise a process of the node that is named, by one of the flags, and return its answer.

    Raises:
        UsageError: It is no node or more than one, or as `advise_here`, or this user may not.
        InputFileError: The keys cannot be used.
        HubUnreachableError: The node is not reached, or does not answer.
    """
    from vramscope.engine.bus.questions import read_advised
    from vramscope.engine.cluster.nodes_watch import NodesWatch

    address, trust = _find_node(arguments)
    watch = NodesWatch([address], trust, most_in_full=1)
    try:
        name = _reach(watch, address.label, arguments.node)
        picture = watch.nodes[name].picture
        number = picture.advise(
            arguments.pid, arguments.action, reason=arguments.reason, step_end_within_s=within_s
        )
        while (advised := read_advised(picture.newest, number)) is None:
            _turn(watch, name)
        return advised
    finally:
        watch.close()


def _find_node(arguments: Namespace) -> "tuple[NodeAddress, Trust]":
    """Return the node that is named, and the keys for it; ssh has keys of its own."""
    from vramscope.engine.cluster.hosts import parse_hosts
    from vramscope.engine.cluster.ssh_host import DEFAULT_COMMAND, parse_ssh_hosts
    from vramscope.engine.cluster.trust import read_trust

    nodes: list[NodeAddress] = [] if arguments.hub is None else [*parse_hosts(arguments.hub)]
    command = os.environ.get("VRAMSCOPE_SSH_COMMAND") or DEFAULT_COMMAND
    nodes += [] if arguments.ssh_host is None else parse_ssh_hosts(arguments.ssh_host, command)
    if len(nodes) != 1:
        raise UsageError(f"{len(nodes)} nodes are named: a process is of one node, so name that alone")
    return nodes[0], read_trust(is_insecure=arguments.hub is None)


def _reach(watch: "NodesWatch", label: str, behind: str | None) -> str:
    """Return the name of the node, once it has answered.

    Args:
        watch: Follows it.
        label: Its address, or that of the relay before it.
        behind: What the relay calls the node; None where there is no relay.

    Raises:
        UsageError: There is a relay and no such node behind it, or a node and no relay.
        HubUnreachableError: It is not reached.
    """
    _await_answer(watch, label)
    is_relay = label not in watch.nodes
    if not is_relay and behind is not None:
        raise UsageError(f"{label} is no relay: leave out --node {behind}")
    if is_relay and behind not in watch.nodes:
        names = [*list(watch.nodes)[:MOST_NAMED], *(["…"] if len(watch.nodes) > MOST_NAMED else [])]
        known = ", ".join(names) or "none yet"
        raise UsageError(f"{label} is a relay: say by --node which node behind it is meant: {known}")
    name = label if behind is None else behind
    _await_answer(watch, name)
    return name


def _await_answer(watch: "NodesWatch", name: str) -> None:
    """Wait until a node has told of itself, or turned out to be a relay."""
    while name in watch.nodes and watch.nodes[name].picture.newest.hub is None:
        _turn(watch, name)


def _turn(watch: "NodesWatch", name: str) -> None:
    """Wait for news of the node.

    Raises:
        HubUnreachableError: It is not reached, or was lost.
    """
    watch.turn(1.0)
    node = watch.nodes.get(name)
    if node is not None and node.picture.newest.connection == "lost":
        raise HubUnreachableError(f"{name}: {node.picture.newest.reason}")
