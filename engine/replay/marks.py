"""Moments worth jumping to: findings, out-of-memory errors, and steps where there is neither."""

from collections.abc import Iterable, Iterator
from itertools import islice

from ..model import Finding, Sample
from .state import ReplayMark
from .tape import Tape

MOST_SOUGHT = 3600
"""Samples that are looked through for a step."""
LOOK_BACK_TICKS = 64
MOST_FOUND = 10_000


class Marks:
    """The marks of a recording; where it has none, the findings that were found so far.

    Args:
        recorded: In order of time.
    """

    def __init__(self, recorded: Iterable[ReplayMark]) -> None:
        self.all = tuple(recorded)
        """In order of time."""
        self._found: dict[str, ReplayMark] | None = None if self.all else {}

    def note(self, findings: Iterable[Finding]) -> None:
        """Take note of findings that opened or changed; each is one mark, as it was when it opened."""
        if self._found is None:
            return
        before = len(self._found)
        for it in findings:
            if it.id not in self._found and before < MOST_FOUND:
                self._found[it.id] = ReplayMark(it.opened_s, "finding", it.title, it.severity)
        if len(self._found) > before:
            self.all = tuple(sorted(self._found.values(), key=lambda mark: mark.time_s))

    def next(self, time_s: float, direction: int) -> ReplayMark | None:
        """Return the next mark after a moment, or the last one before it."""
        if direction > 0:
            return next((mark for mark in self.all if mark.time_s > time_s), None)
        return next((mark for mark in reversed(self.all) if mark.time_s < time_s), None)


def find_step(tape: Tape, time_s: float, direction: int) -> ReplayMark | None:
    """Return where the next step ended after a moment, or the last one before it.

    Args:
        tape: Whose samples are looked through, some thousand at most.
        time_s: The moment.
        direction: 1 or -1.
    """
    if direction > 0:
        return next(_walk_steps(islice(tape.samples(time_s), MOST_SOUGHT)), None)
    reach_s = LOOK_BACK_TICKS * tape.interval_s
    while reach_s <= 8 * MOST_SOUGHT * tape.interval_s:
        found = [mark for mark in _walk_steps(tape.samples(time_s - reach_s, time_s)) if mark.time_s < time_s]
        if found:
            return found[-1]
        reach_s *= 8
    return None


def _walk_steps(samples: Iterable[Sample]) -> Iterator[ReplayMark]:
    before: dict[object, int] | None = None
    for sample in samples:
        steps = _read_steps(sample)
        if before is not None:
            ended = [step for key, step in steps.items() if before.get(key) != step]
            if ended:
                yield ReplayMark(sample.time_s, "step", f"step {max(ended)}")
        before = steps


def _read_steps(sample: Sample) -> dict[object, int]:
    steps: dict[object, int] = {
        (rank.pid, rank.started_s): rank.step.index for rank in sample.ranks if rank.step is not None
    }
    return steps | {device.uuid: device.step for device in sample.devices if device.step is not None}
