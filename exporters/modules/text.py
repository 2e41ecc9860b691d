"""A profile by module as plain text: kinds, what two counts differ in, and the upper levels of the trees."""

from collections.abc import Iterator

from ...analyzers.breakdown import (
    KIND_WORDS,
    Breakdown,
    BreakdownNode,
    KindBreakdown,
    choose_basis,
    explain_differences,
    make_breakdown,
    size_of,
)
from ...engine.model.module_memory import ModuleMemory
from ...engine.text import make_printable
from ...engine.units import format_bytes
from ..text_table import count, format_rows, wrap
from .page import describe_origin

DEFAULT_DEPTH = 2


def describe_module_memory(memory: ModuleMemory, *, width: int, depth: int = DEFAULT_DEPTH) -> str:
    """Return the text.

    Args:
        memory: The profile.
        width: Cells of a line.
        depth: Levels of each tree.
    """
    return "\n".join(_describe(memory, make_breakdown(memory), width, depth)) + "\n"


def _describe(memory: ModuleMemory, breakdown: Breakdown, width: int, depth: int) -> Iterator[str]:
    yield from wrap(_describe_verdict(memory, breakdown), width)
    yield from wrap(f"{describe_origin(memory)}; {count(len(memory.moments), 'moment')}", width)
    yield ""
    rows = [["kind", "measured", "computed", "in bytes"], *(_describe_kind(kind) for kind in breakdown.kinds)]
    yield from format_rows(rows, "lrrr", width)
    for sentence in explain_differences(breakdown):
        yield from wrap(sentence, width)
    for kind in breakdown.kinds:
        if kind.tree is not None and size_of(kind.tree, choose_basis(kind.tree)):
            yield ""
            yield from _describe_tree(kind.tree, width, depth)
    if memory.format == "module memory" and memory.notes:
        yield ""
        yield from (line for note in memory.notes for line in wrap(note, width))


def _describe_verdict(memory: ModuleMemory, breakdown: Breakdown) -> str:
    whose = "" if memory.rank is None else f"rank {memory.rank.rank}: "
    sized = [(_size(kind), KIND_WORDS[kind.kind]) for kind in breakdown.kinds]
    parts = ", ".join(f"{format_bytes(size)} {word}" for size, word in sorted(sized, reverse=True) if size)
    return f"{whose}{parts or 'nothing was counted'}"


def _describe_kind(kind: KindBreakdown) -> list[str]:
    exact = kind.measured_bytes if kind.measured_bytes is not None else kind.computed_bytes
    return [
        KIND_WORDS[kind.kind],
        format_bytes(kind.measured_bytes),
        format_bytes(kind.computed_bytes),
        "—" if exact is None else f"{exact:,}",
    ]


def _describe_tree(tree: BreakdownNode, width: int, depth: int) -> Iterator[str]:
    basis = choose_basis(tree)
    yield f"{tree.name}, {basis}"
    whole_bytes = size_of(tree, basis)
    rows = [
        [f"{'  ' * level}{make_printable(node.name)}", format_bytes(size), f"{size / whole_bytes:.1%}"]
        for level, node in _walk(tree, depth)
        if (size := size_of(node, basis))
    ]
    yield from format_rows(rows, "lrr", width)


def _walk(tree: BreakdownNode, depth: int, level: int = 0) -> Iterator[tuple[int, BreakdownNode]]:
    for child in tree.children if level < depth else ():
        yield level, child
        yield from _walk(child, depth, level + 1)


def _size(kind: KindBreakdown) -> int:
    """Return what was measured, and what was computed where nothing was measured."""
    return (kind.computed_bytes if kind.measured_bytes is None else kind.measured_bytes) or 0
