"""Live blocks by the Python stack that allocated them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...engine.model.memory_snapshot import Frame, StackTable
from ..stack_frames import find_headline, keep_python
from .model import StackGroup

if TYPE_CHECKING:
    from .view import IntArray


class StackGrouper:
    """Puts blocks into groups by the Python part of their stack."""

    def __init__(self, stacks: StackTable) -> None:
        self._stacks = stacks
        self._groups: dict[tuple[Frame, ...], int] = {}
        self._group_of: list[int] = []
        for stack in range(len(stacks)):
            frames = keep_python(stacks.frames_of(stack))
            self._group_of.append(self._groups.setdefault(frames, len(self._groups)))

    def group(self, stack: IntArray, size_bytes: IntArray, most: int) -> tuple[tuple[StackGroup, ...], int]:
        """Return the largest groups of some blocks, and how many groups there are.

        Args:
            stack: Stack of every block; below 0 where there is none.
            size_bytes: Size of every block.
            most: Groups to return.
        """
        import numpy as np

        if not len(stack):
            return (), 0
        # One more group, the last, holds the blocks without a stack.
        table = np.array([*self._group_of, len(self._groups)], dtype=np.int64)
        group = table[stack]
        sums = np.zeros(len(self._groups) + 1, dtype=np.int64)
        np.add.at(sums, group, size_bytes)
        counts = np.bincount(group, minlength=len(sums))
        order = np.lexsort((np.arange(len(sums)), -sums))
        present = [row for row in order.tolist() if counts[row]]
        keys = [*self._groups, ()]
        total = max(int(sums.sum()), 1)
        largest = tuple(
            make_group(keys[row], int(sums[row]), int(counts[row]), int(sums[row]) / total)
            for row in present[:most]
        )
        return largest, len(present)

    def describe(self, stack: int, size_bytes: int) -> StackGroup:
        """Return the stack of one request."""
        return make_group(keep_python(self._stacks.frames_of(stack)), size_bytes, 1, 1.0)


def make_group(frames: tuple[Frame, ...], size_bytes: int, count: int, share: float) -> StackGroup:
    """Return a group with its headline.

    Args:
        frames: Python frames, innermost first.
        size_bytes: Sum of its blocks.
        count: How many blocks.
        share: Part of all live bytes.
    """
    return StackGroup(
        size_bytes=size_bytes, count=count, share=share, headline=find_headline(frames), frames=frames
    )
