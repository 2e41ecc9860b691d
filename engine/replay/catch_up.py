"""Working out a moment: the samples before it go to a history and to analyzers, and some states are kept."""

import math
from collections.abc import Callable
from typing import NamedTuple

import msgspec

from ..history import History
from ..model import Sample
from .marks import Marks
from .tape import Tape
from .verdicts import Verdicts

ASK_EVERY = 32
"""Samples between two looks at whether something newer was asked for."""
KEPT_BEFORE_TICKS = (120, 12, 0)
"""How long before a moment states are kept, for whoever goes back from it in tens of seconds or sample by
sample, or comes back to it."""


class Checkpoint(NamedTuple):
    """What is known of a node at one of its samples."""

    start_s: float
    """Where the window begins."""
    time_s: float | None
    """Time of the newest sample that was taken; None where there was none."""
    seq: int
    history: History
    verdicts: Verdicts

    @property
    def key(self) -> tuple[float, float]:
        """Window and time, by which it is found."""
        return self.start_s, -math.inf if self.time_s is None else self.time_s

    def copy(self) -> "Checkpoint | None":
        """Return another one that goes on from here by itself; None where an analyzer cannot be copied."""
        verdicts = self.verdicts.copy()
        return None if verdicts is None else self._replace(history=self.history.copy(), verdicts=verdicts)


class CatchUp:
    """Goes from a checkpoint to a moment, with pauses.

    Args:
        tape: Whose samples.
        target_s: Time of the sample that is to be reached.
        begun: Where it begins; it is used up.
        most_kept: States that may be kept on the way.
    """

    def __init__(self, tape: Tape, target_s: float, begun: Checkpoint, *, most_kept: int) -> None:
        self._now = begun
        self.checkpoints: list[Checkpoint] = []
        """States on the way, oldest first."""
        start_s = begun.start_s if begun.time_s is None else math.nextafter(begun.time_s, math.inf)
        self._samples, self._node = tape.samples(start_s, target_s), tape.node
        due_s = [target_s - ticks * tape.interval_s for ticks in KEPT_BEFORE_TICKS[: max(0, most_kept)]]
        self._due_s = [it for it in due_s if it > begun.key[1]]

    @property
    def reached(self) -> Checkpoint:
        """How far it is."""
        return self._now

    def run(self, marks: Marks, is_called: Callable[[], bool]) -> bool:
        """Go on; return whether the moment is reached.

        Args:
            marks: Told of what is found.
            is_called: Whether something else is to be done.
        """
        while not is_called():
            for _ in range(ASK_EVERY):
                sample = next(self._samples, None)
                while self._due_s and (sample is None or sample.time_s > self._due_s[0]):
                    self._due_s.pop(0)
                    self._keep()
                if sample is None:
                    return True
                self._take(sample, marks)
        return False

    def _take(self, sample: Sample, marks: Marks) -> None:
        now = self._now
        played = msgspec.structs.replace(sample, seq=now.seq + 1)
        now.history.add(played)
        marks.note(self._node, now.verdicts.observe(played))
        self._now = now._replace(time_s=sample.time_s, seq=played.seq)

    def _keep(self) -> None:
        kept = None if self._now.time_s is None else self._now.copy()
        if kept is not None:
            self.checkpoints.append(kept)
