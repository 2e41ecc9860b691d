"""Profiles by module as the Breakdown screen shows them: which there are, and what part of one is seen."""

from typing import NamedTuple

from ...analyzers.breakdown import BreakdownNode, find_node, make_point_tree
from ...engine.model.module_memory import MEMORY_KINDS, MemoryKind, ModuleMemory

ALL_KINDS = "all kinds"
KIND_CHOICES: dict[str, tuple[MemoryKind, ...]] = {
    ALL_KINDS: MEMORY_KINDS,
    "parameters": ("params",),
    "gradients": ("grads",),
    "optimizer": ("os_params", "os_state"),
    "activations": ("activation",),
}
"""What can be shown, by its word."""


class Profiled(NamedTuple):
    """The profile of one rank of one run."""

    name: str
    """Of its file or folder, short enough for a title."""
    memory: ModuleMemory


class Place(NamedTuple):
    """What is looked at, apart from whose it is."""

    point: int | None = None
    """Index of a moment; None for the whole profile."""
    kind: str = ALL_KINDS

    def make_tree(self, memory: ModuleMemory) -> BreakdownNode | None:
        """Return what a profile has there."""
        return make_point_tree(memory, KIND_CHOICES[self.kind], self.point, self.kind)

    def find_in_other(self, memory: ModuleMemory, other: ModuleMemory) -> "Place | None":
        """Return the same place of another profile; None where its moments are not the same ones."""
        if self.point is None:
            return self
        is_there = self.point < len(other.moments)
        if is_there and other.moments[self.point].tag == memory.moments[self.point].tag:
            return self
        return None


def find_block(tree: BreakdownNode | None, path: tuple[str, ...]) -> BreakdownNode | None:
    """Return a block of a tree, or None where there is none such."""
    return None if tree is None else find_node(tree, path)
