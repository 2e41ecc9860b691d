"""A tree of bytes by module: what charts, screens and tables draw."""

from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

from ...engine.model.module_memory import LayoutEntry

Basis = Literal["measured", "computed"]
"""Which of two figures is drawn: what storages hold, or what the shapes of tensors come to."""


class BreakdownNode(msgspec.Struct, frozen=True):
    """A module, a parameter, or a kind, with all that is below it."""

    name: str
    computed_bytes: int | None
    """Of the node and all below it; None where that of one of them is not known."""
    measured_bytes: int | None
    children: "tuple[BreakdownNode, ...]" = ()


class _Draft:
    """A node while entries are still added."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.own: list[LayoutEntry] = []
        self.children: dict[str, _Draft] = {}

    def freeze(self) -> BreakdownNode:
        """Return the node with all that is below it."""
        children = tuple(child.freeze() for child in self.children.values())
        computed = [entry.computed_bytes for entry in self.own] + [it.computed_bytes for it in children]
        measured = [entry.measured_bytes for entry in self.own] + [it.measured_bytes for it in children]
        return BreakdownNode(self.name, _sum(computed), _sum(measured), children)


def make_tree(name: str, entries: Iterable[LayoutEntry]) -> BreakdownNode:
    """Return the tree of a layout, in the order of its entries.

    The root of the entries' own paths gives way to the tree's; where they have several, as the chunks of an
    interleaved pipeline have, each of them is a child.

    Args:
        name: Of the root.
        entries: Own bytes by path.
    """
    draft = _Draft(name)
    for entry in entries:
        node = draft
        for part in entry.path.split("."):
            node = node.children.setdefault(part, _Draft(part))
        node.own.append(entry)
    root = draft.freeze()
    if len(root.children) == 1:
        return msgspec.structs.replace(root.children[0], name=name)
    return root


def size_of(node: BreakdownNode, basis: Basis) -> int:
    """Return the bytes to draw a node by; what is not known, and what went below zero, takes no room."""
    size = node.measured_bytes if basis == "measured" else node.computed_bytes
    return max(0, size or 0)


def choose_basis(node: BreakdownNode) -> Basis:
    """Return the figure to draw a tree by: what was measured, where it was and came to anything."""
    return "measured" if node.measured_bytes else "computed"


def find_node(root: BreakdownNode, path: Sequence[str]) -> BreakdownNode | None:
    """Return the node that names lead to from the root, or None where they lead nowhere."""
    node: BreakdownNode | None = root
    for name in path:
        node = None if node is None else next((it for it in node.children if it.name == name), None)
    return node


def _sum(sizes: list[int | None]) -> int | None:
    known = [size for size in sizes if size is not None]
    return sum(known) if len(known) == len(sizes) else None
