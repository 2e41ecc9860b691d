"""`--connect`, `--hosts`, `--ssh` and `--slurm`: agents of other nodes, in the view or as text."""

import time
from argparse import Namespace
from collections import Counter
from typing import TYPE_CHECKING, NoReturn

from msgspec.structs import replace

from vramscope.engine.errors import HubUnreachableError, UsageError
from vramscope.engine.wire.selection import find_mismatch

from .frame.emit import complain, emit_json, leave_now
from .frame.errors import EXIT_INTERRUPTED
from .frame.settings import read_settings
from .nodes import is_by_tcp, read_choice, read_nodes
from .status import read_duration

if TYPE_CHECKING:
    from collections.abc import Iterable

    from vramscope.engine.cluster.nodes_watch import NodesWatch
    from vramscope.engine.model import NodeStatus, Sample
    from vramscope.engine.settings import Settings
    from vramscope.engine.viewer.feed import Feed
    from vramscope.engine.viewer.snapshot import Snapshot

# How long `--once` waits for a node; not for one that is refused or unknown.
ANSWER_WITHIN_S = 5.0
# A sample that is early by this much counts for the interval it comes in.
EARLY_S = 0.1
EXIT_UNREACHABLE = HubUnreachableError.exit_code


def show_remote(arguments: Namespace) -> int:
    from vramscope.engine.agent.supervisor import allow_many_descriptors
    from vramscope.engine.cluster.trust import read_trust

    allow_many_descriptors()  # every node needs several
    settings = read_settings(arguments)
    nodes = read_nodes(arguments)
    choice = read_choice(arguments)
    trust = read_trust(is_insecure=arguments.insecure or not is_by_tcp(arguments))  # ssh has its own keys
    if arguments.once or arguments.json:
        from vramscope.engine.cluster.nodes_watch import NodesWatch

        _print(NodesWatch(nodes, trust, choice=choice), settings, arguments)

    def start_feed() -> "Feed":
        from vramscope.engine.cluster.nodes_watch import NodesFeed

        return NodesFeed(nodes, trust, choice)

    from .live import open_view

    return open_view(start_feed, settings, config=getattr(arguments, "config", None), local_node="")


def _print(watch: "NodesWatch", settings: "Settings", arguments: Namespace) -> NoReturn:
    duration_s = read_duration(arguments)
    try:
        if arguments.once:
            code = _print_once(watch, settings, is_json=arguments.json)
        else:
            code = _print_stream(watch, settings.interval_s, duration_s)
    except KeyboardInterrupt:
        code = EXIT_INTERRUPTED
    leave_now(code)


def _print_once(watch: "NodesWatch", settings: "Settings", *, is_json: bool) -> int:
    """Print every node that answers, in the order they were named, and why others did not."""
    slowest_s = max((node.connection.answers_within_s for node in watch.nodes.values()), default=0.0)
    end_s = time.monotonic() + max(ANSWER_WITHIN_S, slowest_s)
    while time.monotonic() < end_s and any(
        it.sample is None and it.connection != "lost" for it in _newest(watch)
    ):
        watch.turn(end_s - time.monotonic())
    _print_warnings(watch, set())
    statuses = _describe(_newest(watch))
    if is_json:
        _print_lines(statuses)
    else:
        _print_tables(statuses, settings)
    missing = _print_missing(watch)
    return print_choice(watch) or missing


def _describe(snapshots: "list[Snapshot]") -> "list[NodeStatus]":
    """Return the state of every node that answered, under its address where names are not unique."""
    from vramscope.exporters.status.document import describe_snapshot

    answered = [(it, status) for it in snapshots if (status := describe_snapshot(it)) is not None]
    named = Counter(status.node for _, status in answered)
    return [
        replace(status, node=snapshot.node) if named[status.node] > 1 else status
        for snapshot, status in answered
    ]


def _print_lines(statuses: "Iterable[NodeStatus]") -> None:
    for status in statuses:
        emit_json(status)


def _print_tables(statuses: "list[NodeStatus]", settings: "Settings") -> None:
    from vramscope.exporters.status.table import render_table

    from .frame.emit import choose_style, emit

    style = choose_style(settings)
    text = "\n".join(render_table(status, style) for status in statuses)
    emit(text, is_ascii=style.is_ascii, is_styled=style.has_color)


def _print_stream(watch: "NodesWatch", interval_s: float, duration_s: float | None) -> int:
    end_s = None if duration_s is None else time.monotonic() + duration_s
    printer = StreamPrinter(interval_s)
    warned = set[str]()
    while end_s is None or time.monotonic() < end_s:
        for snapshot in watch.turn(1.0 if end_s is None else end_s - time.monotonic()):
            printer.take(snapshot)
        _print_warnings(watch, warned)
    if watch.mismatch is not None:
        return UsageError.exit_code
    return 0 if all(it.sample is not None for it in _newest(watch)) else EXIT_UNREACHABLE


class StreamPrinter:
    """Prints a line for each node and sample, at most one an interval, and once why a node has no data.

    Args:
        interval_s: Seconds from one line of a node to the next.
    """

    def __init__(self, interval_s: float) -> None:
        self._interval_s = interval_s
        self._printed: dict[str, tuple[int, float]] = {}
        self._reasons: dict[str, str | None] = {}
        self._addresses: dict[str, str] = {}

    def take(self, snapshot: "Snapshot") -> None:
        if snapshot.connection == "lost" and self._reasons.get(snapshot.node) != snapshot.reason:
            self._reasons[snapshot.node] = snapshot.reason
            complain(f"{snapshot.node}: {snapshot.reason}")
        elif snapshot.connection == "live" and snapshot.sample is not None:
            mismatch = find_mismatch(snapshot.sample)
            if mismatch is not None and self._reasons.get(snapshot.node) != mismatch:
                complain(mismatch)
            self._reasons[snapshot.node] = mismatch
            self._print(snapshot, snapshot.sample)

    def _print(self, snapshot: "Snapshot", sample: "Sample") -> None:
        now_s = time.monotonic()
        printed_seq, due_s = self._printed.get(snapshot.node, (None, now_s))
        is_due = self._interval_s <= sample.interval_s or now_s >= due_s - EARLY_S
        if sample.seq != printed_seq and is_due:
            self._printed[snapshot.node] = sample.seq, max(now_s, due_s + self._interval_s)
            _print_lines(self._describe(snapshot))

    def _describe(self, snapshot: "Snapshot") -> "list[NodeStatus]":
        """Return the state of a node, under its address where another node was printed with its name."""
        (status,) = _describe([snapshot])
        address = self._addresses.setdefault(status.node, snapshot.node)
        return [status if address == snapshot.node else replace(status, node=snapshot.node)]


def _newest(watch: "NodesWatch") -> "list[Snapshot]":
    return [node.picture.newest for node in watch.nodes.values()]


def _print_warnings(watch: "NodesWatch", printed: set[str]) -> None:
    """Print warnings about connections, and nodes that are named twice; each once."""
    for name, node in watch.nodes.items():
        if node.connection.warning is not None and name not in printed:
            printed.add(name)
            complain(f"{name}: {node.connection.warning}")
    for name, other in watch.doubles.items():
        if name not in printed:
            printed.add(name)
            complain(f"{name} and {other} are the same agent, which is followed once")


def print_choice(watch: "NodesWatch") -> int:
    """Print how many nodes are followed, and which lack the chosen devices; return 2 if all lack them."""
    if watch.mismatch is not None:
        complain(watch.mismatch)
        return UsageError.exit_code
    if watch.nodes_left_out:
        complain(f"{len(watch.nodes):,} of {len(watch.nodes) + watch.nodes_left_out:,} nodes followed")
    samples = [it.sample for it in _newest(watch) if it.sample is not None]
    mismatches = [found for it in samples if (found := find_mismatch(it)) is not None]
    for mismatch in mismatches:
        complain(mismatch)
    return UsageError.exit_code if mismatches and len(mismatches) == len(samples) else 0


def _print_missing(watch: "NodesWatch") -> int:
    """Print why nodes without data have none; return the exit code."""
    missing = [it for it in _newest(watch) if it.sample is None]
    for snapshot in missing:
        complain(f"{snapshot.node}: {snapshot.reason or 'does not answer'}")
    return EXIT_UNREACHABLE if missing else 0
