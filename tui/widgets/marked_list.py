"""A short list to choose from whose chosen line bears a mark, so that it is seen without any colour."""

from collections.abc import Iterable

from textual.widgets import OptionList
from textual.widgets.option_list import Option

MARK = "▸ "


class MarkedList(OptionList):
    """Marks the line under the cursor; `j` and `k` of the screens move it by `move`."""

    def __init__(self, lines: Iterable[tuple[str, str]]) -> None:
        """Hold lines.

        Args:
            lines: The id and the text of each line.
        """
        self._texts = dict(lines)
        options = [Option(" " * len(MARK) + text, id=id) for id, text in self._texts.items()]
        super().__init__(*options, compact=True, markup=False)

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        """Put the mark before the chosen line."""
        for id, text in self._texts.items():
            prefix = MARK if id == event.option_id else " " * len(MARK)
            self.replace_option_prompt(id, prefix + text)

    def move(self, places: int) -> None:
        """Move the cursor."""
        (self.action_cursor_down if places > 0 else self.action_cursor_up)()
