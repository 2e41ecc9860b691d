"""`vramscope distributed`: memory of several nodes, gathered at one of them, as a report."""

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from vramscope.engine.errors import UsageError

from ..frame.flag_words import add_old_flag
from ..frame.registry import SubParsers
from ..suite.flags import Defaults, add_watch_parser, read_count, read_watch_options

if TYPE_CHECKING:
    from vramscope.memory.node_exchange import NodeExchange

SUMMARY = "gather the memory of several nodes at one of them, and report balance, bottlenecks and threats"
DESCRIPTION = """\
Gather the memory of several nodes at one of them. One runs with --role master and listens, the others with
--role worker report to it. Each has its own report in the end; the master's tells of all nodes.
Beyond this machine reports travel with the keys of `vramscope keys`, encrypted."""
EPILOG = """\
examples:
  vramscope distributed --role master --master-host '*' --node-count 4 --duration 10m --output cluster.json
  vramscope distributed --role worker --master-host n1 --duration 0

exit codes: 0 done, 3 a finding or a threat of any node reached --fail-on, 2 usage or a port that is taken,
4 no device, 5 the driver is not loaded or does not answer, 7 no report was taken by the master, or fewer
nodes came than --node-count, 130 Ctrl-C before the time was up; the report is written in any of 0, 3, 7 and
130"""
DEFAULTS = Defaults(duration="300", interval="3")
MOST_NODES = 1024
SILENT_AFTER_S = 30.0
SILENT_AFTER_INTERVALS = 3.0
"""A node is silent after either, whichever is longer."""


def register(subparsers: SubParsers, common: list[ArgumentParser]) -> None:
    """Add the verb's parser."""
    parser = add_watch_parser(
        subparsers,
        common,
        "distributed",
        DEFAULTS,
        summary=SUMMARY,
        epilog=EPILOG,
        description=DESCRIPTION,
        has_input=False,
    )
    nodes = parser.add_argument_group("nodes")
    nodes.add_argument("--role", choices=("master", "worker"), required=True, help="gather, or report")
    nodes.add_argument(
        "--master-host",
        metavar="HOST",
        default="localhost",
        help="of a worker: where the master is; of the master: where it listens, '*' for all addresses",
    )
    nodes.add_argument("--port", metavar="PORT", default="29500", help="of the master (default 29500)")
    nodes.add_argument(
        "--node-count",
        metavar="N",
        help="of the master: wait for N nodes, itself included; time counts from then",
    )
    add_old_flag(nodes, "--nodes", use="--node-count", dest="node_count")
    nodes.add_argument("--name", metavar="NAME", help="of this node (default: host name and time)")
    nodes.add_argument(
        "--insecure", action="store_true", help="without keys, beyond this machine too: open to everybody"
    )


def run(arguments: Namespace) -> int:
    """Watch, exchange and report; return the exit code.

    Raises:
        UsageError: A flag has a value that cannot be used, the port is taken, or there is no key.
    """
    from ..suite.cluster import ClusterRun

    options = read_watch_options(arguments, "distributed", DEFAULTS)
    if options.output is not None and options.format is None:
        options = options._replace(format="text")
    wanted = None
    if arguments.node_count is not None:
        wanted = read_count("--node-count", arguments.node_count, 1, MOST_NODES)
    if wanted is not None and arguments.role != "master":
        raise UsageError("--node-count goes with --role master: a worker waits for nobody")
    return ClusterRun(options, _make_exchange(arguments, options.interval_s), wanted).run()


def _make_exchange(arguments: Namespace, interval_s: float) -> "NodeExchange":
    from vramscope.memory.node_exchange import DistributedRole, Meeting, NodeExchange

    port = read_count("--port", arguments.port, 1, 65535)
    if arguments.master_host == "":
        raise UsageError("--master-host '': expected a host by name or number; leave it out for this machine")
    meeting = Meeting(
        DistributedRole(arguments.role), arguments.master_host, port, is_insecure=arguments.insecure
    )
    timeout_s = max(SILENT_AFTER_S, SILENT_AFTER_INTERVALS * interval_s)
    return NodeExchange(arguments.name, meeting, interval_s=interval_s, timeout_s=timeout_s)
