"""Giving an advice to a process of this node or of another one, and waiting for its answer."""

import os
import time
from argparse import Namespace
from typing import TYPE_CHECKING

from vramscope.engine.errors import HubUnreachableError, UsageError

from .remote_flags import read_typed_nodes

if TYPE_CHECKING:
    from vramscope.engine.cluster.addresses import NodeAddress
    from vramscope.engine.cluster.links import Trust
    from vramscope.engine.cluster.nodes_watch import NodesWatch
    from vramscope.engine.wire.messages import Advised

MOST_NAMED = 8
ANSWER_WITHIN_S = 5.0
"""How long nodes behind a relay may take to say what they are called."""


def advise_here(arguments: Namespace, within_s: float) -> "Advised":
    """Advise a process of this node and return its answer.

    Raises:
        UsageError: No such process reports, it takes no advice, or no step ended in time.
        HubUnreachableError: No agent runs here, or it does not answer.
    """
    from vramscope.engine.viewer.client import connect

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
    from vramscope.engine.cluster.nodes_watch import NodesWatch
    from vramscope.engine.viewer.picture import read_advised

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
    from vramscope.engine.cluster.addresses import DEFAULT_COMMAND
    from vramscope.engine.cluster.links import read_trust

    command = os.environ.get("VRAMSCOPE_SSH_COMMAND") or DEFAULT_COMMAND
    nodes = read_typed_nodes(arguments.hub, arguments.ssh_host, command)
    if len(nodes) != 1:
        raise UsageError(
            f"--connect and --ssh name {len(nodes)} nodes: a process is of one node, so name that alone"
        )
    return nodes[0], read_trust(is_insecure=arguments.hub is None)


def _reach(watch: "NodesWatch", label: str, behind: str | None) -> str:
    """Return the name of the node, once it has answered.

    Args:
        watch: Follows it.
        label: Its address, or that of the relay before it.
        behind: What the relay calls the node, or its agent; None where there is no relay.

    Raises:
        UsageError: There is a relay and no such node behind it, or a node and no relay.
        HubUnreachableError: It is not reached.
    """
    _await_answer(watch, label)
    is_relay = label not in watch.nodes
    if not is_relay:
        if behind is not None and behind not in (label, _own_name(watch, label)):
            raise UsageError(f"{_word_node(watch, label)} is no relay: leave out --node {behind!r}")
        return label
    if behind is None or behind not in watch.nodes:
        behind = _find_behind(watch, label, behind)
    _await_answer(watch, behind)
    return behind


def _find_behind(watch: "NodesWatch", relay: str, wanted: str | None) -> str:
    """Return the only node behind a relay whose agent calls itself so, once all have said what they do.

    Raises:
        UsageError: There is none, or there are several.
    """
    end_s = time.monotonic() + ANSWER_WITHIN_S
    while time.monotonic() < end_s and any(it.picture.newest.sample is None for it in watch.nodes.values()):
        watch.turn(end_s - time.monotonic())
    found = [name for name in watch.nodes if wanted and _own_name(watch, name) == wanted]
    if len(found) == 1:
        return found[0]
    names = found or list(watch.nodes)
    shown = [
        *(_word_node(watch, name) for name in names[:MOST_NAMED]),
        *(["…"] if len(names) > MOST_NAMED else []),
    ]
    said = (
        "" if wanted is None else f"--node {wanted!r} names {len(found) or 'none'} of the nodes behind it; "
    )
    known = ", ".join(shown) or "none yet"
    raise UsageError(f"{relay} is a relay: {said}say by --node which is meant: {known}")


def _own_name(watch: "NodesWatch", name: str) -> str | None:
    """Return what an agent calls its node; None where it has told no sample."""
    sample = watch.nodes[name].picture.newest.sample
    return None if sample is None else sample.node


def _word_node(watch: "NodesWatch", name: str) -> str:
    """Return the name of a node, with that which its agent gives it where that is another."""
    own = _own_name(watch, name)
    return name if own is None or own == name else f"{name} ({own})"


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
