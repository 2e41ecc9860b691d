"""What a file says at a glance: the bar, the history and the segment map of one device."""

import textwrap

from ...engine.units import format_bytes
from ..draw.glyphs import Glyphs
from ..draw.level_graph import draw_level_graph
from ..draw.segment_map import draw_segment_map
from ..draw.spans import Line, Role, Span, fit_line
from ..draw.stacked_bar import Part, describe_sum, draw_stacked_bar
from ..widgets.line_page import LinePage
from .inspected import BarPart, InspectedDevice, PartKind

SCALE_CELLS = 10
LEAST_HISTORY_ROWS = 5
MOST_HISTORY_ROWS = 20
LEAST_MAP_ROWS = 2
MOST_MAP_ROWS = 12
LEAST_HEIGHT_TO_WRAP = 20
LEAST_WIDTH_TO_WRAP = 40
MARGIN = 2
VERDICT_MARGIN = 4
"""Cells for the mark and the margins."""
MOST_VERDICT_LINES = 3
MOST_SENTENCES = 4
"""Sentences below the first, which stands in the line of the verdict."""
LEAST_ROWS_FOR_SENTENCES = 11
"""Rows that history and map keep."""


class InspectPicture(LinePage, can_focus=False):
    """Draws one device into exactly the room that it has.

    Args:
        glyphs: Characters to draw with.
    """

    def __init__(self, glyphs: Glyphs, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._glyphs = glyphs
        self._device: InspectedDevice | None = None
        self._advice: tuple[str, ...] = ()

    def show(self, device: InspectedDevice, advice: tuple[str, ...] = ()) -> None:
        """Draw a device.

        Args:
            device: The device.
            advice: What is said of other allocator settings.
        """
        self._device = device
        self._advice = advice
        self._draw()

    def advise(self, advice: tuple[str, ...]) -> None:
        """Draw the same device with what is said of other allocator settings."""
        self._advice = advice
        self._draw()

    def _compose_lines(self, width: int, height: int) -> list[Line]:
        device = self._device
        if device is None or width < 4:
            return []
        lines = self._draw_bar(device, width)
        lines = [*self._continue_verdict(device, width), *lines]
        told = [[Span(f" {sentence}")] for sentence in device.sentences[1:]]
        lines += told[: max(0, min(MOST_SENTENCES, height - len(lines) - LEAST_ROWS_FOR_SENTENCES))]
        lines += self._draw_advice(width, height - len(lines))
        left = height - len(lines)
        history_rows, map_rows = share_rows(left, has_history=device.history is not None)
        drawn_map = self._draw_map(device, width, map_rows) if map_rows else []
        if history_rows:
            lines += self._draw_history(device, width, min(MOST_HISTORY_ROWS, left - len(drawn_map)))
        lines += drawn_map
        is_ascii = self._glyphs.name == "ascii"
        ellipsis = self._glyphs.ellipsis
        return [fit_line(line, width, is_ascii=is_ascii, ellipsis=ellipsis) for line in lines[:height]]

    def _continue_verdict(self, device: InspectedDevice, width: int) -> list[Line]:
        rest = wrap_verdict(device, width, self.screen.size.height)[1:]
        return [[Span(f"   {line}" if device.failures else f" {line}", "strong")] for line in rest]

    def _draw_advice(self, width: int, rows: int) -> list[Line]:
        """Return as many sentences, in the lines that they take, as history and map leave room for."""
        lines: list[Line] = []
        for sentence in self._advice:
            told = textwrap.wrap(sentence, max(MARGIN + 1, width - MARGIN), break_on_hyphens=False)
            least = LEAST_ROWS_FOR_SENTENCES if lines else LEAST_HISTORY_ROWS + LEAST_MAP_ROWS + 1
            if rows - len(lines) - len(told) < least:
                break
            lines += [[Span(f" {line}", "muted")] for line in told]
        return lines

    def _draw_bar(self, device: InspectedDevice, width: int) -> list[Line]:
        parts = [self._look_at(part) for part in device.parts]
        bar = draw_stacked_bar(parts, device.scale_bytes, max(1, width - SCALE_CELLS - 2), self._glyphs)
        scale = format_bytes(device.scale_bytes).rjust(SCALE_CELLS)
        told = describe_sum(self._look_at(device.whole), parts, width - 2, self._glyphs)
        return [[Span(" "), *bar, Span(scale, "faint")], *([Span(" "), *line] for line in told)]

    def _look_at(self, part: BarPart) -> Part:
        glyphs = self._glyphs
        looks: dict[PartKind, tuple[str, Role]] = {
            "live": (glyphs.full, "fill"),
            "waiting": (glyphs.band, "fill"),
            "cached": (glyphs.cached, "band"),
            "releasable": (glyphs.segment[-1], "muted"),
            "outside": (glyphs.rest, "muted"),
        }
        return Part(part.name, part.value_bytes, *looks[part.kind])

    def _draw_history(self, device: InspectedDevice, width: int, rows: int) -> list[Line]:
        if device.history is None:
            return []
        return draw_level_graph(
            device.history,
            device.scale_bytes,
            (width, rows),
            self._glyphs,
            failed_at=device.failed_at,
            steps=device.steps,
        )

    def _draw_map(self, device: InspectedDevice, width: int, rows: int) -> list[Line]:
        segments = device.segment_map.segments
        if not segments:
            why = "the file has none" if device.whole.value_bytes else "nothing was reserved"
            return [[Span(f" no segments: {why}", "muted")]]
        lines, cell_bytes = draw_segment_map(device.segment_map, width - 1, rows - 1, self._glyphs)
        left_out = device.segment_map.segments_left_out
        count = f"{len(segments):,}" + (f" of {len(segments) + left_out:,}" if left_out else "")
        told = f" segments {count}  a cell is {format_bytes(cell_bytes)}  "
        heading: Line = [Span(told, "muted"), *self._draw_legend()]
        if len(lines) > rows - 1:
            hidden = len(lines) - rows + 2
            lines = [*lines[: rows - 2], [Span(f" and {hidden:,} rows more", "muted")]]
        return [heading, *lines]

    def _draw_legend(self) -> Line:
        names = ("full", "half full", "little", "stranded", "free")
        roles: tuple[Role, ...] = ("fill", "fill", "medium", "medium", "faint")
        line: Line = []
        for glyph, role, name in zip(self._glyphs.segment, roles, names, strict=True):
            line += [Span(f"{glyph} ", role), Span(f"{name}  ", "muted")]
        return line


def wrap_verdict(device: InspectedDevice, width: int, height: int) -> list[str]:
    """Return the first sentence in the lines that it takes; in one, to be cut, where the screen is low.

    Args:
        device: What is shown.
        width: Cells of the screen.
        height: Rows of the screen.
    """
    sentence = device.sentences[0] if device.sentences else "nothing was allocated"
    if height < LEAST_HEIGHT_TO_WRAP or width < LEAST_WIDTH_TO_WRAP:
        return [sentence]
    return textwrap.wrap(sentence, width - VERDICT_MARGIN, break_on_hyphens=False)[:MOST_VERDICT_LINES]


def share_rows(rows: int, *, has_history: bool) -> tuple[int, int]:
    """Return the rows of the history and of the map, both 0 where there is no room.

    Args:
        rows: Rows to share.
        has_history: Whether there is one.
    """
    least_map = LEAST_MAP_ROWS + 1
    if not has_history or rows < LEAST_HISTORY_ROWS:
        return 0, min(rows, MOST_MAP_ROWS) if rows >= least_map else 0
    if rows < LEAST_HISTORY_ROWS + least_map:
        return min(rows, MOST_HISTORY_ROWS), 0
    map_rows = min(MOST_MAP_ROWS, max(least_map, rows * 2 // 5))
    return min(MOST_HISTORY_ROWS, rows - map_rows), map_rows
