"""One point of a profile as one tree: kinds as long as they were then, modules where they were written so."""

from collections.abc import Iterator, Sequence

from ...engine.model.module_memory import KindBytes, MemoryKind, ModuleMemory
from ...engine.units import MIB
from .breakdown import KIND_WORDS, Breakdown, make_breakdown
from .tree import BreakdownNode, make_tree

_LEAST_SHARE = 0.01
"""Below it two figures say the same."""
_MOST_SHARE = 0.1
"""Above it two figures differ, whatever was rounded."""
_ROUNDED_BYTES = MIB // 200
"""By how much a figure of `memory.log`, which has two decimals of a MiB, may be off."""


def make_point_tree(
    memory: ModuleMemory, kinds: Sequence[MemoryKind], moment: int | None, name: str
) -> BreakdownNode | None:
    """Return the tree of some kinds at one moment, or at the most of each; None where none was written.

    A profile writes totals at every moment and modules at a few. Each kind has its total of the moment, and
    below it the modules of the nearest moment that wrote them with that total, to a hundredth or to what the
    file rounds off (a tenth at most); where there is none such, the kind has nothing below it, because nobody
    knows whose the bytes were.

    Args:
        memory: The profile.
        kinds: Those that are in the tree.
        moment: Index of the moment; None for the whole profile.
        name: Of the root, where there are several kinds.
    """
    whole = make_breakdown(memory) if moment is None else None
    totals = [_find_total(memory, kind, moment, whole) for kind in kinds]
    place = len(memory.moments) - 1 if moment is None else moment
    found = [
        _make_kind(memory, kind, total, place)
        for kind, total in zip(kinds, totals, strict=True)
        if total is not None
    ]
    if len(kinds) == 1 or not found:
        return found[0] if found else None
    return BreakdownNode(
        name,
        _sum([tree.computed_bytes for tree in found]),
        _sum([tree.measured_bytes for tree in found]),
        tuple(found),
    )


def _find_total(
    memory: ModuleMemory, kind: MemoryKind, moment: int | None, whole: Breakdown | None
) -> KindBytes | None:
    """Return all of a kind at a moment; of the whole profile the most, or else what its modules come to."""
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


def _make_kind(memory: ModuleMemory, kind: MemoryKind, total: KindBytes, place: int) -> BreakdownNode:
    for tree, slack_bytes in _list_trees(memory, kind, place):
        if _says_the_same(tree, total, slack_bytes):
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


def _says_the_same(tree: BreakdownNode, total: KindBytes, slack_bytes: int) -> bool:
    """Tell whether both figures are those of a total, as far as they are known."""
    pairs = ((tree.measured_bytes, total.measured_bytes), (tree.computed_bytes, total.computed_bytes))
    known = [(one, other) for one, other in pairs if one is not None and other is not None]
    return bool(known) and all(_is_close(one, other, slack_bytes) for one, other in known)


def _is_close(one: int, other: int, slack_bytes: int) -> bool:
    most = max(one, other)
    return abs(one - other) <= max(_LEAST_SHARE * most, min(slack_bytes, _MOST_SHARE * most))


def _sum(sizes: list[int | None]) -> int | None:
    known = [size for size in sizes if size is not None]
    return sum(known) if len(known) == len(sizes) else None
