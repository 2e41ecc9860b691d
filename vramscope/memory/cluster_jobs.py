"""Jobs over the nodes whose reports are gathered: their stages, and the rank that grows away first."""

from vramscope.analyzers.cluster_state import ClusterState
from vramscope.analyzers.cluster_state.reports import read_report
from vramscope.engine.clock import Clock
from vramscope.engine.cluster.roll import NodeRoll
from vramscope.exporters.job_over_nodes import JobOverNodes, describe_job


class ClusterJobs:
    """Takes the roll again and again.

    Args:
        clock: Where time is read.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock, self._state = clock, ClusterState()
        self._taken: dict[str, tuple[float, bool]] = {}

    def note(self, roll: NodeRoll) -> None:
        """Take what is new on the roll."""
        silent = {*roll.find("silent", "left")}
        for node, known in roll.nodes.items():
            stamp = (known.heard_s, node in silent)
            if self._taken.get(node) != stamp:
                self._taken[node] = stamp
                snapshot = read_report(known.report, is_silent=node in silent)
                self._state.observe(snapshot, self._clock.monotonic_s())

    def describe(self) -> tuple[JobOverNodes, ...]:
        """Return the jobs as they stand, by name."""
        self._state.conclude(self._clock.monotonic_s())
        return tuple(describe_job(job) for job in self._state.picture.jobs)
