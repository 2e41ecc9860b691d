"""Filters between the widgets and the terminal: printable text, and seven bits where asked for."""

from rich.segment import Segment
from textual.color import Color
from textual.filter import LineFilter

from ...engine.text import make_printable
from ..draw.ascii import to_ascii


class PrintableFilter(LineFilter):
    """Makes every line that any widget draws printable: lists, titles, the palette and notices too."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """Return the segments, unchanged where nothing in them would control the terminal."""
        if all(segment.text.isprintable() for segment in segments):
            return segments
        return [segment._replace(text=make_printable(segment.text)) for segment in segments]


class AsciiFilter(LineFilter):
    """Rewrites every line that any widget draws: borders, scroll bars, palette and notices too."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        return [
            segment
            if segment.text.isascii()
            else Segment(to_ascii(segment.text), segment.style, segment.control)
            for segment in segments
        ]
