"""Live blocks by the stack that allocated them: a list whose chosen line can be opened."""

from textual import events
from textual.message import Message

from ...analyzers.snapshot_summary import StackGroup
from ...engine.units import format_bytes
from ...exporters.stack_text import show_frame
from ..draw.glyphs import Glyphs
from ..draw.spans import Line, Role, Span, fit_line
from ..frame import keys
from ..widgets.line_page import LinePage

NARROW_CELLS = 60
"""Below this width only the bytes stand before the place."""


def draw_heading(width: int) -> str:
    """Return the titles of the columns at a width."""
    counts = "" if width < NARROW_CELLS else f"  {'share':>6}  {'blocks':>7}"
    return f"  {'bytes':>9}{counts}  allocated at"


class InspectStacks(LinePage):
    """Lists stacks, the largest first; the heading stays while the rows scroll.

    Args:
        glyphs: Characters to draw with.
    """

    BINDINGS = [*keys.STACKS]

    class Opened(Message):
        """A stack was asked for."""

        def __init__(self, group: StackGroup) -> None:
            super().__init__()
            self.group = group

    def __init__(self, glyphs: Glyphs, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._glyphs = glyphs
        self._groups: tuple[StackGroup, ...] = ()
        self._selected = 0
        self._is_recorded = True

    @property
    def selected(self) -> StackGroup | None:
        """The stack under the cursor."""
        return self._groups[self._selected] if self._groups else None

    def show(self, groups: tuple[StackGroup, ...], *, is_recorded: bool = True) -> None:
        """List stacks; where there are none, either nothing is live or the file does not tell what is."""
        self._groups = groups
        self._selected = 0
        self._is_recorded = is_recorded
        self.scroll_to(y=0, animate=False)
        self._draw()

    def on_focus(self) -> None:
        """Draw the cursor."""
        self._draw()

    def on_blur(self) -> None:
        """Draw the cursor no more."""
        self._draw()

    def action_move(self, places: int) -> None:
        """Move the cursor by rows."""
        if not self._groups:
            return
        self._selected = max(0, min(self._selected + places, len(self._groups) - 1))
        self._draw()
        top = self.scroll_offset.y
        height = max(1, self.size.height)
        if not top <= self._selected < top + height:
            target = self._selected if self._selected < top else self._selected - height + 1
            self.scroll_to(y=target, animate=False)

    def action_page(self, pages: int) -> None:
        """Move the cursor by pages."""
        self.action_move(pages * max(1, self.size.height - 1))

    def action_open(self) -> None:
        """Ask for the whole stack under the cursor."""
        if self.selected is not None:
            self.post_message(self.Opened(self.selected))

    def on_click(self, event: events.Click) -> None:
        """Choose the row; a second click on it opens it."""
        row = event.y + self.scroll_offset.y
        if row >= len(self._groups):
            return
        if row == self._selected:
            self.action_open()
        self.action_move(row - self._selected)

    def _compose_lines(self, width: int, height: int) -> list[Line]:
        is_ascii = self._glyphs.name == "ascii"
        if not self._groups:
            text = " nothing is live" if self._is_recorded else " what was live is not in the file"
            text = text if height else ""
            return [fit_line([Span(text, "muted")], width, is_ascii=is_ascii)]
        return [
            fit_line(
                self._draw_row(group, number, width), width, is_ascii=is_ascii, ellipsis=self._glyphs.ellipsis
            )
            for number, group in enumerate(self._groups)
        ]

    def _draw_row(self, group: StackGroup, number: int, width: int) -> Line:
        is_chosen = number == self._selected and self.has_focus
        counts = "" if width < NARROW_CELLS else f"  {group.share:>6.1%}  {group.count:>7,}"
        figures = f"{format_bytes(group.size_bytes):>9}{counts}  "
        lead = f" {self._glyphs.selected if is_chosen else ' '} "
        room = width - len(lead) - len(figures)
        where = show_frame(group.headline, room) if group.headline else "no stack was recorded"
        role: Role = "strong" if is_chosen else "text"
        return [
            Span(lead, "accent"),
            Span(figures, role),
            Span(where, role if group.headline else "muted"),
        ]
