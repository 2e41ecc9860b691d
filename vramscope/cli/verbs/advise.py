"""`vramscope advise`: ask a training process to do something about its memory."""

import os
import time
from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from vramscope.engine.errors import HubUnreachableError, UsageError
from vramscope.engine.model import ADVICE_ACTIONS

from ..frame.emit import emit_json
from ..frame.flags import add_format_flags, add_read_only_flag, duration
from ..frame.parse import SubParsers, add_verb
from ..frame.settings import refuse_if_read_only
from ..nodes import read_typed_nodes

if TYPE_CHECKING:
    from vramscope.engine.cluster.addresses import NodeAddress
    from vramscope.engine.cluster.nodes_watch import NodesWatch
    from vramscope.engine.cluster.trust import Trust
    from vramscope.engine.wire.messages import Advised


DESCRIPTION = "Ask a training process to change its memory at the end of its next step, and print its answer."
EXAMPLES = """\
vramscope advise 4242 empty_cache
vramscope advise 4242 skip_long_batch --reason "rank 3 will run out"
vramscope advise 4242 empty_cache --connect node03"""
NOTES = """\
empty_cache gives back the memory that the allocator caches. All other actions go to the callback that the
program registered with vramscope.on_advice. A process started with VRAMSCOPE_ADVICE=off refuses."""
EXIT_DECLINED = 3
EXIT_CODES: dict[int | str, str] = {
    0: "the process did it",
    2: "wrong flags, or the agent refused",
    EXIT_DECLINED: "the process answered that it did not",
    6: "read_only is set",
    7: "the agent cannot be reached",
}


def register(subparsers: SubParsers, common: list[ArgumentParser]) -> None:
    parser = add_verb(
        subparsers, common, "advise", DESCRIPTION, examples=EXAMPLES, notes=NOTES, exit_codes=EXIT_CODES
    )
    parser.add_argument("pid", metavar="PID", type=int, help="the process, by its PID on its own node")
    parser.add_argument("action", metavar="ACTION", choices=ADVICE_ACTIONS, help=", ".join(ADVICE_ACTIONS))
    parser.add_argument("--reason", metavar="TEXT", default="", help="why, for the callback of the program")
    parser.add_argument(
        "--within",
        metavar="TIME",
        type=duration(lambda seconds: 0 < seconds <= 120, "a time above zero and up to 2m"),
        default="60s",
        help="how long the step may take (default 60s, at most 2m)",
    )
    add_format_flags(parser, text="text is the default", json="print one JSON object (vramscope.advice/1)")
    add_read_only_flag(parser)
    elsewhere = parser.add_argument_group("a process on another node")
    elsewhere.add_argument(
        "--connect",
        dest="hub",
        metavar="HOST[:PORT]",
        help="the node of the process, whose agent listens; needs the role controller or worker",
    )
    elsewhere.add_argument(
        "--ssh", dest="ssh_host", metavar="[USER@]HOST", help="the node of the process, through ssh"
    )
    elsewhere.add_argument(
        "--node",
        metavar="NAME",
        help="with --connect to a relay: the node behind it, by its name there or its own",
    )


def run(arguments: Namespace) -> int:
    from vramscope.exporters.status.document import describe_advice, word_advice

    refuse_if_read_only(arguments, f"advise would make process {arguments.pid} change its memory")
    address = arguments.ssh_host if arguments.hub is None else arguments.hub
    if address is None and arguments.node is not None:
        raise UsageError("--node needs --connect HOST, where HOST is a relay")
    advise = advise_here if address is None else advise_elsewhere
    report = describe_advice(arguments.action, advise(arguments), arguments.node or address)
    if arguments.json:
        emit_json(report)
    else:
        print(word_advice(report))
    return 0 if report.is_obeyed else EXIT_DECLINED


MOST_NAMED = 8
# How long nodes behind a relay may take to report their names.
ANSWER_WITHIN_S = 5.0


def advise_here(arguments: Namespace) -> "Advised":
    from vramscope.engine.viewer.client import connect

    with connect() as client:
        return client.advise_and_wait(
            arguments.pid, arguments.action, reason=arguments.reason, step_end_within_s=arguments.within
        )


def advise_elsewhere(arguments: Namespace) -> "Advised":
    """Advise a process of the node that `--connect` or `--ssh` names, and return its answer."""
    from vramscope.engine.cluster.nodes_watch import NodesWatch
    from vramscope.engine.viewer.picture import read_advised

    address, trust = _find_node(arguments)
    watch = NodesWatch([address], trust, most_in_full=1)
    try:
        name = _reach(watch, address.label, arguments.node)
        picture = watch.nodes[name].picture
        number = picture.advise(
            arguments.pid, arguments.action, reason=arguments.reason, step_end_within_s=arguments.within
        )
        while (advised := read_advised(picture.newest, number)) is None:
            _turn(watch, name)
        return advised
    finally:
        watch.close()


def _find_node(arguments: Namespace) -> "tuple[NodeAddress, Trust]":
    """Return the named node and the keys for it; ssh has its own keys."""
    from vramscope.engine.cluster.addresses import DEFAULT_COMMAND
    from vramscope.engine.cluster.trust import read_trust

    command = os.environ.get("VRAMSCOPE_SSH_COMMAND") or DEFAULT_COMMAND
    nodes = read_typed_nodes(arguments.hub, arguments.ssh_host, command)
    if len(nodes) != 1:
        raise UsageError(
            f"--connect and --ssh name {len(nodes)} nodes: expected one, the node of the process"
        )
    return nodes[0], read_trust(is_insecure=arguments.hub is None)


def _reach(watch: "NodesWatch", label: str, behind: str | None) -> str:
    """Return the name of the node, once it has answered.

    Args:
        behind: Name of the node at the relay or at its own agent; None without a relay.
    """
    _await_answer(watch, label)
    is_relay = label not in watch.nodes
    if not is_relay:
        if behind is not None and behind not in (label, _own_name(watch, label)):
            raise UsageError(f"{_word_node(watch, label)} is not a relay: leave out --node {behind!r}")
        return label
    if behind is None or behind not in watch.nodes:
        behind = _find_behind(watch, label, behind)
    _await_answer(watch, behind)
    return behind


def _find_behind(watch: "NodesWatch", relay: str, wanted: str | None) -> str:
    """Return the only node behind a relay whose agent has that name, once all have reported theirs."""
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
        "" if wanted is None else f"--node {wanted!r} matches {len(found) or 'none'} of the nodes behind it; "
    )
    known = ", ".join(shown) or "none yet"
    raise UsageError(f"{relay} is a relay: {said}choose a node with --node: {known}")


def _own_name(watch: "NodesWatch", name: str) -> str | None:
    """Return what an agent calls its node; None before its first sample."""
    sample = watch.nodes[name].picture.newest.sample
    return None if sample is None else sample.node


def _word_node(watch: "NodesWatch", name: str) -> str:
    """Return the name of a node, and the name at its agent if that differs."""
    own = _own_name(watch, name)
    return name if own is None or own == name else f"{name} ({own})"


def _await_answer(watch: "NodesWatch", name: str) -> None:
    """Wait until a node has answered, or turned out to be a relay."""
    while name in watch.nodes and watch.nodes[name].picture.newest.hub is None:
        _turn(watch, name)


def _turn(watch: "NodesWatch", name: str) -> None:
    """Wait for news of the node."""
    watch.turn(1.0)
    node = watch.nodes.get(name)
    if node is not None and node.picture.newest.connection == "lost":
        raise HubUnreachableError(f"{name}: {node.picture.newest.reason}")
