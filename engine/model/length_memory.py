"""Memory of training runs by length of their sequences, and the largest sizes that fit a card."""

from typing import Literal

import msgspec

from .phase_memory import PhaseRun, PhaseTraining, PrivacyMode

FitSize = Literal["batch size", "sequence length"]


class LengthPoint(msgspec.Struct, frozen=True, kw_only=True):
    """One run: one algorithm at one length."""

    privacy: PrivacyMode
    seq_length: int
    run: PhaseRun | None = None
    """As far as it came; None where it could not be started."""
    refusal: str | None = None
    """Why it could not be started."""


class LengthStudy(msgspec.Struct, frozen=True, kw_only=True):
    """Runs that differ in the length of their sequences, and in the algorithm where several are compared."""

    training: PhaseTraining
    """What all have in common; length and algorithm are those of each point."""
    device: str
    """As it was asked for, such as `simulate:24GiB`."""
    lengths: tuple[int, ...]
    """Tokens, ascending."""
    privacy_modes: tuple[PrivacyMode, ...]
    points: tuple[LengthPoint, ...] = ()
    """In the order in which they ran; fewer than were asked for where it was interrupted."""
    is_interrupted: bool = False

    def find_point(self, privacy: PrivacyMode, seq_length: int) -> LengthPoint | None:
        """Return a point; None where it was not reached."""
        return next(
            (each for each in self.points if (each.privacy, each.seq_length) == (privacy, seq_length)), None
        )

    @property
    def runs(self) -> tuple[PhaseRun, ...]:
        """All that was started."""
        return tuple(each.run for each in self.points if each.run is not None)

    @property
    def is_simulated(self) -> bool:
        """Whether any figure is that of a simulated device."""
        return any(run.device.kind == "simulated" for run in self.runs)


class FitTrial(msgspec.Struct, frozen=True, kw_only=True):
    """One size that was tried."""

    size: int
    """Sequences of a batch, or tokens of a sequence."""
    has_fitted: bool
    peak_reserved_bytes: int | None = None
    """None where it ran out of memory, or nobody measured it."""
    reason: str | None = None
    """Why it did not fit."""


class FitSearch(msgspec.Struct, frozen=True, kw_only=True):
    """The largest size that runs within a card, and the runs that say so."""

    privacy: PrivacyMode
    varied: FitSize
    fixed: int
    """The other one of both."""
    step: int
    """Sizes that were considered are its multiples."""
    capacity_bytes: int
    context_bytes: int
    """Of the card, left to the CUDA context: an assumption."""
    device: str
    """On which it ran, by name."""
    is_simulated: bool
    trials: tuple[FitTrial, ...] = ()
    """In order."""
    limit: int | None = None
    """Largest size that was to be considered."""
    refusal: str | None = None
    """Why the search ended before it had an answer."""

    @property
    def largest(self) -> FitTrial | None:
        """The largest size that ran; None where none did."""
        return max((it for it in self.trials if it.has_fitted), key=lambda it: it.size, default=None)

    @property
    def refused(self) -> FitTrial | None:
        """The smallest size above it that did not run; None where none was met."""
        least = 0 if self.largest is None else self.largest.size
        above = (it for it in self.trials if not it.has_fitted and it.size > least)
        return min(above, key=lambda it: it.size, default=None)

    @property
    def is_settled(self) -> bool:
        """Whether the largest that ran and the smallest that did not are neighbours, or the limit ran."""
        largest = self.largest
        refused = self.refused
        if largest is not None and largest.size == self.limit:
            return True
        below = 0 if largest is None else largest.size
        return refused is not None and refused.size - below == self.step
