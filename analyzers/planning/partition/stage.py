"""What one pipeline stage pays for a run of layers, and how far it reaches within a limit."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

from ....engine.errors import UsageError


class Room(NamedTuple):
    """A second figure that a stage may not exceed, whatever it is balanced by."""

    before: list[int]
    """Sum of the figure over the layers before each position; one entry more than layers."""
    most: int
    costs: Sequence[int]
    """The figure of each layer."""
    most_of_one: int


class Stage(NamedTuple):
    """One stage: its cost of the layers from position a up to position b is `before[b] - before[a]`."""

    before: list[int]
    """Sum of the stage's cost over the layers before each position; one entry more than layers."""
    costs: Sequence[int]
    """Of each layer."""
    most_of_one: int
    """Cost of the dearest layer."""
    room: Room | None = None

    def reach(self, start: int, most: int) -> int:
        """Return the last position that layers from `start` on get to at a cost of at most `most`."""
        end = bisect_right(self.before, self.before[start] + most, start) - 1
        if self.room is None:
            return end
        before = self.room.before
        limit = self.room.most
        return min(end, bisect_right(before, before[start] + limit, start) - 1)

    def reach_back(self, end: int, most: int) -> int:
        """Return the first position from which layers up to `end` cost at most `most`."""
        start = bisect_left(self.before, self.before[end] - most, 0, end)
        if self.room is None:
            return start
        before = self.room.before
        limit = self.room.most
        return max(start, bisect_left(before, before[end] - limit, 0, end))

    def lose(self, end: int, most: int, starts: range) -> int:
        """Return the last of some starts from which `end` is too far; one less than all where none is."""
        lost = bisect_left(self.before, self.before[end] - most, starts.start, starts.stop) - 1
        if self.room is None:
            return lost
        before = self.room.before
        limit = self.room.most
        return max(lost, bisect_left(before, before[end] - limit, starts.start, starts.stop) - 1)


def add_up(costs: Sequence[int]) -> list[int]:
    """Return the sum of the costs before each position, 0 first."""
    return list(accumulate(costs, initial=0))


def make_stage(costs: Sequence[int], room: Room | None = None) -> Stage:
    """Return a stage that pays these costs, at least 0 each, by layer."""
    return Stage(add_up(costs), costs, max(costs, default=0), room)


def make_room(costs: Sequence[int], most: int) -> Room:
    """Return room for layers that take this much, at least 0 each, of at most `most`."""
    return Room(add_up(costs), most, costs, max(costs, default=0))


def check_stages(layers: int, stages: int, least: int = 0) -> None:
    """Refuse a split that cannot be.

    Args:
        layers: How many there are.
        stages: How many are asked for.
        least: The smallest cost of a layer.

    Raises:
        UsageError: No stage, more stages than layers, or a cost below 0.
    """
    if stages < 1:
        raise UsageError(f"{stages} stages: a pipeline has at least 1")
    if stages > layers:
        raise UsageError(
            f"{stages} stages for {layers} layers: each stage needs a layer, so ask for at most {layers}"
        )
    if least < 0:
        raise UsageError(f"a layer costs {least}: expected 0 or more")
