"""Memory by module: trees of bytes out of a profile, their layout in a drawing, why two sizes differ."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple, TypeVar

import msgspec

from ..engine.model.sample import MEMORY_KINDS, KindBytes, LayoutEntry, MemoryKind, MemoryMoment, ModuleMemory
from ..engine.units import MIB, format_bytes
from ..engine.unmeasured import sum_all

# A tree of bytes by module: what charts, screens and tables draw.

# Which of two sizes is drawn: the bytes of storages, or those computed from the shapes of tensors.

Basis = Literal["measured", "computed"]


class BreakdownNode(msgspec.Struct, frozen=True):
    """A module, a parameter, or a kind, with all that is below it."""

    name: str
    # Sum of the node and all below it; None where one of them is unknown.
    computed_bytes: int | None
    measured_bytes: int | None
    children: "tuple[BreakdownNode, ...]" = ()


class _Draft:
    """A node while entries are still added."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.own: list[LayoutEntry] = []
        self.children: dict[str, _Draft] = {}

    def freeze(self) -> BreakdownNode:
        children = tuple(child.freeze() for child in self.children.values())
        computed = [entry.computed_bytes for entry in self.own] + [it.computed_bytes for it in children]
        measured = [entry.measured_bytes for entry in self.own] + [it.measured_bytes for it in children]
        return BreakdownNode(self.name, sum_all(computed), sum_all(measured), children)


def make_tree(name: str, entries: Iterable[LayoutEntry]) -> BreakdownNode:
    """Build the tree of a layout, in the order of its entries, which have own bytes by path.

    The root of the entries' own paths is replaced by the tree's; where they have several, as the chunks of an
    interleaved pipeline have, each of them is a child.
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
    """Return the bytes to draw a node by; unknown and negative ones count as 0."""
    size = node.measured_bytes if basis == "measured" else node.computed_bytes
    return max(0, size or 0)


def choose_basis(node: BreakdownNode) -> Basis:
    """Return the size to draw a tree by: the measured one, where it was measured and is not 0."""
    return "measured" if node.measured_bytes else "computed"


NodeT = TypeVar("NodeT", "BreakdownNode", "ComparedNode")


def find_node(root: NodeT, path: Sequence[str]) -> NodeT | None:
    """Return the node that names lead to from the root, or None where they lead nowhere."""
    node: NodeT | None = root
    for name in path:
        node = None if node is None else next((it for it in node.children if it.name == name), None)
    return node


# A profile as trees: of its last moment and largest values, or of one moment among them.

KIND_WORDS: dict[MemoryKind, str] = {
    "params": "parameters",
    "grads": "gradients",
    "os_params": "optimizer parameters",
    "os_state": "optimizer state",
    "activation": "activations",
}


class KindBreakdown(msgspec.Struct, frozen=True):
    kind: MemoryKind
    computed_bytes: int | None
    measured_bytes: int | None
    # None where the profile had not written it.
    tree: BreakdownNode | None


class Breakdown(msgspec.Struct, frozen=True, kw_only=True):
    """All kinds of memory of one rank."""

    # Name of the moment; `whole profile` where sizes are the largest of all moments.
    tag: str
    time_s: float
    kinds: tuple[KindBreakdown, ...]
    # Bytes that the allocator of the device reported: at the moment, or at the most.
    allocated_bytes: int | None = None
    # The part of it that belongs to no kind: buffers, temporary tensors, workspaces, rounding.
    unattributed_bytes: int | None = None

    def find(self, kind: MemoryKind) -> KindBreakdown:
        return next(each for each in self.kinds if each.kind == kind)


def make_breakdown(memory: ModuleMemory, moment: int | None = None) -> Breakdown:
    """Return the trees of a profile; at a moment (an index), the newest ones until then."""
    seen = memory.moments if moment is None else memory.moments[: moment + 1]
    chosen = seen if moment is None else seen[-1:]
    fullest = max(chosen, key=lambda each: each.allocated_bytes or 0)
    return Breakdown(
        tag="whole profile" if moment is None else chosen[0].tag,
        time_s=seen[-1].time_s,
        kinds=tuple(_make_kind(kind, seen, chosen) for kind in MEMORY_KINDS),
        allocated_bytes=fullest.allocated_bytes,
        unattributed_bytes=_find_unattributed(fullest),
    )


def _make_kind(
    kind: MemoryKind, seen: tuple[MemoryMoment, ...], chosen: tuple[MemoryMoment, ...]
) -> KindBreakdown:
    names = (kind, f"{kind}_peak") if len(chosen) > 1 else (kind,)
    figures = [moment.kinds[name] for moment in chosen for name in names if name in moment.kinds]
    layout = _find_layout(kind, seen, is_largest=len(chosen) > 1)
    return KindBreakdown(
        kind,
        _find_most(figure.computed_bytes for figure in figures),
        _find_most(figure.measured_bytes for figure in figures),
        None if layout is None else make_tree(KIND_WORDS[kind], layout),
    )


def _find_layout(
    kind: MemoryKind, seen: tuple[MemoryMoment, ...], *, is_largest: bool
) -> tuple[LayoutEntry, ...] | None:
    """Return the newest layout of a kind; of several the newest in which most was measured."""
    layouts = [moment.layouts[kind] for moment in reversed(seen) if moment.layouts.get(kind)]
    if not is_largest:
        return next(iter(layouts), None)
    return max(layouts, key=lambda layout: sum(it.measured_bytes or 0 for it in layout), default=None)


def _find_most(sizes: Iterable[int | None]) -> int | None:
    """Return the largest; None where one is unknown, which may have been larger."""
    found = list(sizes)
    known = [size for size in found if size is not None]
    return max(known, default=None) if len(known) == len(found) else None


def _find_unattributed(moment: MemoryMoment) -> int | None:
    if moment.allocated_bytes is None:
        return None
    known = [moment.kinds.get(kind, KindBytes()).measured_bytes for kind in MEMORY_KINDS]
    if None in known:
        return None
    return moment.allocated_bytes - sum(size or 0 for size in known)


# The layout of a tree as an icicle or a sunburst: one level a row or ring, lengths as the bytes.


class IcicleCell(msgspec.Struct, frozen=True):
    """A node in its row. `start` and `end` are shares of the whole length, from 0 to 1."""

    # Names from below the root on; the root's own is empty.
    path: tuple[str, ...]
    name: str
    depth: int
    start: float
    end: float
    size_bytes: int
    has_children: bool


def lay_out_icicle(root: BreakdownNode, basis: Basis, most_depth: int = 64) -> tuple[IcicleCell, ...]:
    """Return the cells of a tree, each before its children and these in their order.

    Children begin where their parent does and never reach beyond it; a node's own bytes are left free at its
    end. Nodes of no bytes have no cell. Lengths show bytes of the basis.
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
    """Yield the cells of a node and below; `whole` is the bytes of all, and the room of the node."""
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


# One point of a profile as one tree: kinds as large as they were then, modules where they were written so.

# Below this difference two sizes count as the same.

_LEAST_SHARE = 0.01
# Above it two sizes differ, whatever was rounded.
_MOST_SHARE = 0.1
# Rounding error of a size in `memory.log`, which has two decimals of a MiB.
_ROUNDED_BYTES = MIB // 200


def make_point_tree(
    memory: ModuleMemory, kinds: Sequence[MemoryKind], moment: int | None, name: str
) -> BreakdownNode | None:
    """Return the tree of some kinds at one moment, or at the most of each; None where none was written.

    A profile writes totals at every moment and modules at a few. Each kind has its total of the moment, and
    below it the modules of the nearest moment that wrote them with that total, to a hundredth or to what the
    file rounds off (a tenth at most); without such a moment the kind has nothing below it, because it is
    unknown whose the bytes were. A moment is its index; None is the whole profile. `name` is that of the
    root, where there are several kinds.
    """
    whole = make_breakdown(memory) if moment is None else None
    totals = [_find_total(memory, kind, moment, whole) for kind in kinds]
    place = len(memory.moments) - 1 if moment is None else moment
    found = [
        _make_kind_node(memory, kind, total, place)
        for kind, total in zip(kinds, totals, strict=True)
        if total is not None
    ]
    if len(kinds) == 1 or not found:
        return found[0] if found else None
    return BreakdownNode(
        name,
        sum_all([tree.computed_bytes for tree in found]),
        sum_all([tree.measured_bytes for tree in found]),
        tuple(found),
    )


def _find_total(
    memory: ModuleMemory, kind: MemoryKind, moment: int | None, whole: Breakdown | None
) -> KindBytes | None:
    """Return the total of a kind at a moment; for the whole profile the most, or else the sum of its
    modules.
    """
    if moment is not None:
        return memory.moments[moment].kinds.get(kind)
    if whole is None:
        return None
    most = whole.find(kind)
    tree = most.tree
    if tree is None and most.computed_bytes is None and most.measured_bytes is None:
        return None
    return KindBytes(
        tree.computed_bytes if most.computed_bytes is None and tree is not None else most.computed_bytes,
        tree.measured_bytes if most.measured_bytes is None and tree is not None else most.measured_bytes,
    )


def _make_kind_node(memory: ModuleMemory, kind: MemoryKind, total: KindBytes, place: int) -> BreakdownNode:
    for tree, slack_bytes in _list_trees(memory, kind, place):
        if _is_same_size(tree, total, slack_bytes):
            children = tree.children
            break
    else:
        children = ()
    return BreakdownNode(KIND_WORDS[kind], total.computed_bytes, total.measured_bytes, children)


def _list_trees(memory: ModuleMemory, kind: MemoryKind, moment: int) -> Iterator[tuple[BreakdownNode, int]]:
    """Yield the trees that were written of a kind, nearest moment's first, and how far off they may be."""
    rounded_bytes = _ROUNDED_BYTES if memory.format == "InternLM log" else 0
    places = sorted(range(len(memory.moments)), key=lambda place: (abs(place - moment), place))
    for place in places:
        layout = memory.moments[place].layouts.get(kind)
        if layout:
            yield make_tree(KIND_WORDS[kind], layout), (len(layout) + 1) * rounded_bytes


def _is_same_size(tree: BreakdownNode, total: KindBytes, slack_bytes: int) -> bool:
    """Return whether both sizes are those of a total, as far as they are known."""
    pairs = ((tree.measured_bytes, total.measured_bytes), (tree.computed_bytes, total.computed_bytes))
    known = [(one, other) for one, other in pairs if one is not None and other is not None]
    for one, other in known:
        most = max(one, other)
        if abs(one - other) > max(_LEAST_SHARE * most, min(slack_bytes, _MOST_SHARE * most)):
            return False
    return bool(known)


# Why measured and computed bytes differ, in sentences: a difference that is explained can be trusted.


def explain_differences(breakdown: Breakdown) -> tuple[str, ...]:
    """Return a sentence for each kind whose two sizes are known and differ, and one for the remainder."""
    sentences = [_explain(each) for each in breakdown.kinds]
    return (*(each for each in sentences if each), *_explain_remainder(breakdown))


def _explain(kind: KindBreakdown) -> str:
    measured = kind.measured_bytes
    computed = kind.computed_bytes
    if (
        measured is None
        or computed is None
        or abs(measured - computed) <= _LEAST_SHARE * max(measured, computed)
    ):
        return ""
    figures = f"{format_bytes(measured)} measured, {format_bytes(computed)} computed"
    return f"{KIND_WORDS[kind.kind]}: {figures}: {_name_cause(kind, measured < computed)}"


def _name_cause(kind: KindBreakdown, is_less: bool) -> str:
    if kind.kind == "activation":
        return (
            "computed is the output of modules without children; measured is what autograd saved for "
            "the backward pass, including inputs, attention and loss"
        )
    if kind.kind == "grads" and is_less:
        return (
            "computed counts one for each parameter; measured counts those that existed when the "
            "profile was written"
        )
    if is_less:
        return "tensors share storages, which are counted once, or have no storage"
    return "storages are larger than the tensors in them"


def _explain_remainder(breakdown: Breakdown) -> tuple[str, ...]:
    allocated = breakdown.allocated_bytes
    rest = breakdown.unattributed_bytes
    if allocated is None or rest is None:
        return ()
    return (
        f"the allocator had {format_bytes(allocated)} at its peak, {format_bytes(rest)} of it outside "
        "the tensors counted here (buffers, temporary tensors, workspaces, rounding)",
    )


# Two profiles compared, module by module: what the second has more or less than the first.

# Names by which wrappers hold what they wrap: torch.compile, Opacus, FSDP, activation checkpointing.
WRAPPERS = {"_orig_mod", "_module", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"}
# The name used by DDP and DataParallel; as it is a plain word, only at the top and alone.
OUTER_WRAPPER = "module"
_CHUNK = re.compile(r"activations_\d+")
ALL = "all kinds"


class ComparedNode(msgspec.Struct, frozen=True):
    name: str
    # 0 where the first profile has no such node; None where its bytes are not known.
    first_bytes: int | None
    second_bytes: int | None
    is_in_first: bool = True
    is_in_second: bool = True
    children: "tuple[ComparedNode, ...]" = ()

    @property
    def difference_bytes(self) -> int | None:
        """What the second has more; None where one of both is unknown."""
        if self.first_bytes is None or self.second_bytes is None:
            return None
        return self.second_bytes - self.first_bytes


class BreakdownComparison(msgspec.Struct, frozen=True):
    """Two profiles, each kind at its most."""

    basis: Basis
    tree: ComparedNode


class ComparedRow(NamedTuple):
    kind: str
    # Names below the kind.
    path: tuple[str, ...]
    node: ComparedNode


def compare_profiles(first: ModuleMemory, second: ModuleMemory) -> BreakdownComparison:
    """Compare two profiles: measured bytes where both have them, else computed ones."""
    trees = [make_point_tree(memory, MEMORY_KINDS, None, ALL) for memory in (first, second)]
    basis = choose_common_basis(*trees)
    return BreakdownComparison(basis, compare_trees(trees[0], trees[1], basis))


def choose_common_basis(first: BreakdownNode | None, second: BreakdownNode | None) -> Basis:
    """Return the basis for which both trees of kinds have sizes."""
    is_measured = [
        tree is None or any(kind.measured_bytes for kind in (tree, *tree.children))
        for tree in (first, second)
    ]
    return "measured" if all(is_measured) else "computed"


def compare_trees(first: BreakdownNode | None, second: BreakdownNode | None, basis: Basis) -> ComparedNode:
    """Join two trees: the root, kinds, modules. Modules are the same where their paths are.

    The names of wrappers are left out of the paths: `module.layers.0`, `_orig_mod.layers.0` and
    `_module.layers.0` are all `layers.0`.
    """
    plain = [
        None
        if tree is None
        else msgspec.structs.replace(
            tree, children=tuple(_unwrap(kind, is_top=True) for kind in tree.children)
        )
        for tree in (first, second)
    ]
    return _compare(plain[0], plain[1], basis, ALL)


def list_rows(tree: ComparedNode, depth: int) -> list[ComparedRow]:
    """Return the differences, largest first: nodes so many levels below their kinds, or fewer where a
    branch ends or only one profile has it.
    """
    rows = [
        ComparedRow(kind.name, path, node)
        for kind in tree.children
        for path, node in _walk_to(kind, depth)
        if path
    ]
    return sorted(
        (row for row in rows if row.node.difference_bytes),
        key=lambda row: (-abs(row.node.difference_bytes or 0), row.kind, row.path),
    )


def list_unmatched(tree: ComparedNode) -> tuple[list[ComparedRow], list[ComparedRow]]:
    """Return what only the first profile has, and what only the second has; nothing below such a node."""
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


def _compare(
    first: BreakdownNode | None, second: BreakdownNode | None, basis: Basis, name: str
) -> ComparedNode:
    sizes: list[int | None] = []
    for node in (first, second):
        known = (
            None if node is None else (node.measured_bytes if basis == "measured" else node.computed_bytes)
        )
        sizes.append(0 if node is None else known)
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
    """Yield children of both by name, in the order of the first; those of the second alone at the end."""
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


def _unwrap(node: BreakdownNode, *, is_top: bool = False) -> BreakdownNode:
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
