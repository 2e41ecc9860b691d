"""The seat of a worker elsewhere: an agent that runs no analyzers itself takes the reports of one, by tcp."""

from ..clock import Clock
from ..model import WorkerStatus
from ..wire.messages import WorkerReport
from .supervisor import SILENT_S

MAX_ANALYZERS = 64
MAX_NAME_CHARACTERS = 100
MAX_REASON_CHARACTERS = 1000


def shorten_report(report: WorkerReport) -> WorkerReport:
    """Return what is kept of a report and published again and again: what the worker says of itself."""
    return WorkerReport(
        report.name[:MAX_NAME_CHARACTERS],
        report.pid,
        report.seen_seq,
        report.samples_dropped,
        tuple(it[:MAX_NAME_CHARACTERS] for it in report.analyzers[:MAX_ANALYZERS]),
        reason=None if report.reason is None else report.reason[:MAX_REASON_CHARACTERS],
    )


class WorkerSeat:
    """Lets one worker report at a time; another may once it has been silent.

    Args:
        is_open: Whether the agent runs no analyzers itself.
        clock: Where time is read.
    """

    def __init__(self, *, is_open: bool, clock: Clock) -> None:
        self._is_open = is_open
        self._clock = clock
        self._holder: tuple[str, int] | None = None
        self._report: WorkerReport | None = None
        self._heard_s = 0.0

    def refuse(self, user: str, report: WorkerReport) -> str | None:
        """Return why a report is not taken, in one sentence, or None; who reports has the seat.

        Args:
            user: Whose key the worker showed.
            report: What it tells.
        """
        if not self._is_open:
            return "this agent runs its analyzers itself: start it with --no-worker for those of elsewhere"
        holder = (user, report.pid)
        if self._holder not in (None, holder) and not self._is_silent:
            return "another worker analyzes for this agent"
        self._holder, self._report, self._heard_s = holder, report, self._clock.monotonic_s()
        return None

    def status(self) -> tuple[WorkerStatus, ...]:
        """Return the worker as viewers see it; nothing before the first."""
        report = self._report
        if report is None:
            return ()
        silent = f"it is elsewhere, and has not reported for {SILENT_S:.0f} s" if self._is_silent else None
        return (
            WorkerStatus(
                name=report.name,
                pid=report.pid,
                state="failed" if silent else "running",
                samples_dropped=report.samples_dropped,
                analyzers=report.analyzers,
                reason=silent or report.reason,
            ),
        )

    @property
    def _is_silent(self) -> bool:
        return self._clock.monotonic_s() - self._heard_s > SILENT_S
