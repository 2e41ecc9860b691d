"""A watch of several nodes: who comes, who falls silent, and how it ended."""

from typing import Literal

from vramscope.engine.cluster.exchange import describe_gathering
from vramscope.engine.errors import DriverNotLoadedError
from vramscope.engine.model import SEVERITIES
from vramscope.engine.units import format_age
from vramscope.engine.viewer.node_source import DRIVER_SILENT
from vramscope.exporters.reports.log import RunLog
from vramscope.exporters.reports.text import Report
from vramscope.exporters.text import count
from vramscope.memory.node_exchange import DistributedRole, NodeExchange
from vramscope.memory.spare_stream import SpareStream
from vramscope.memory.watch import Watch

from ..frame.diagnostics import EXIT_FINDINGS, complain
from .options import WatchOptions
from .running import SuiteRun

EXIT_UNREACHABLE = 7
EXIT_INTERRUPTED = 130
ANSWERED_WITHIN_S = 1.0
"""What a report waits for the first answer of the master."""
TOLD_AFTER_S = 3.0
"""What stands against a connection is said when it has lasted so long."""
Standing = Literal["there", "silent", "left"]


class ClusterRun:
    """Watches this node and its exchange with others, delivers the report, says how it ended.

    Args:
        options: Flags of the verb.
        exchange: With the other nodes; opened here.
        wanted: Nodes to wait for, this one included; None for whoever comes.
    """

    def __init__(self, options: WatchOptions, exchange: NodeExchange, wanted: int | None) -> None:
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
        self._told: str | None = None
        self._trouble: tuple[str, float] | None = None
        self._has_threat = False

    def run(self) -> int:
        """Watch until it is over or Ctrl-C, deliver the report, return the exit code.

        Raises:
            VramscopeError: The port is taken, the keys are missing, or the report cannot be written.
        """
        self._exchange.open()
        if self._exchange.collector is not None:
            complain(describe_gathering(self._exchange.collector.listening))
        try:
            code = self._run.run()
        finally:
            self._exchange.close(self._run.watch.log)
        return code or self._choose_code()

    def _build(self, watch: Watch, log: RunLog) -> Report:
        if self._exchange.reporter is not None:
            self._exchange.reporter.settle(ANSWERED_WITHIN_S)
        return self._exchange.build(log, watch.provenance)

    def _take_turn(self, passed_s: float) -> float:
        """Exchange reports; return the seconds since all were there that were waited for."""
        self._exchange.tend(self._run.watch.log)
        self._tell_nodes()
        self._tell_master(passed_s)
        self._note_threats()
        if self._wanted is None:
            return passed_s
        if self._complete_s is None and self._count_seen() >= self._wanted:
            self._complete_s = passed_s
            self._run.say(f"all {count(self._wanted, 'node')} are there")
        return passed_s - (self._complete_s or 0.0)

    def _count_seen(self) -> int:
        return len({*self._exchange.roll.nodes, self._exchange.node_id})

    def _tell_nodes(self) -> None:
        roll = self._exchange.roll
        for node, standing in self._list_standings().items():
            before = self._standings.get(node)
            if node == self._exchange.node_id or standing == before:
                continue
            self._standings[node] = standing
            if standing == "there":
                devices = count(len(roll.nodes[node].report.devices), "device")
                self._run.say(f"{node} reports {'again' if before else devices}")
            elif standing == "silent":
                self._run.say(f"nothing of {node} for {format_age(roll.ages_s[node])}")
            else:
                self._run.say(f"{node} ended its watch")

    def _list_standings(self) -> dict[str, Standing]:
        roll = self._exchange.roll
        there: dict[str, Standing] = dict.fromkeys(roll.find("here", "late"), "there")
        silent: dict[str, Standing] = dict.fromkeys(roll.find("silent"), "silent")
        return there | silent | dict.fromkeys(roll.find("left"), "left")

    def _tell_master(self, passed_s: float) -> None:
        """Say once what became of the connection to the master, when it has lasted."""
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
            if self._trouble is None or passed_s - self._trouble[1] < TOLD_AFTER_S:
                return
        if sentence is not None and sentence != self._told:
            self._told = sentence
            self._run.say(sentence)

    def _note_threats(self) -> None:
        if self._options.fail_on is not None:
            least = SEVERITIES.index(self._options.fail_on)
            found = (threat for node in self._exchange.roll.present for threat in node.threats)
            self._has_threat = self._has_threat or any(SEVERITIES.index(it.severity) >= least for it in found)

    def _choose_code(self) -> int:
        if self._has_threat:
            return EXIT_FINDINGS
        if self._run.is_interrupted and self._options.duration_s is not None:
            return EXIT_INTERRUPTED
        reporter = self._exchange.reporter
        if reporter is not None and not reporter.has_been_accepted:
            complain(f"no report was taken: {reporter.trouble or 'the master did not answer'}")
            return EXIT_UNREACHABLE
        if self._wanted is not None and self._complete_s is None:
            complain(f"{self._count_seen()} of {self._wanted} nodes came; see whether the others run")
            return EXIT_UNREACHABLE
        return self._explain_nothing()

    def _explain_nothing(self) -> int:
        """Say that no node reported a device, if so, and return the code of what is missing here; else 0."""
        nodes = self._exchange.roll.nodes.values()
        if self._spare is None or self._run.watch.has_seen_any or any(it.report.devices for it in nodes):
            return 0
        reason = self._spare.absence or DriverNotLoadedError(DRIVER_SILENT)
        complain(f"nothing was measured: no other node reported a device, and here {reason}")
        return reason.exit_code
