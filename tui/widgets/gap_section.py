"""The gap between what the device says is used and what live tensors need: one bar, every part named."""

from collections.abc import Iterator

from ...analyzers.gap import MemoryGap, PartKind
from ...engine.model import AllocatorReading
from ...engine.units import MIB, format_bytes
from ..drawing.glyphs import Glyphs
from ..drawing.spans import Line, Role, Span
from ..drawing.stacked_bar import Part, describe_sum, draw_stacked_bar
from . import device_fields as fields
from .device_view import DeviceView, SharedWidths
from .rank_facts import SHORT_NAMES

WORDY_FROM_CELLS = 64
"""Width from which parts have their full names."""
NARROW_NAMES: dict[PartKind, str] = {
    **SHORT_NAMES,
    "awaiting_free": "awaiting",
    "stranded": "stranded",
}
"""Names of parts that stand by themselves where there is little room."""
LEAST_INTERNAL_BYTES = MIB
"""Less than this lost to rounding matters to nobody."""
NOT_OF_ONE_INSTANT = "(driver and allocator were not read at one instant)"


def draw_gap(view: DeviceView, widths: SharedWidths, width: int, glyphs: Glyphs) -> list[Line]:
    """Return what is used as one bar on the device's scale, and below it as a sum of named parts.

    Without allocator data it is the plain gauge.

    Args:
        view: The device.
        widths: Widths of its figures.
        width: Cells across.
        glyphs: Characters to draw with.
    """
    cells = max(0, width - 5 - fields.memory_figures_width(widths))
    figures = fields.memory_figures(view, widths, glyphs)
    parts = gap_parts(view, glyphs, is_wordy=width >= WORDY_FROM_CELLS)
    if not parts or not view.scale_bytes:
        return [[Span("  "), *fields.gauge(view, cells, glyphs), Span("  "), *figures]]
    bar = draw_stacked_bar(parts, view.scale_bytes, cells, glyphs)
    text = describe_sum(_whole(view), parts, width - 3, glyphs)
    lines = [[Span("  "), *bar, Span("  "), *figures], *([Span("  "), *line] for line in text)]
    is_wordy = width >= WORDY_FROM_CELLS
    remarks = list(_remark(view.gap, glyphs)) if view.gap is not None and is_wordy else []
    if remarks:
        lines.append([Span("  "), Span("   ".join(remarks), "muted")])
    return lines


def gap_parts(view: DeviceView, glyphs: Glyphs, *, is_wordy: bool = True) -> list[Part]:
    """Return the parts of what is used, as far as they can be told apart; none where nobody tells."""
    if view.gap is not None:
        return list(_name_parts(view.gap, view, glyphs, is_wordy=is_wordy))
    allocator = AllocatorReading() if view.ranks else view.device.allocator or AllocatorReading()
    allocated, reserved = allocator.allocated_bytes, allocator.reserved_bytes
    if allocated is None or reserved is None or reserved < allocated:
        return []
    return [
        Part("live tensors", allocated, glyphs.full, view.fill_role),
        Part("cached", reserved - allocated, glyphs.cached, "band"),
    ]


def _whole(view: DeviceView) -> Part:
    """Return what the parts add up to: all that is used, or what a recorded allocator held."""
    if view.gap is not None:
        return Part("used", view.gap.used_bytes, "", "strong")
    allocator = view.device.allocator
    return Part("reserved", allocator.reserved_bytes if allocator else None, "", "strong")


def _name_parts(gap: MemoryGap, view: DeviceView, glyphs: Glyphs, *, is_wordy: bool) -> Iterator[Part]:
    """Yield the parts that are there, each in the look of the first kind in it."""
    looks: dict[PartKind, tuple[str, Role]] = {
        "allocated": (glyphs.full, view.fill_role),
        "awaiting_free": (glyphs.band, view.fill_role),
        "stranded": (glyphs.hatched, "medium"),
        "cached": (glyphs.cached, "band"),
        "context": (glyphs.rest, "muted"),
        "other_processes": (glyphs.others, "muted"),
        "unattributed": (glyphs.unattributed, "muted"),
    }
    for part in gap.parts:
        if part.size_bytes:
            short = "+".join(dict.fromkeys(NARROW_NAMES[kind] for kind in part.kinds))
            yield Part(part.name if is_wordy else short, part.size_bytes, *looks[part.kinds[0]])


def _remark(gap: MemoryGap, glyphs: Glyphs) -> Iterator[str]:
    """Yield what is to be known besides the parts."""
    if gap.capacity_bytes is not None:
        yield f"capacity for tensors {format_bytes(gap.capacity_bytes)}"
    if gap.internal_bytes is not None and gap.internal_bytes >= LEAST_INTERNAL_BYTES:
        yield f"lost to rounding {format_bytes(gap.internal_bytes)}"
    if not gap.is_consistent:
        yield NOT_OF_ONE_INSTANT
