"""The last steps of every training process: a sample tells only the newest one that has ended."""

from collections import deque

from ...engine.model import RankSample, Sample, StepReading

MOST_STEPS = 64
"""Steps that are kept of one process: more than any screen has columns for."""


class RecentSteps:
    """Keeps the last steps of each process that trains, as far as they were seen."""

    def __init__(self) -> None:
        self._steps: dict[int, deque[StepReading]] = {}

    def add(self, sample: Sample) -> None:
        """Note the newest steps of a sample, and forget processes that are gone."""
        for rank in sample.ranks:
            self._note(rank)
        if len(self._steps) > len(sample.ranks):
            pids = {rank.pid for rank in sample.ranks}
            self._steps = {pid: steps for pid, steps in self._steps.items() if pid in pids}

    def _note(self, rank: RankSample) -> None:
        if rank.step is None:
            return
        steps = self._steps.setdefault(rank.pid, deque(maxlen=MOST_STEPS))
        if steps and rank.step.index < steps[-1].index:
            steps.clear()  # another process has got the pid
        if not steps or rank.step.index > steps[-1].index:
            steps.append(rank.step)

    def of(self, pid: int) -> tuple[StepReading, ...]:
        """Return the steps of a process, oldest first."""
        return tuple(self._steps.get(pid, ()))
