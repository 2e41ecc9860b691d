"""A profile by module as plain text: kinds, what two counts differ in, and the upper levels of the trees."""

import csv
from collections.abc import Iterator, Sequence
from io import StringIO

import msgspec

from ...analyzers.diff.model import say_percent, say_signed
from ...analyzers.modules import (
    KIND_WORDS,
    Basis,
    Breakdown,
    BreakdownComparison,
    BreakdownNode,
    ComparedNode,
    ComparedRow,
    KindBreakdown,
    choose_basis,
    compare_profiles,
    explain_differences,
    list_rows,
    list_unmatched,
    make_breakdown,
    size_of,
)
from ...analyzers.sentence import count
from ...engine.model import RankCoordinates, RankSample
from ...engine.model.sample import KindBytes, ModuleMemory, ModuleMemoryFormat
from ...engine.text import make_csv_cell, make_printable
from ...engine.units import format_age, format_bytes, format_share
from ..text import UNKNOWN, format_rows, show_number, wrap
from .page import describe_origin

DEFAULT_DEPTH = 2


def describe_module_memory(memory: ModuleMemory, *, width: int, depth: int = DEFAULT_DEPTH) -> str:
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
        show_number(exact),
    ]


def _describe_tree(tree: BreakdownNode, width: int, depth: int) -> Iterator[str]:
    basis = choose_basis(tree)
    yield f"{tree.name}, {basis}"
    whole_bytes = size_of(tree, basis)
    rows = [
        [
            f"{'  ' * level}{make_printable(node.name)}",
            format_bytes(size),
            format_share(size / whole_bytes, 1),
        ]
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


# A profile by module as one JSON object: totals of each moment, trees, and what two counts differ in.


class MomentReport(msgspec.Struct, frozen=True, kw_only=True):
    """One point of a profile, without its trees."""

    tag: str
    time_s: float
    allocated_bytes: int | None
    kinds: dict[str, KindBytes]


class ModuleMemoryReport(msgspec.Struct, frozen=True, kw_only=True):
    """What `vramscope modules --json` prints of one rank."""

    schema: str = "vramscope.breakdown/1"
    file: str
    format: ModuleMemoryFormat
    rank: RankCoordinates | None
    device: str | None
    is_simulated: bool
    moments: tuple[MomentReport, ...]
    breakdown: Breakdown
    differences: tuple[str, ...]
    notes: tuple[str, ...]


def report_module_memory(memory: ModuleMemory, file: str) -> ModuleMemoryReport:
    breakdown = make_breakdown(memory)
    return ModuleMemoryReport(
        file=file,
        format=memory.format,
        rank=memory.rank,
        device=memory.device,
        is_simulated=memory.is_simulated,
        moments=msgspec.convert(memory.moments, tuple[MomentReport, ...], from_attributes=True),
        breakdown=breakdown,
        differences=explain_differences(breakdown),
        notes=memory.notes,
    )


# Sentences on a running process that was asked for its memory by module.

COST = "uses more CPU in each profiled step: 5 % for a small GPT"
"""As measured: docs/modules.md."""


def name_process(rank: RankSample) -> str:
    """Return which process it is: `rank 0 of job a1b2`, `process 4242`."""
    job = "" if rank.job is None else f" of job {make_printable(rank.job)}"
    if rank.coordinates is not None:
        return f"rank {rank.coordinates.rank}{job}"
    return f"process {rank.pid}{job}"


def describe_wait(rank: RankSample, waited_s: float) -> str:
    """Return the state of the wait for the first data."""
    if rank.state == "ended":
        return f"{name_process(rank)} has ended: its modules cannot be profiled"
    waited = f"process asked {format_age(waited_s)} ago" if waited_s >= 1.0 else "process asked"
    if rank.step is None:
        return f"{waited}; no optimizer step has ended yet, profiling starts with the first"
    if rank.step.duration_s is None:
        return f"{waited}; data arrives when its next steps end"
    return f"{waited}; a step takes {_say_duration(rank.step.duration_s)}, data arrives after the next ones"


def has_step(memory: ModuleMemory) -> bool:
    """Return whether a profile has followed a step to its end."""
    return any(moment.tag.startswith("step ") for moment in memory.moments)


def _say_duration(duration_s: float) -> str:
    return f"{1000 * duration_s:.0f} ms" if duration_s < 1 else f"{duration_s:.1f} s"


# Two profiles by module compared: as plain text, as one JSON object, and as a table (CSV).

MOST_ROWS = 20
MOST_UNMATCHED = 8
COLUMNS = ("path", "basis", "first_bytes", "second_bytes", "difference_bytes", "only_in")


class NamedProfile(msgspec.Struct, frozen=True):
    """A profile and its name."""

    name: str
    memory: ModuleMemory


class ComparedProfile(msgspec.Struct, frozen=True, kw_only=True):
    """One of both profiles, for JSON."""

    file: str
    rank: RankCoordinates | None
    device: str | None
    is_simulated: bool


class DifferenceReport(msgspec.Struct, frozen=True, kw_only=True):
    """What `vramscope modules RUN1 RUN2 --json` prints of each pair of ranks."""

    schema: str = "vramscope.breakdown_difference/1"
    first: ComparedProfile
    second: ComparedProfile
    basis: Basis
    difference_bytes: int | None
    tree: ComparedNode
    only_in_first: tuple[str, ...]
    only_in_second: tuple[str, ...]


def report_difference(first: NamedProfile, second: NamedProfile) -> DifferenceReport:
    comparison = compare_profiles(first.memory, second.memory)
    unmatched = list_unmatched(comparison.tree)
    return DifferenceReport(
        first=_describe_profile(first),
        second=_describe_profile(second),
        basis=comparison.basis,
        difference_bytes=comparison.tree.difference_bytes,
        tree=comparison.tree,
        only_in_first=tuple(map(name_row, unmatched[0])),
        only_in_second=tuple(map(name_row, unmatched[1])),
    )


def describe_difference(first: NamedProfile, second: NamedProfile, *, width: int, depth: int) -> str:
    """Return both profiles as text: the verdict, kinds, largest differences, and what has no partner."""
    comparison = compare_profiles(first.memory, second.memory)
    return "\n".join(_describe_difference(first, second, comparison, width, depth)) + "\n"


def say_difference(tree: ComparedNode, basis: Basis) -> str:
    """Return the sentence of what the second profile has more or less, and where most of it is."""
    difference = tree.difference_bytes
    if difference is None:
        return f"Not every kind was {basis} in both"
    one = format_bytes(tree.first_bytes)
    other = format_bytes(tree.second_bytes)
    sizes = f"{one} in the first, {other} in the second"
    parts = [kind for kind in tree.children if kind.difference_bytes]
    most = max(parts, key=lambda kind: abs(kind.difference_bytes or 0), default=None)
    if most is None:
        return f"No difference: {sizes}, {basis}"
    detail = f"{sizes}, {basis}; most of {most.name}, {say_signed(most.difference_bytes or 0)}"
    return f"{say_signed(difference) if difference else 'No change in total'}: {detail}"


def caption_difference(tree: ComparedNode, basis: Basis, first: ModuleMemory, second: ModuleMemory) -> str:
    """Return the line under the title of a figure: the same sentence, after a label for a modelled device."""
    sentence = say_difference(tree, basis)
    return f"simulated device; {sentence}" if first.is_simulated or second.is_simulated else sentence


def write_difference_table(tree: ComparedNode, basis: Basis) -> str:
    """Return every block as a line of CSV, each before its parts; unmeasured is empty."""
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows(_list_lines(tree, basis, tree.name))
    return text.getvalue()


def name_row(row: ComparedRow) -> str:
    """Return the name of a row: its kind, and the path of the module."""
    return f"{row.kind} {make_printable('.'.join(row.path))}" if row.path else row.kind


def _describe_difference(
    first: NamedProfile, second: NamedProfile, comparison: BreakdownComparison, width: int, depth: int
) -> Iterator[str]:
    tree = comparison.tree
    yield from wrap(say_difference(tree, comparison.basis), width)
    origins = [describe_origin(each.memory) for each in (first, second)]
    yield from wrap(f"first: {make_printable(first.name)}", width)
    yield from wrap(origins[0], width) if origins[0] != origins[1] else ()
    yield from wrap(f"second: {make_printable(second.name)}", width)
    yield from wrap(origins[1], width)
    yield ""
    rows = [_make_row(kind.name, kind) for kind in tree.children]
    yield from format_rows([["kind", "first", "second", "difference", ""], *rows], "lrrrr", width)
    largest = list_rows(tree, depth)
    if largest:
        yield ""
        compared = [_make_row(name_row(row), row.node) for row in largest[:MOST_ROWS]]
        head = ["largest differences", "first", "second", "difference", ""]
        yield from format_rows([head, *compared], "lrrrr", width)
    if len(largest) > MOST_ROWS:
        rest = sum(row.node.difference_bytes or 0 for row in largest[MOST_ROWS:])
        yield f"  and {len(largest) - MOST_ROWS:,} more: {say_signed(rest)}"
    for which, unmatched in zip(("first", "second"), list_unmatched(tree), strict=True):
        if unmatched:
            yield ""
            yield from wrap(_say_unmatched(which, unmatched), width)


def _make_row(name: str, node: ComparedNode) -> list[str]:
    difference = node.difference_bytes
    share = ""
    if difference and node.first_bytes:
        share = say_percent(100.0 * difference / node.first_bytes)
    return [
        name,
        format_bytes(node.first_bytes) if node.is_in_first else "none",
        format_bytes(node.second_bytes) if node.is_in_second else "none",
        UNKNOWN if difference is None else say_signed(difference) if difference else "same",
        share,
    ]


def _say_unmatched(which: str, rows: Sequence[ComparedRow]) -> str:
    names = ", ".join(name_row(row) for row in rows[:MOST_UNMATCHED])
    more = f" and {len(rows) - MOST_UNMATCHED:,} more" if len(rows) > MOST_UNMATCHED else ""
    return f"only in the {which}: {names}{more}"


def _describe_profile(profile: NamedProfile) -> ComparedProfile:
    memory = profile.memory
    return ComparedProfile(
        file=profile.name, rank=memory.rank, device=memory.device, is_simulated=memory.is_simulated
    )


def _list_lines(node: ComparedNode, basis: Basis, path: str) -> Iterator[tuple[object, ...]]:
    only = "" if node.is_in_first and node.is_in_second else "first" if node.is_in_first else "second"
    yield make_csv_cell(path), basis, node.first_bytes, node.second_bytes, node.difference_bytes, only
    for child in node.children:
        yield from _list_lines(child, basis, f"{path}/{child.name}")
