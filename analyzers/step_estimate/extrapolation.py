"""Deep models from shallow ones: whatever grows by the same amount with every layer.

The most that is live at one place of a step (a phase, and a module by its name without numbers, first or
last of its list) is linear in the depth where all layers are alike. The greatest of these lines at the depth
that is asked for is the peak, wherever the peak of the shallow models is.
"""

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from typing import TypeVar

import msgspec

from .module_labels import deepen_name
from .peaks import Live, Peak, Place, StepPeaks

_Key = TypeVar("_Key", bound=Hashable)


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """A straight line through the figures of two depths, of which a third is asked."""

    first: int
    second: int
    asked: int

    def at(self, first_bytes: int, second_bytes: int) -> int:
        """Return the figure at the depth that is asked for, from those of the two."""
        growth = (second_bytes - first_bytes) * (self.asked - self.first)
        return first_bytes + round(growth / (self.second - self.first))

    def add_up(self, first: Mapping[_Key, int], second: Mapping[_Key, int]) -> Counter[_Key]:
        """Return the same for figures by name; one that is in neither is in none."""
        found = Counter(
            {name: self.at(first.get(name, 0), second.get(name, 0)) for name in {**first, **second}}
        )
        return +found


class DeepPeaks:
    """The peaks of a model that was not traced."""

    def __init__(self, first: StepPeaks, second: StepPeaks, layers: int) -> None:
        self.line = Line(first=_depth(first), second=_depth(second), asked=layers)
        self._first, self._second = first, second
        shared = first.by_place.keys() & second.by_place.keys()
        self.by_place: dict[Place, Peak] = {place: self._extend(place) for place in sorted(shared)}

    @property
    def place(self) -> Place:
        """Where the peak is."""
        return max(self.by_place, key=lambda place: self.by_place[place].live_bytes)

    def describe(self) -> Live:
        """Return what is live at the peak."""
        first = self._first.describe(self._first.by_place[self.place].event)
        second = self._second.describe(self._second.by_place[self.place].event)
        return Live(
            kinds=self.line.add_up(first.kinds, second.kinds),
            modules=self.line.add_up(first.modules, second.modules),
            stacks=self.line.add_up(first.stacks, second.stacks),
        )

    def _extend(self, place: Place) -> Peak:
        first, second = self._first.by_place[place], self._second.by_place[place]
        module = deepen_name(first.module, second.module, self.line.asked - self.line.second)
        return Peak(
            event=-1,
            live_bytes=self.line.at(first.live_bytes, second.live_bytes),
            phase=place[0],
            module=module,
        )


def _depth(peaks: StepPeaks) -> int:
    return peaks.trace.layers or 0


def order_by_depth(peaks: Sequence[StepPeaks]) -> list[StepPeaks]:
    """Return traces from the shallowest model to the deepest."""
    return sorted(peaks, key=_depth)
