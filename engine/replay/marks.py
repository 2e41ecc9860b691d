"""Moments worth jumping to: findings, out-of-memory errors, and steps where there is neither."""

from collections.abc import Iterable, Iterator
from itertools import islice

from ..model import Finding, Sample
from ..viewer.replay_state import ReplayMark
from .tape import Tape

MOST_SOUGHT = 3600
"""Samples that are looked through for a step."""
LOOK_BACK_TICKS = 64
MOST_FOUND = 10_000


class Marks:
    """The marks of recordings; of nodes that have none, the findings that were found so far.

    Args:
        recorded: Those that are recorded.
    """

    def __init__(self, recorded: Iterable[ReplayMark]) -> None:
        self._recorded = tuple(recorded)
        self._has_recorded = {mark.node for mark in self._recorded}
        self.all = tuple(sorted(self._recorded, key=_place_of))
        """In order of time, and of nodes at one time."""
        self._found: dict[tuple[str, str], ReplayMark] = {}

    def note(self, node: str, findings: Iterable[Finding]) -> None:
        """Take note of findings of a node that opened or changed; each is one mark, as it was then."""
        if node in self._has_recorded:
            return
        before = len(self._found)
        for it in findings:
            if (node, it.id) not in self._found and before < MOST_FOUND:
                mark = ReplayMark(it.opened_s, "finding", it.title, it.severity, node)
                self._found[node, it.id] = mark
        if len(self._found) > before:
            self.all = tuple(sorted((*self._recorded, *self._found.values()), key=_place_of))

    def next(self, time_s: float, direction: int, node: str = "") -> ReplayMark | None:
        """Return the next mark after a moment, or the last one before it.

        Args:
            time_s: The moment.
            direction: 1 or -1.
            node: The node that is looked at: marks of that moment at nodes that come after it are next.
        """
        place = time_s, node
        if direction > 0:
            return next((mark for mark in self.all if _place_of(mark) > place), None)
        return next((mark for mark in reversed(self.all) if _place_of(mark) < place), None)


def _place_of(mark: ReplayMark) -> tuple[float, str]:
    return mark.time_s, mark.node


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
    return _find_first(tape, time_s)


def _find_first(tape: Tape, time_s: float) -> ReplayMark | None:
    """Return where the first iteration of a trace begins: before it there is none that could have ended."""
    first = next(tape.samples(tape.start_s, tape.start_s), None) if tape.clock == "trace" else None
    steps = {} if first is None else _read_steps(first)
    if first is None or not steps or first.time_s >= time_s:
        return None
    return ReplayMark(first.time_s, "step", f"step {min(steps.values())}", node=first.node)


def _walk_steps(samples: Iterable[Sample]) -> Iterator[ReplayMark]:
    """Yield where a step was reached that no process or device was at before: the others follow it."""
    before: dict[object, int] | None = None
    for sample in samples:
        steps = _read_steps(sample)
        if before is not None:
            others = set(before.values())
            ended = [step for key, step in steps.items() if before.get(key) != step and step not in others]
            if ended:
                yield ReplayMark(sample.time_s, "step", f"step {max(ended)}", node=sample.node)
        before = steps


def _read_steps(sample: Sample) -> dict[object, int]:
    steps: dict[object, int] = {
        (rank.pid, rank.started_s): rank.step.index for rank in sample.ranks if rank.step is not None
    }
    return steps | {device.uuid: device.step for device in sample.devices if device.step is not None}
