"""What the Breakdown screen shows of a profile, and its sentences."""

from typing import NamedTuple

from ...analyzers.diff.model import say_percent, say_signed
from ...analyzers.modules import (
    KIND_WORDS,
    Basis,
    Breakdown,
    BreakdownNode,
    explain_differences,
    find_node,
    make_point_tree,
    size_of,
)
from ...engine.model.sample import MEMORY_KINDS, MemoryKind, ModuleMemory
from ...engine.units import format_bytes, format_seconds, share_percent
from ..draw.glyphs import Glyphs
from ..draw.numbers import count_text
from ..draw.pieces import Piece
from ..draw.spans import clean_text

ALL_KINDS = "all kinds"
# By its word.
KIND_CHOICES: dict[str, tuple[MemoryKind, ...]] = {
    ALL_KINDS: MEMORY_KINDS,
    "parameters": ("params",),
    "gradients": ("grads",),
    "optimizer": ("os_params", "os_state"),
    "activations": ("activation",),
}


class Profiled(NamedTuple):
    """The profile of one rank of one run."""

    # Name of its file or folder, short enough for a title.
    name: str
    memory: ModuleMemory


class Place(NamedTuple):
    """The point and kind of memory on screen."""

    # Index of a moment; None for the whole profile.
    point: int | None = None
    kind: str = ALL_KINDS

    def make_tree(self, memory: ModuleMemory) -> BreakdownNode | None:
        return make_point_tree(memory, KIND_CHOICES[self.kind], self.point, self.kind)

    def find_in_other(self, memory: ModuleMemory, other: ModuleMemory) -> "Place | None":
        """Return the same place of another profile; None where its moments differ."""
        if self.point is None:
            return self
        is_there = self.point < len(other.moments)
        if is_there and other.moments[self.point].tag == memory.moments[self.point].tag:
            return self
        return None


def find_block(tree: BreakdownNode | None, path: tuple[str, ...]) -> BreakdownNode | None:
    return None if tree is None else find_node(tree, path)


PATH_MARK = " / "
# Widths from which every kind is named, and from which each has its bytes.
NAMES_FROM_CELLS = 70
FIGURES_FROM_CELLS = 110


class Block(NamedTuple):
    """The block under the cursor, and the one it is compared with."""

    path: tuple[str, ...]
    node: BreakdownNode
    basis: Basis
    # Name of the profile that it is compared with; empty for none.
    other_name: str = ""
    # The same block there; None where it has none.
    other: BreakdownNode | None = None


def name_point(memory: ModuleMemory, place: Place) -> str:
    count = len(memory.moments)
    if place.point is None:
        return f"whole profile, {count_text(count, 'point', 'points')}"
    moment = memory.moments[place.point]
    return f"{place.point + 1} of {count}: {_clean(moment.tag)}, {format_seconds(moment.time_s)}"


def describe_most(
    tree: BreakdownNode | None, basis: Basis, memory: ModuleMemory, place: Place, *, is_short: bool = False
) -> str:
    """Return the sentence of what takes most; `is_short` omits the total and the point."""
    when = " over the whole profile, each kind at its peak"
    if place.point is not None:
        when = f" at {_clean(memory.moments[place.point].tag)}"
    if is_short:
        when = ""
    whole = 0 if tree is None else size_of(tree, basis)
    if tree is None or not whole:
        return f"No {place.kind if place.kind != ALL_KINDS else 'bytes'} {basis}{when}"
    most = max(tree.children, key=lambda part: size_of(part, basis), default=None)
    if most is None:
        return f"{format_bytes(whole)} of {tree.name} {basis}{when}; no modules were recorded there"
    size = size_of(most, basis)
    share = share_percent(size_of(most, basis), whole)
    of = "" if place.kind == ALL_KINDS else f" of {place.kind}"
    out_of = "" if is_short else f" of {format_bytes(whole)}"
    figures = f"{format_bytes(size)}{out_of} ({share:.0f} %) {basis}"
    return f"Most{of}: {_clean(most.name)}, {figures}{when and ','}{when}"


def list_kinds(
    every: BreakdownNode | None, basis: Basis, chosen: str, glyphs: Glyphs, width: int
) -> list[Piece]:
    """Return every kind with its bytes at the point, the chosen one marked."""
    pieces = []
    for name, kinds in KIND_CHOICES.items():
        is_chosen = name == chosen
        if width < NAMES_FROM_CELLS and not is_chosen:
            continue
        words = {KIND_WORDS[kind] for kind in kinds}
        found = () if every is None else [it for it in every.children if it.name in words]
        sizes = [it.measured_bytes if basis == "measured" else it.computed_bytes for it in found]
        known = [size for size in sizes if size is not None]
        total = sum(known) if known and len(known) == len(sizes) else None
        mark = glyphs.selected if is_chosen else " "
        figure = f" {format_bytes(total)}" if is_chosen or width >= FIGURES_FROM_CELLS else ""
        pieces.append(Piece(f"{mark}{name}{figure} ", "cursor" if is_chosen else "muted"))
    return pieces


def describe_path(block: Block, tree: BreakdownNode) -> str:
    """Return the names from the root to a block."""
    return PATH_MARK.join(_clean(name) for name in (tree.name, *block.path))


def describe_sizes(block: Block, tree: BreakdownNode) -> str:
    """Return the bytes of a block, measured and computed, and its share of the tree."""
    measured = block.node.measured_bytes
    computed = block.node.computed_bytes
    sentence = f"measured {format_bytes(measured)}, computed {format_bytes(computed)}"
    if measured is not None and computed is not None and measured != computed:
        word = "more" if measured > computed else "less"
        sentence += f" ({format_bytes(abs(measured - computed))} {word} measured)"
    share = share_percent(size_of(block.node, block.basis), size_of(tree, block.basis))
    return sentence if share is None else f"{sentence}; {share:.1f} % of {tree.name}"


def describe_other(block: Block) -> str:
    """Return how a block differs from the same one of the compared profile; empty without one."""
    if not block.other_name:
        return ""
    name = _clean(block.other_name)
    if block.other is None:
        return f"no such block in {name} at this point"
    pair = [
        each.measured_bytes if block.basis == "measured" else each.computed_bytes
        for each in (block.node, block.other)
    ]
    one, other = pair
    if one is None or other is None:
        return f"not {block.basis} both here and in {name}"
    if one == other:
        return f"the same as in {name}"
    share = f" ({say_percent(100.0 * (one - other) / other)})" if other else ""
    return f"{say_signed(one - other)}{share} vs {name}: {format_bytes(other)} there"


def describe_cause(block: Block, tree: BreakdownNode, breakdown: Breakdown) -> str:
    """Return why measured and computed bytes of the block's kind differ; empty where they do not."""
    word = next((name for name in (*block.path[:1], tree.name) if name in KIND_WORDS.values()), None)
    sentences = explain_differences(breakdown)
    return next((it for it in sentences if word is not None and it.startswith(f"{word}: ")), "")


def describe_narrow(narrow: int) -> str:
    """Return how many blocks are too narrow to be drawn; empty where all are drawn."""
    return f"{count_text(narrow, 'block', 'blocks')} too narrow to draw: zoom in" if narrow else ""


def _clean(text: str) -> str:
    return clean_text(text, is_ascii=False)
