"""What a run of another size would need at most: the largest of the laws of its phases.

The peak of a run is the largest of several phases, and which one that is changes with the size: a law of the
peaks alone breaks there, laws of the phases do not.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from ....engine.model.phase_memory import MemoryLevels, PhaseRun
from .fitting import fit_law
from .law import LengthLaw

PeakKind = Literal["allocated", "reserved"]


class PhaseLaw(msgspec.Struct, frozen=True, kw_only=True):
    """By what law the peak of one phase grows."""

    phase: str
    step: int | None
    """None for phases before the first step."""
    law: LengthLaw


class PeakLaws(msgspec.Struct, frozen=True):
    """The laws of the peaks of all phases; none where one of them was seen at a single size."""

    laws: tuple[PhaseLaw, ...]

    def predict(self, size: int) -> float | None:
        """Return the bytes that a run of a size would need at most; None where nothing is known."""
        return max((each.law.predict(size) for each in self.laws), default=None)

    def find_largest(self, sizes: Sequence[int]) -> tuple[PhaseLaw, ...]:
        """Return the laws that are the largest of all at one of some sizes, in the order of these."""
        if not self.laws:
            return ()
        largest = (max(self.laws, key=lambda each: each.law.predict(size)) for size in sizes)
        return tuple({(each.phase, each.step): each for each in largest}.values())


def fit_peaks(runs: Mapping[int, PhaseRun], kind: PeakKind) -> PeakLaws:
    """Return the laws of the peaks; through two sizes goes a line.

    Args:
        runs: By their size: tokens of a sequence, or sequences of a batch. What ran out of memory tells the
            phases before.
        kind: Of which memory.
    """
    peaks: dict[tuple[str, int | None], dict[int, int]] = defaultdict(dict)
    for size, run in runs.items():
        for each in run.phases:
            value = read_peak(each.peak, kind)
            if value is not None:
                peaks[each.phase, each.step][size] = value
    laws = []
    for (phase, step), values in peaks.items():
        law = _fit(list(values), list(values.values()))
        if law is None:
            return PeakLaws(())  # the phase without a law may be the one that needs most
        laws.append(PhaseLaw(phase=phase, step=step, law=law))
    return PeakLaws(tuple(laws))


def read_peak(levels: MemoryLevels, kind: PeakKind) -> int | None:
    """Return the one or the other figure; None is unmeasured."""
    return levels.allocated_bytes if kind == "allocated" else levels.reserved_bytes


def _fit(sizes: Sequence[int], values: Sequence[int]) -> LengthLaw | None:
    if len(sizes) != 2:
        return fit_law(sizes, values)
    slope = (values[1] - values[0]) / (sizes[1] - sizes[0])
    return LengthLaw(
        form="linear",
        constant_bytes=values[0] - slope * sizes[0],
        bytes_per_token=slope,
        points=2,
        residual_bytes=0.0,
        left_out_bytes=0.0,
    )
