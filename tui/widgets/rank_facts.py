"""What the training processes on a device tell, as pieces of a line; the most telling first."""

from ..drawing.glyphs import Glyphs
from ..drawing.numbers import count_text, duration_text, gib_text
from ..drawing.spans import Line, Role, Span
from .device_view import DeviceView, SharedWidths
from .rank_words import explain_state


def rank_facts(view: DeviceView, widths: SharedWidths, glyphs: Glyphs) -> list[Line]:
    """Return what is known from the probes of a device's training processes."""
    found = [[Span(text, "medium")] for text in map(explain_state, view.ranks) if text]
    found += trouble_facts(view)
    found += allocator_facts(view, widths, glyphs)
    return [*found, *step_facts(view, glyphs)]


def allocator_facts(view: DeviceView, widths: SharedWidths, glyphs: Glyphs) -> list[Line]:
    """Return what the allocators on a device say, together."""
    allocator = view.device.allocator
    if allocator is None:
        return []
    role: Role = "text" if view.is_fresh else "muted"
    allocated, reserved = allocator.allocated_bytes, allocator.reserved_bytes
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
    first, last = min(step.index for step in steps), max(step.index for step in steps)
    durations = [step.duration_s for step in steps if step.duration_s is not None]
    number = f"{last:,}" if first == last else f"{first:,}–{last:,}"
    duration = duration_text(max(durations, default=None), glyphs)
    role: Role = "text" if all(rank.state == "ok" for rank in view.ranks) else "muted"
    return [[Span("step ", "muted"), Span(f"{number} {duration}", role)]]
