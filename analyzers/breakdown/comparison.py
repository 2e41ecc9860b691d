"""Two profiles held against each other, module by module: what the second has more or less than the first."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from ...engine.model.module_memory import MEMORY_KINDS, ModuleMemory
from .points import make_point_tree
from .tree import Basis, BreakdownNode

WRAPPERS = {"_orig_mod", "_module", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"}
"""Names by which wrappers keep what they wrap: torch.compile, Opacus, FSDP, activation checkpointing."""
OUTER_WRAPPER = "module"
"""The same of DDP and DataParallel; as it is a plain word, at the top and alone only."""
_CHUNK = re.compile(r"activations_\d+")
ALL = "all kinds"


class ComparedNode(msgspec.Struct, frozen=True):
    """A module, a parameter, or a kind, in two profiles."""

    name: str
    first_bytes: int | None
    """0 where the first profile has no such node; None where its bytes are not known."""
    second_bytes: int | None
    is_in_first: bool = True
    is_in_second: bool = True
    children: "tuple[ComparedNode, ...]" = ()

    @property
    def difference_bytes(self) -> int | None:
        """What the second has more; None where one of both is not known."""
        if self.first_bytes is None or self.second_bytes is None:
            return None
        return self.second_bytes - self.first_bytes


class BreakdownComparison(msgspec.Struct, frozen=True):
    """Two profiles, each kind at its most."""

    basis: Basis
    """The figure that is compared."""
    tree: ComparedNode
    """Kinds, and below them the modules."""


class ComparedRow(NamedTuple):
    """A node somewhere in a tree."""

    kind: str
    path: tuple[str, ...]
    """Names below the kind."""
    node: ComparedNode


def compare_profiles(first: ModuleMemory, second: ModuleMemory) -> BreakdownComparison:
    """Return what a second profile holds against a first: measured where both were, else computed."""
    trees = [make_point_tree(memory, MEMORY_KINDS, None, ALL) for memory in (first, second)]
    basis = choose_common_basis(*trees)
    return BreakdownComparison(basis, compare_trees(trees[0], trees[1], basis))


def choose_common_basis(first: BreakdownNode | None, second: BreakdownNode | None) -> Basis:
    """Return the figure that both trees of kinds have something of."""
    is_measured = [
        tree is None or any(kind.measured_bytes for kind in (tree, *tree.children))
        for tree in (first, second)
    ]
    return "measured" if all(is_measured) else "computed"


def compare_trees(first: BreakdownNode | None, second: BreakdownNode | None, basis: Basis) -> ComparedNode:
    """Return two trees as one: the root, kinds, modules. Modules are the same where their paths are.

    The names of wrappers are left out of the paths: `module.layers.0`, `_orig_mod.layers.0` and
    `_module.layers.0` are all `layers.0`.

    Args:
        first: What is held against; None for nothing.
        second: What has more or less.
        basis: Which figure is compared.
    """
    plain = [None if tree is None else _unwrap_root(tree) for tree in (first, second)]
    return _compare(plain[0], plain[1], basis, ALL)


def list_rows(tree: ComparedNode, depth: int) -> list[ComparedRow]:
    """Return what differs, the most apart first: nodes so many levels below their kinds, or fewer where a
    branch ends or one profile alone has it.

    Args:
        tree: All kinds.
        depth: Levels below a kind.
    """
    rows = [
        ComparedRow(kind.name, path, node)
        for kind in tree.children
        for path, node in _walk_to(kind, depth)
        if path
    ]
    return sorted((row for row in rows if row.node.difference_bytes), key=_apart)


def list_unmatched(tree: ComparedNode) -> tuple[list[ComparedRow], list[ComparedRow]]:
    """Return what the first profile alone has, and what the second alone has; nothing below such a node."""
    found: tuple[list[ComparedRow], list[ComparedRow]] = ([], [])
    for kind in tree.children:
        for path, node in _walk_to_unmatched(kind, ()):
            found[0 if node.is_in_first else 1].append(ComparedRow(kind.name, path, node))
    return found


def make_span_tree(node: ComparedNode) -> BreakdownNode:
    """Return a tree to lay out: each node as large as in the larger of both, or as what is below it."""
    children = tuple(map(make_span_tree, node.children))
    sizes = (child.measured_bytes or 0 for child in children)
    span = max(node.first_bytes or 0, node.second_bytes or 0, sum(sizes))
    return BreakdownNode(node.name, span, span, children)


def find_compared(root: ComparedNode, path: Sequence[str]) -> ComparedNode | None:
    """Return the node that names lead to from the root, or None where they lead nowhere."""
    node: ComparedNode | None = root
    for name in path:
        node = None if node is None else next((it for it in node.children if it.name == name), None)
    return node


def _compare(
    first: BreakdownNode | None, second: BreakdownNode | None, basis: Basis, name: str
) -> ComparedNode:
    sizes = [_find_bytes(node, basis) for node in (first, second)]
    is_known_below = (first is None or first.children) and (second is None or second.children)
    pairs = _pair(first, second) if is_known_below else ()
    return ComparedNode(
        name,
        sizes[0],
        sizes[1],
        first is not None,
        second is not None,
        tuple(_compare(one, other, basis, name) for name, one, other in pairs),
    )


def _pair(
    first: BreakdownNode | None, second: BreakdownNode | None
) -> Iterator[tuple[str, BreakdownNode | None, BreakdownNode | None]]:
    """Yield children of both by name, in the order of the first; of the second alone at the end."""
    ones = _key_children(first)
    others = _key_children(second)
    for name in dict.fromkeys([*ones, *others]):
        yield name, ones.get(name), others.get(name)


def _key_children(node: BreakdownNode | None) -> dict[str, BreakdownNode]:
    """Return children by name; those that share one once wrappers are left out are numbered."""
    seen: Counter[str] = Counter()
    keyed = {}
    for child in () if node is None else node.children:
        seen[child.name] += 1
        number = seen[child.name]
        keyed[child.name if number == 1 else f"{child.name} ({number})"] = child
    return keyed


def _find_bytes(node: BreakdownNode | None, basis: Basis) -> int | None:
    if node is None:
        return 0
    return node.measured_bytes if basis == "measured" else node.computed_bytes


def _unwrap_root(tree: BreakdownNode) -> BreakdownNode:
    return msgspec.structs.replace(tree, children=tuple(_unwrap(kind, is_top=True) for kind in tree.children))


def _unwrap(node: BreakdownNode, *, is_top: bool = False) -> BreakdownNode:
    """Return a node in which what wrappers hold stands in their place."""
    modules = [child for child in node.children if not child.name.startswith("(")]
    is_lone = len(modules) == 1
    children: list[BreakdownNode] = []
    for child in node.children:
        is_chunk = is_top and _CHUNK.fullmatch(child.name) is not None
        is_outer = is_top and is_lone and child.name == OUTER_WRAPPER
        inner = _unwrap(child, is_top=is_chunk or is_outer or (is_top and child.name in WRAPPERS))
        is_wrapper = child.name in WRAPPERS or is_outer or (is_chunk and is_lone)
        children += inner.children if is_wrapper and inner.children else (inner,)
    return msgspec.structs.replace(node, children=tuple(children))


def _walk_to(
    node: ComparedNode, depth: int, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], ComparedNode]]:
    if not depth or not node.children or not (node.is_in_first and node.is_in_second):
        yield path, node
        return
    for child in node.children:
        yield from _walk_to(child, depth - 1, (*path, child.name))


def _walk_to_unmatched(
    node: ComparedNode, path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], ComparedNode]]:
    if not (node.is_in_first and node.is_in_second):
        yield path, node
        return
    for child in node.children:
        yield from _walk_to_unmatched(child, (*path, child.name))


def _apart(row: ComparedRow) -> tuple[int, str, tuple[str, ...]]:
    return -abs(row.node.difference_bytes or 0), row.kind, row.path
