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
    from vramscope.engine.cluster.links import Trust
    from vramscope.engine.cluster.nodes_watch import NodesWatch
    from vramscope.engine.wire.messages import Advised


SUMMARY = "ask a training process to do something about its memory at the end of its next step"
DESCRIPTION = """\
Ask a training process to do something about its memory at the end of its next step, and print what it made of
that. `empty_cache` gives back what its allocator caches; everything else is for the callback that the program
has registered (`vramscope.on_advice`). A process that was started with VRAMSCOPE_ADVICE=off refuses."""
EPILOG = """\
examples:
  vramscope advise 4242 empty_cache
  vramscope advise 4242 skip_long_batch --reason "rank 3 is foreseen to run out"
  vramscope advise 4242 empty_cache --connect node03

exit codes: 0 done, 2 refused or usage, 3 the process answered that it did not, 6 read_only is set,
7 agent unreachable"""
EXIT_DECLINED = 3


def register(subparsers: SubParsers, common: list[ArgumentParser]) -> None:
    parser = add_verb(subparsers, common, "advise", SUMMARY, DESCRIPTION, EPILOG)
    parser.add_argument("pid", metavar="PID", type=int, help="the process, as the agent of its node knows it")
    parser.add_argument("action", metavar="ACTION", choices=ADVICE_ACTIONS, help=", ".join(ADVICE_ACTIONS))
    parser.add_argument(
        "--reason", metavar="TEXT", default="", help="why; the callback of the program gets it"
    )
    parser.add_argument(
        "--within",
        metavar="TIME",
        type=duration(lambda seconds: 0 < seconds <= 120, "a time above zero, of two minutes at most"),
        default="60s",
        help="how long the step may take (default 60s, 2m at most)",
    )
    add_format_flags(parser, text="text is the default", json="print one JSON object (vramscope.advice/1)")
    add_read_only_flag(parser)
    elsewhere = parser.add_argument_group("a process of another node")
    elsewhere.add_argument(
        "--connect",
        dest="hub",
        metavar="HOST[:PORT]",
        help="the process is of that node, whose agent listens; takes the role controller or worker",
    )
    elsewhere.add_argument(
        "--ssh", dest="ssh_host", metavar="[USER@]HOST", help="the same, through your own ssh"
    )
    elsewhere.add_argument(
        "--node",
        metavar="NAME",
        help="with --connect to a relay: which node behind it, by the name there or its own",
    )


def run(arguments: Namespace) -> int:
    from vramscope.exporters.status.document import describe_advice, word_advice

    refuse_if_read_only(arguments, f"advise would have process {arguments.pid} change its memory")
    address = arguments.ssh_host if arguments.hub is None else arguments.hub
    if address is None and arguments.node is not None:
        raise UsageError("--node goes with --connect to a relay")
    advise = advise_here if address is None else advise_elsewhere
    report = describe_advice(arguments.action, advise(arguments), arguments.node or address)
    if arguments.json:
        emit_json(report)
    else:
        print(word_advice(report))
    return 0 if report.is_obeyed else EXIT_DECLINED


MOST_NAMED = 8
ANSWER_WITHIN_S = 5.0
"""How long nodes behind a relay may take to say what they are called."""


def advise_here(arguments: Namespace) -> "Advised":
    from vramscope.engine.viewer.client import connect

    with connect() as client:
        return client.advise_and_wait(
            arguments.pid, arguments.action, reason=arguments.reason, step_end_within_s=arguments.within
        )


def advise_elsewhere(arguments: Namespace) -> "Advised":
    """Advise a process of the node that is named, by one of the flags, and return its answer."""
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
        behind: What the relay calls the node, or its agent; None where there is no relay.
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
    """Return the only node behind a relay whose agent calls itself so, once all have said what they do."""
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
    """Return the name of a node, with the one that its agent uses if that differs."""
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
