"""`vramscope distributed`: memory of several nodes, gathered at one of them, as a report."""

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING, Literal

from vramscope.engine.errors import UsageError
from vramscope.engine.model import SEVERITIES

from ..frame.emit import complain
from ..frame.errors import EXIT_FINDINGS
from ..frame.flags import add_old_flag, whole
from ..frame.parse import SubParsers
from ..suite.flags import Defaults, WatchOptions, add_watch_parser, read_watch_options

if TYPE_CHECKING:
    from vramscope.exporters.reports.log import RunLog
    from vramscope.exporters.reports.text import Report
    from vramscope.memory.distributed_exchange import NodeExchange
    from vramscope.memory.watch import Watch

DESCRIPTION = (
    "Gather the memory of several nodes at one of them, and report balance, bottlenecks and threats."
)
EXAMPLES = """\
vramscope distributed --role master --master-host '*' --node-count 4 \\
    --duration 10m --output cluster.json
vramscope distributed --role worker --master-host n1 --duration 0"""
NOTES = """\
One node runs with --role master and listens, the others report to it with --role worker. Each node writes its
own report at the end; that of the master covers all nodes. Between machines reports are encrypted with the
keys of `vramscope keys`.

The report is written for exit codes 0, 3, 7 and 130."""
EXIT_CODES: dict[int | str, str] = {
    0: "done",
    2: "wrong flags, or a port that is in use",
    3: "a finding or a threat of any node reached --fail-on",
    4: "no device",
    5: "the driver is not loaded or does not answer",
    7: "the master accepted no report, or fewer nodes came than --node-count",
    130: "Ctrl-C before --duration was over",
}
DEFAULTS = Defaults(duration_s=300, interval_s=3)
MOST_NODES = 1024
# A node is silent after either, whichever is longer.
SILENT_AFTER_S = 30.0
SILENT_AFTER_INTERVALS = 3.0


def register(subparsers: SubParsers, common: list[ArgumentParser]) -> None:
    parser = add_watch_parser(
        subparsers,
        common,
        "distributed",
        DEFAULTS,
        description=DESCRIPTION,
        examples=EXAMPLES,
        notes=NOTES,
        exit_codes=EXIT_CODES,
        has_input=False,
    )
    nodes = parser.add_argument_group("nodes")
    nodes.add_argument(
        "--role", choices=("master", "worker"), required=True, help="gather reports, or send them"
    )
    nodes.add_argument(
        "--master-host",
        metavar="HOST",
        default="localhost",
        help="for a worker: host of the master; for the master: where it listens, '*' for all addresses "
        "(default localhost)",
    )
    nodes.add_argument(
        "--port",
        metavar="PORT",
        type=whole(1, 65535),
        default=29500,
        help="port of the master (default 29500)",
    )
    nodes.add_argument(
        "--node-count",
        metavar="N",
        type=whole(1, MOST_NODES),
        help="for the master: wait for N nodes, itself included, before --duration starts",
    )
    add_old_flag(nodes, "--nodes", use="--node-count", dest="node_count", type=whole(1, MOST_NODES))
    nodes.add_argument("--name", metavar="NAME", help="name of this node (default: host name and time)")
    nodes.add_argument(
        "--insecure",
        action="store_true",
        help="use no keys, also beyond this machine; everybody can read and report",
    )


def run(arguments: Namespace) -> int:
    options = read_watch_options(arguments, "distributed", DEFAULTS)
    if options.output is not None and options.format is None:
        options = options._replace(format="text")
    wanted: int | None = arguments.node_count
    if wanted is not None and arguments.role != "master":
        raise UsageError("--node-count needs --role master: a worker does not wait for others")
    return ClusterRun(options, _make_exchange(arguments, options.interval_s), wanted).run()


def _make_exchange(arguments: Namespace, interval_s: float) -> "NodeExchange":
    from vramscope.memory.distributed_exchange import DistributedRole, Meeting, NodeExchange

    if arguments.master_host == "":
        raise UsageError("--master-host '': expected a host name or address; leave it out for this machine")
    meeting = Meeting(
        DistributedRole(arguments.role), arguments.master_host, arguments.port, is_insecure=arguments.insecure
    )
    timeout_s = max(SILENT_AFTER_S, SILENT_AFTER_INTERVALS * interval_s)
    return NodeExchange(arguments.name, meeting, interval_s=interval_s, timeout_s=timeout_s)


EXIT_UNREACHABLE = 7
EXIT_INTERRUPTED = 130
# How long a report waits for the first answer of the master.
ANSWERED_WITHIN_S = 1.0
# How long a problem with the connection lasts before it is printed.
PRINTED_AFTER_S = 3.0
Standing = Literal["there", "silent", "left"]


class ClusterRun:
    """Watches this node, exchanges reports with other nodes, and delivers the report at the end.

    Args:
        exchange: With the other nodes; opened here.
        wanted: Nodes to wait for, this one included; None to wait for none.
    """

    def __init__(self, options: WatchOptions, exchange: "NodeExchange", wanted: int | None) -> None:
        from vramscope.memory.distributed_exchange import DistributedRole
        from vramscope.memory.streams import SpareStream

        from ..suite.running import SuiteRun

        self._options = options
        self._exchange = exchange
        self._wanted = wanted
        exchange.wanted = wanted or 0
        is_master = exchange.meeting.role is DistributedRole.MASTER
        self._spare = SpareStream(options.interval_s) if is_master else None
        self._run = SuiteRun(
            options, self._build, stream=self._spare, turn=self._take_turn, may_be_empty=is_master
        )
        self._standings: dict[str, Standing] = {}
        self._complete_s: float | None = None
        self._printed: str | None = None
        self._trouble: tuple[str, float] | None = None
        self._has_threat = False

    def run(self) -> int:
        from vramscope.engine.cluster.distributed import describe_gathering

        self._exchange.open()
        if self._exchange.collector is not None:
            complain(describe_gathering(self._exchange.collector.listening))
        try:
            code = self._run.run()
        finally:
            self._exchange.close(self._run.watch.log)
        return code or self._choose_code()

    def _build(self, watch: "Watch", log: "RunLog") -> "Report":
        if self._exchange.reporter is not None:
            self._exchange.reporter.settle(ANSWERED_WITHIN_S)
        return self._exchange.build(log, watch.provenance)

    def _take_turn(self, passed_s: float) -> float:
        """Exchange reports; return the seconds since all expected nodes were there."""
        from vramscope.analyzers.sentence import count

        self._exchange.tend(self._run.watch.log)
        self._print_nodes()
        self._print_master(passed_s)
        self._note_threats()
        if self._wanted is None:
            return passed_s
        if self._complete_s is None and self._count_seen() >= self._wanted:
            self._complete_s = passed_s
            self._run.say(f"all {count(self._wanted, 'node')} report")
        return passed_s - (self._complete_s or 0.0)

    def _count_seen(self) -> int:
        return len({*self._exchange.roll.nodes, self._exchange.node_id})

    def _print_nodes(self) -> None:
        from vramscope.analyzers.sentence import count
        from vramscope.engine.units import format_age

        roll = self._exchange.roll
        for node, standing in self._list_standings().items():
            before = self._standings.get(node)
            if node == self._exchange.node_id or standing == before:
                continue
            self._standings[node] = standing
            if standing == "there":
                devices = count(len(roll.nodes[node].report.sample.devices), "device")
                self._run.say(f"{node} reports {'again' if before else devices}")
            elif standing == "silent":
                self._run.say(f"no report from {node} for {format_age(roll.ages_s[node])}")
            else:
                self._run.say(f"{node} ended its watch")

    def _list_standings(self) -> dict[str, Standing]:
        roll = self._exchange.roll
        there: dict[str, Standing] = dict.fromkeys(roll.find("here", "late"), "there")
        silent: dict[str, Standing] = dict.fromkeys(roll.find("silent"), "silent")
        return there | silent | dict.fromkeys(roll.find("left"), "left")

    def _print_master(self, passed_s: float) -> None:
        """Print once how the connection to the master is, when that has lasted."""
        reporter = self._exchange.reporter
        if reporter is None:
            return
        sentence = reporter.trouble
        receipt = reporter.receipt
        if sentence is None and receipt is None:
            return
        if sentence is None and receipt is not None:
            self._trouble = None
            sentence = f"reporting to {receipt.master_id} at {reporter.endpoint}"
        elif sentence is not None:
            is_new = self._trouble is None or self._trouble[0] != sentence
            self._trouble = (sentence, passed_s) if is_new else self._trouble
            if self._trouble is None or passed_s - self._trouble[1] < PRINTED_AFTER_S:
                return
        if sentence is not None and sentence != self._printed:
            self._printed = sentence
            self._run.say(sentence)

    def _note_threats(self) -> None:
        if self._options.fail_on is not None:
            least = SEVERITIES.index(self._options.fail_on)
            found = (threat for node in self._exchange.roll.present for threat in node.findings)
            self._has_threat = self._has_threat or any(SEVERITIES.index(it.severity) >= least for it in found)

    def _choose_code(self) -> int:
        if self._has_threat:
            return EXIT_FINDINGS
        if self._run.is_interrupted and self._options.duration_s is not None:
            return EXIT_INTERRUPTED
        reporter = self._exchange.reporter
        if reporter is not None and not reporter.has_been_accepted:
            complain(f"the master accepted no report: {reporter.trouble or 'it did not answer'}")
            return EXIT_UNREACHABLE
        if self._wanted is not None and self._complete_s is None:
            complain(f"{self._count_seen()} of {self._wanted} nodes reported; check that the others run")
            return EXIT_UNREACHABLE
        return self._explain_nothing()

    def _explain_nothing(self) -> int:
        """Return 0, or print that no node reported a device and return the code of what is missing here."""
        from vramscope.engine.errors import DriverNotLoadedError
        from vramscope.engine.viewer.this_node import DRIVER_SILENT

        nodes = self._exchange.roll.nodes.values()
        if (
            self._spare is None
            or self._run.watch.has_seen_any
            or any(it.report.sample.devices for it in nodes)
        ):
            return 0
        reason = self._spare.absence or DriverNotLoadedError(DRIVER_SILENT)
        complain(f"nothing was measured: no other node reported a device, and here {reason}")
        return reason.exit_code
