"""A list of lines with a cursor, which stays in sight: what lists of candidates, stages and layers share."""

from textual import events
from textual.message import Message

from .line_page import LinePage


class CursorList(LinePage):
    """Moves a cursor over lines; who derives from it draws them, and counts them in `_count`."""

    class Chosen(Message):
        """Another line is under the cursor."""

        def __init__(self, of: "CursorList") -> None:
            super().__init__()
            self.of = of

        @property
        def control(self) -> "CursorList":
            """The list."""
            return self.of

    class Opened(Chosen):
        """What is under the cursor is to be shown in full."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.chosen = 0
        """Place of the cursor."""

    @property
    def _count(self) -> int:
        """Lines that the cursor can go to."""
        raise NotImplementedError

    def choose(self, place: int) -> None:
        """Put the cursor on a line, as near as there is one, and into sight."""
        moved = max(0, min(place, self._count - 1))
        if moved != self.chosen:
            self.chosen = moved
            self.post_message(self.Chosen(self))
        self._draw()
        self._keep_in_sight()

    def _keep_in_sight(self) -> None:
        top = self.scroll_offset.y
        height = max(1, self.size.height)
        if not top <= self.chosen < top + height:
            self.scroll_to(y=self.chosen if self.chosen < top else self.chosen - height + 1, animate=False)

    def on_resize(self) -> None:
        """Draw for the new room, and keep the cursor in it."""
        super().on_resize()
        self.call_after_refresh(self._keep_in_sight)

    def on_focus(self) -> None:
        """Draw the cursor."""
        self._draw()

    def on_blur(self) -> None:
        """Draw the cursor no more."""
        self._draw()

    def action_move(self, places: int) -> None:
        """Move the cursor by lines."""
        self.choose(self.chosen + places)

    def action_page(self, pages: int) -> None:
        """Move the cursor by pages."""
        self.action_move(pages * max(1, self.size.height - 1))

    def action_open(self) -> None:
        """Ask for the whole of what is under the cursor."""
        if self._count:
            self.post_message(self.Opened(self))

    def on_click(self, event: events.Click) -> None:
        """Choose the line; a second click opens it."""
        place = event.y + self.scroll_offset.y
        if place < self._count:
            self.choose(place)
            if event.chain > 1:
                self.action_open()
