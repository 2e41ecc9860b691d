"""One node of a fleet as a line of columns; the titles of the columns; what fits into a width."""

from collections.abc import Callable
from typing import NamedTuple

from ...analyzers.fleet.fleet import NodeSummary
from ...engine.units import format_bytes
from ..draw.glyphs import Glyphs
from ..draw.numbers import brief_span_text
from ..draw.spans import Line, Role, Span, right_text

MOST_LABEL_CELLS = 24


class _Column(NamedTuple):
    title: str
    cells: int
    from_width: int
    """Width of the whole line from which it is shown."""
    tell: Callable[[NodeSummary], str]
    """Empty where it is unmeasured."""


def _tell_share(share: float | None) -> str:
    return "" if share is None else f"{share:.0%}"


def _tell_offset(summary: NodeSummary) -> str:
    """Return how far the clock is off; what is within the delay of messages is told as such."""
    offset_s = summary.node.clock_offset_s
    if offset_s is None:
        return "in step" if summary.node.state == "live" else ""
    return f"{'+' if offset_s > 0 else '-'}{brief_span_text(abs(offset_s))}"


_COLUMNS = (
    _Column("devices", 7, 30, lambda it: f"{it.device_count:,}"),
    _Column("used", 5, 40, lambda it: _tell_share(it.used_share)),
    _Column("clock", 9, 56, _tell_offset),
    _Column("missed", 7, 70, lambda it: f"{it.samples_dropped:,}"),
    _Column("viewers", 7, 90, lambda it: "" if it.viewers is None else f"{it.viewers:,}"),
    _Column("agent CPU", 9, 100, lambda it: "" if it.cpu_percent is None else f"{it.cpu_percent:.1f}%"),
    _Column("agent RSS", 9, 110, lambda it: "" if it.rss_bytes is None else format_bytes(it.rss_bytes)),
    _Column("version", 9, 120, lambda it: it.version or ""),
)
_AGE_CELLS = 12


def draw_node_heading(label_cells: int, width: int) -> Line:
    """Return the titles of the columns that fit."""
    label = min(label_cells, MOST_LABEL_CELLS)
    titles = [right_text(it.title, it.cells, "") for it in _COLUMNS if width >= it.from_width]
    return [Span("   " + "  ".join(("node".ljust(label), "age".ljust(_AGE_CELLS), *titles)), "muted")]


def draw_node(
    summary: NodeSummary, now_s: float, label_cells: int, width: int, glyphs: Glyphs, *, is_chosen: bool
) -> Line:
    """Return a node in one line, with the reason behind it where it is not live.

    Args:
        summary: The node.
        now_s: The moment of which its age is told, by our wall clock.
        label_cells: Cells of the longest name.
        width: Cells of room.
        glyphs: Characters to draw with.
        is_chosen: Whether the cursor is on it.
    """
    label = min(label_cells, MOST_LABEL_CELLS)
    state, role = _tell_age(summary, now_s)
    columns = [
        right_text(it.tell(summary) or glyphs.unmeasured, it.cells, glyphs.ellipsis)
        for it in _COLUMNS
        if width >= it.from_width
    ]
    told = describe_trouble(summary)
    return [
        Span(glyphs.selected if is_chosen else " ", "accent"),
        Span(f"{glyphs.risk(summary.level)} ", summary.level),
        Span(summary.node.name[:label].ljust(label), "strong" if is_chosen else "text"),
        Span(f"  {state:<{_AGE_CELLS}}", role),
        Span("  " + "  ".join(columns)),
        Span(f"  {told}" if told else "", "muted"),
    ]


def describe_trouble(summary: NodeSummary) -> str:
    """Return why a node is not live, or what its agent could not do; empty where all is well."""
    return summary.node.reason or "" if summary.node.state != "live" else "; ".join(summary.notes)


def describe_facts(summary: NodeSummary) -> str:
    """Return what trouble a node has, and what its agent calls it where that is another name."""
    own = "" if summary.own_name is None else f"its agent calls it {summary.own_name}"
    return "; ".join(filter(None, (describe_trouble(summary), own)))


def _tell_age(summary: NodeSummary, now_s: float) -> tuple[str, Role]:
    """Return how old the figures are: of a live node since they came, of a lost one since it fell silent."""
    node = summary.node
    age_s = None if node.heard_s is None else max(0.0, now_s - node.heard_s)
    if node.state == "lost":
        since_s = node.silent_s if age_s is None else age_s
        return ("lost" if since_s is None else f"lost {brief_span_text(since_s)}"), "medium"
    if node.state == "connecting" or age_s is None:
        return "connecting", "muted"
    return brief_span_text(age_s), "text"
