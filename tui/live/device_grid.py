"""Many devices in little room: a cell each, in rows; and the selected one in words."""

from collections.abc import Sequence

from ..draw.gauge import level_glyph
from ..draw.glyphs import Glyphs
from ..draw.spans import Line, Role, Span
from ..widgets.device_view import DeviceView, SharedWidths

DETAIL_ROWS = 3
"""Rows that the selected device takes below the cells: a blank one and two of facts."""


def cell_width(label_width: int) -> int:
    """Return the cells of one device with its label, level, percentage and risk."""
    return label_width + 9


def draw_cell(view: DeviceView, widths: SharedWidths, glyphs: Glyphs) -> Line:
    """Return a device in `cell_width` cells: ` 12▆ 77 ·`."""
    percent = view.used_percent
    share = glyphs.unmeasured if percent is None else f"{min(999.0, percent):.0f}"
    glyph, role = dot(view, glyphs)
    mark = Span(glyphs.selected, "accent") if view.is_selected else Span(" ")
    level = level_glyph(None if percent is None else percent / 100, glyphs)
    figure: Role = "text" if view.is_fresh and not view.is_in_danger else role
    return [
        mark,
        Span(view.label.rjust(widths.label), "strong" if view.is_selected else "muted"),
        Span(" "),
        Span(level, view.fill_role if view.is_fresh else "muted"),
        Span(share.rjust(4), figure),
        Span(" "),
        Span(glyph if glyph != level else glyphs.risk(view.risk.level), role),
    ]


def dot(view: DeviceView, glyphs: Glyphs) -> tuple[str, Role]:
    """Return a device as one cell: how full it is, or, where there is one, what is wrong with it."""
    if view.state == "lost":
        return glyphs.lost, "critical"
    if view.state == "stale":
        return glyphs.stale, "medium"
    if view.is_in_danger:
        return glyphs.risk(view.risk.level), view.risk_role
    memory = view.device.memory
    if memory.used_bytes is None or not view.scale_bytes:
        return glyphs.unmeasured, "muted"
    return level_glyph(memory.used_bytes / view.scale_bytes, glyphs), "fill"


def draw_dots(views: Sequence[DeviceView], glyphs: Glyphs) -> Line:
    """Return a row of devices, one cell each."""
    line: Line = []
    for view in views:
        glyph, role = dot(view, glyphs)
        line.append(Span(glyph, "cursor" if view.is_selected else role))
    return line


def fullest(views: Sequence[DeviceView]) -> DeviceView:
    """Return the device that most deserves words while none is selected: the fullest."""
    return max(views, key=lambda view: view.used_percent or 0.0)
