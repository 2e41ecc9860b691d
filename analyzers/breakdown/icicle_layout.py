"""Where the nodes of a tree lie in an icicle or a sunburst: one level a row or ring, lengths as the bytes."""

from collections.abc import Iterator

import msgspec

from .tree import Basis, BreakdownNode, size_of


class IcicleCell(msgspec.Struct, frozen=True):
    """A node in its row. `start` and `end` are shares of the whole length, from 0 to 1."""

    path: tuple[str, ...]
    """Names from below the root on; the root's own is empty."""
    name: str
    depth: int
    start: float
    end: float
    size_bytes: int
    has_children: bool


def lay_out_icicle(root: BreakdownNode, basis: Basis, most_depth: int = 64) -> tuple[IcicleCell, ...]:
    """Return the cells of a tree, each before its children and these in their order.

    Children begin where their parent does and never reach beyond it; what a node holds itself is left free
    at its end. Nodes of no bytes have no cell.

    Args:
        root: The tree.
        basis: The figure that lengths show.
        most_depth: Levels below the root.
    """
    total_bytes = size_of(root, basis)
    if not total_bytes:
        return ()
    return tuple(_lay_out(root, basis, (), 0, (total_bytes, total_bytes), most_depth))


def _lay_out(
    node: BreakdownNode,
    basis: Basis,
    path: tuple[str, ...],
    first: int,
    whole: tuple[int, int],
    most_depth: int,
) -> Iterator[IcicleCell]:
    """Yield the cells of a node and below; `whole` is the bytes of all, and those that the node may take."""
    total_bytes, room_bytes = whole
    size_bytes = min(size_of(node, basis), room_bytes)
    if not size_bytes:
        return
    end = (first + size_bytes) / total_bytes
    yield IcicleCell(path, node.name, len(path), first / total_bytes, end, size_bytes, bool(node.children))
    if len(path) >= most_depth:
        return
    left_bytes = size_bytes
    for child in node.children:
        yield from _lay_out(child, basis, (*path, child.name), first, (total_bytes, left_bytes), most_depth)
        taken = min(size_of(child, basis), left_bytes)
        first = first + taken
        left_bytes = left_bytes - taken
