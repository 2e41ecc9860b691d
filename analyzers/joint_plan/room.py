"""How many layers each stage of a candidate can hold."""

from collections.abc import Sequence

from ..memory_theory import ModelShape
from ..memory_theory.estimate import estimate_pieces
from ..memory_theory.layer_figures import RunFigures
from ..memory_theory.schedule import count_in_flight
from .space import Candidate


class StageRooms:
    """Peaks of the stages of one candidate, by how many layers they hold.

    A stage of layers that are alike holds the same wherever in the model they are. Where layers are of
    several kinds, those with experts are taken, which hold more.

    Args:
        shape: The model.
        candidate: Degrees and training.
        capacities: Bytes of each stage's smallest device, as far as a plan fills them.
    """

    def __init__(self, shape: ModelShape, candidate: Candidate, capacities: tuple[int, ...]) -> None:
        self._layers, self._layout, self._setup = shape.layers, candidate.layout, candidate.setup
        self._capacities = capacities
        self._run = RunFigures(shape, candidate.layout, candidate.setup)
        self._peaks: dict[tuple[object, ...], int] = {}

    def fits(self, counts: Sequence[int]) -> bool:
        """Tell whether every stage has room for so many layers."""
        return all(
            self.find_peak(stage, count) <= self._capacities[stage] for stage, count in enumerate(counts)
        )

    def count_layers(self) -> tuple[int, ...] | None:
        """Return the most layers of each stage; None where they are too few, or a stage holds none."""
        stages = self._layout.pipeline
        if stages > 2 and len({*self._capacities}) == 1 and not self._could_hold():
            return None
        counts: list[int] = []
        for stage in range(stages):
            counts.append(self._count(stage, counts[-1] if counts else 1))
            if not counts[-1]:
                return None
        return tuple(counts) if sum(counts) >= self._layers else None

    def _could_hold(self) -> bool:
        """Tell whether all stages have room together, were they in flight like the last but one."""
        stages = self._layout.pipeline
        first, middle = self._count(0, 1), self._count(stages - 2, 1)
        return first + (stages - 2) * middle + self._count(stages - 1, middle) >= self._layers

    def _count(self, stage: int, guess: int) -> int:
        """Return the most layers of a stage, near the guess; 0 where it has no room for one."""
        most = self._layers - self._layout.pipeline + 1
        count = min(max(1, guess), most)
        while count and self.find_peak(stage, count) > self._capacities[stage]:
            count -= 1
        while 0 < count < most and self.find_peak(stage, count + 1) <= self._capacities[stage]:
            count += 1
        return count

    def find_peak(self, stage: int, count: int) -> int:
        """Return the bytes that a stage of so many layers holds at most."""
        in_flight = count_in_flight(self._layout, self._setup, stage)
        key = (stage == 0, stage == self._layout.pipeline - 1, in_flight, count)
        if key not in self._peaks:
            self._peaks[key] = estimate_pieces(self._run, stage, self._cut(count)).peak_bytes
        return self._peaks[key]

    def _cut(self, count: int) -> list[range]:
        """Return as many of the last layers, in as many pieces as a rank has."""
        pieces = self._layout.virtual_stages
        share = count // pieces
        ends = [self._layers - share * number for number in range(pieces)]
        return [range(end - share, end) for end in reversed(ends)]
