"""When a job has ended: its first process, and every process that reports of it."""

from ..clock import Clock, SystemClock
from ..errors import UsageError
from ..model import Sample
from ..sources.processes import read_start_ticks
from .announcement import is_running

LINGER_S = 2.5
"""What is measured and found in the last moments arrives that much later."""


class JobEnd:
    """Says when a recording of one job is over.

    Args:
        pid: The job's first process.
        job: Its name; processes that report under it belong to it too. None for the first one alone.
        clock: Injected in tests.

    Raises:
        UsageError: There is no such process.
    """

    def __init__(self, pid: int, job: str | None = None, *, clock: Clock | None = None) -> None:
        self.pid = pid
        self.job = job
        self._clock = clock or SystemClock()
        self._start_ticks = read_start_ticks(pid)
        if not is_running(pid, self._start_ticks):
            raise UsageError(f"--until-exit {pid}: there is no such process")
        self._has_ranks = False
        self._ended_s: float | None = None

    def observe(self, sample: Sample) -> None:
        """Look for processes of the job."""
        self._has_ranks = self.job is not None and any(
            rank.job == self.job and rank.state != "ended" for rank in sample.ranks
        )

    @property
    def is_over(self) -> bool:
        """Whether nothing of the job runs any more, for long enough that its last words are here."""
        now_s = self._clock.monotonic_s()
        if self._has_ranks or is_running(self.pid, self._start_ticks):
            self._ended_s = None
        elif self._ended_s is None:
            self._ended_s = now_s
        return self._ended_s is not None and now_s - self._ended_s >= LINGER_S
