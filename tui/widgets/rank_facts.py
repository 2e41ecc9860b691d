"""What the training processes on a device tell, as pieces of a line; the most telling first."""

from collections.abc import Iterator, Sequence

from ...analyzers.gap import MemoryGap, PartKind
from ...engine.units import GIB, MIB
from ..draw.glyphs import Glyphs
from ..draw.numbers import count_text, duration_text, gib_text
from ..draw.spans import Line, Role, Span
from .device_view import DeviceView, SharedWidths
from .rank_words import explain_state

SMALL_BYTES = 4 * GIB
"""Device used below which parts are told in MiB."""
CACHED: frozenset[PartKind] = frozenset({"awaiting_free", "stranded", "cached"})
"""Kinds of what the allocators hold beyond live tensors."""
SHORT_NAMES: dict[PartKind, str] = {
    "allocated": "alloc",
    "awaiting_free": "cache",
    "stranded": "cache",
    "cached": "cache",
    "context": "context",
    "other_processes": "other",
    "unattributed": "unnamed",
}


def rank_facts(view: DeviceView, widths: SharedWidths, glyphs: Glyphs, *, has_gap: bool = True) -> list[Line]:
    """Return what is known from the probes of a device's training processes.

    Args:
        view: The device.
        widths: Columns that all devices share.
        glyphs: Characters to draw with.
        has_gap: Whether what fills the device is told here.
    """
    found = [[Span(text, "medium")] for text in map(explain_state, view.ranks) if text]
    gap = gap_facts(view.gap, widths, glyphs) if view.gap is not None and has_gap else []
    return [*found, *trouble_facts(view), *gap[:1], *step_facts(view, glyphs), *gap[1:]]


def gap_facts(gap: MemoryGap, widths: SharedWidths, glyphs: Glyphs) -> list[Line]:
    """Return what fills the device in one line, and how much of the cache is stranded."""
    is_small = (gap.used_bytes or 0) < SMALL_BYTES
    parts: list[Line] = []
    for name, size_bytes in _shorten(gap):
        figure = _figure(size_bytes, glyphs, is_small=is_small).rjust(0 if parts else widths.figures)
        parts.append([Span(f"{name} ", "muted"), Span(figure)])
    unit = [Span(" MiB", "muted")] if is_small else []
    found: list[Line] = [[span for part in _space(parts) for span in part] + unit] if parts else []
    stranded = gap.size_of("stranded")
    if stranded:
        held, cached = (_figure(size, glyphs, is_small=is_small) for size in (stranded, _cached(gap)))
        found.append([Span(f"stranded {held} of {cached} cached", "muted")])
    return found


def _figure(size_bytes: int, glyphs: Glyphs, *, is_small: bool) -> str:
    """Return GiB with one place, or whole MiB where little is used."""
    return f"{size_bytes / MIB:,.0f}" if is_small else gib_text(size_bytes, glyphs)


def _space(parts: Sequence[Line]) -> Iterator[Line]:
    """Yield parts with two blanks between them."""
    for number, part in enumerate(parts):
        yield [Span("  "), *part] if number else part


def _cached(gap: MemoryGap) -> int:
    """Return what the allocators hold beyond live tensors."""
    return sum(part.size_bytes for part in gap.parts if CACHED.issuperset(part.kinds))


def _shorten(gap: MemoryGap) -> Iterator[tuple[str, int]]:
    """Yield the parts in short words: the cache in one, what nobody can name only where there is any."""
    cached = _cached(gap)
    is_cache_told = False
    for part in gap.parts:
        if CACHED.issuperset(part.kinds):
            if not is_cache_told:
                yield "cache", cached
            is_cache_told = True
        elif part.size_bytes or part.kinds == ("allocated",):
            kinds = [kind for kind in part.kinds if kind != "unattributed" or len(part.kinds) == 1]
            yield "+".join(dict.fromkeys(SHORT_NAMES[kind] for kind in kinds)), part.size_bytes


def allocator_facts(view: DeviceView, widths: SharedWidths, glyphs: Glyphs) -> list[Line]:
    """Return what the allocators on a device say, together."""
    allocator = view.device.allocator
    if allocator is None:
        return []
    role: Role = "text" if view.is_fresh else "muted"
    allocated = allocator.allocated_bytes
    reserved = allocator.reserved_bytes
    found: list[Line] = [
        [Span("alloc ", "muted"), Span(gib_text(allocated, glyphs).rjust(widths.figures), role)]
    ]
    if reserved is not None:
        cached = None if allocated is None else max(0, reserved - allocated)
        found[0] += [Span("  cached ", "muted"), Span(gib_text(cached, glyphs).rjust(widths.figures), role)]
    return found


def trouble_facts(view: DeviceView) -> list[Line]:
    """Return how often the device refused memory and how often it ran out, where it ever did."""
    allocators = [rank.allocator for rank in view.ranks if rank.allocator is not None]
    retries = sum(allocator.retries or 0 for allocator in allocators)
    ooms = sum(allocator.ooms or 0 for allocator in allocators)
    found: list[Line] = []
    if ooms:
        found.append([Span(count_text(ooms, "OOM", "OOMs"), "critical")])
    if retries:
        found.append([Span(count_text(retries, "retry", "retries"), "medium")])
    return found


def step_facts(view: DeviceView, glyphs: Glyphs) -> list[Line]:
    """Return the newest step that ended and how long it took; of several processes span and slowest."""
    steps = [rank.step for rank in view.ranks if rank.step is not None]
    if not steps:
        return []
    first = min(step.index for step in steps)
    last = max(step.index for step in steps)
    durations = [step.duration_s for step in steps if step.duration_s is not None]
    number = f"{last:,}" if first == last else f"{first:,}–{last:,}"
    duration = duration_text(max(durations, default=None), glyphs)
    role: Role = "text" if all(rank.state == "ok" for rank in view.ranks) else "muted"
    return [[Span("step ", "muted"), Span(f"{number}  {duration}", role)]]
