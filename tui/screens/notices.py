"""Notices: sentences that take the alerts line for a few seconds, or another line where there is none.

They cover no data. Several wait for each other: the newest is shown first, with how many earlier ones wait.
"""

import re
from typing import Literal, NamedTuple

from rich.cells import cell_len
from textual.app import App
from textual.content import Content
from textual.css.query import NoMatches
from textual.screen import ModalScreen, Screen
from textual.timer import Timer
from textual.widget import Widget

from ..draw.numbers import count_text
from ..draw.pieces import Piece
from ..draw.spans import Role
from ..widgets.device_fields import wrap_words
from ..widgets.one_line import OneLine
from ..widgets.title_line import TitleLine

NoticeSeverity = Literal["information", "warning", "error"]

ROLES: dict[NoticeSeverity, Role] = {"information": "accent", "warning": "medium", "error": "high"}
# Seconds for which a part of a long notice, and an earlier one that comes back, are shown.
PART_S = 3.0
# Earlier notices that wait; of more, the oldest go.
MOST_WAITING = 20
# Of a node it says nothing new from one second to the next; keys are what a person looks for after a notice.
NODE_TITLE = "title of a node"
# Lines that a notice takes, the best first; every other line but the title of a file and the verdict comes
# between.
FIRST_LINES = ("alerts", NODE_TITLE, "keys", "hooks", "host", "notes")
LAST_LINES = ("title", "verdict")
# Cells of the number of a part, `  1/2`.
NUMBER_CELLS = 5
# Marks a part that others precede or follow.
GOES_ON = "…"
# Cells that the subject of a notice leaves to each of its parts.
LEAST_PART_CELLS = 24
# Cells of a dialog's border that its subtitle cannot have.
BORDER_CELLS = 6


class Notice(NamedTuple):
    text: str
    severity: NoticeSeverity = "information"
    timeout_s: float = PART_S
    # A later notice on the same subject replaces an earlier one; empty for none.
    subject: str = ""
    # Whether the verdict says it too, whose line it then never takes.
    is_in_verdict: bool = False


class NoticeQueue:
    """The notice that is shown, and earlier ones that are shown after it, the newest of them first."""

    def __init__(self) -> None:
        self.shown: Notice | None = None
        self._waiting: list[Notice] = []

    def __len__(self) -> int:
        return len(self._waiting) + (self.shown is not None)

    @property
    def texts(self) -> list[str]:
        """All of them, the newest last."""
        return [it.text for it in (*self._waiting, *([self.shown] if self.shown else []))]

    @property
    def earlier(self) -> int:
        return len(self._waiting)

    def add(self, notice: Notice) -> None:
        known = [*self._waiting, *([self.shown] if self.shown else [])]
        replaced = [
            it for it in known if it.text == notice.text or (it.subject and it.subject == notice.subject)
        ]
        self._waiting = [it for it in known if it not in replaced][-MOST_WAITING:]
        self.shown = notice

    def step(self) -> None:
        """Go on to the notice before, which was interrupted and needs less time."""
        notice = self._waiting.pop() if self._waiting else None
        self.shown = None if notice is None else notice._replace(timeout_s=min(PART_S, notice.timeout_s))

    def clear(self) -> None:
        self.shown = None
        self._waiting.clear()


class NoticeBoard:
    """Shows the notices of an application on whatever screen is open, and over a dialog on its border."""

    def __init__(self, app: App[None]) -> None:
        self._app = app
        self._queue = NoticeQueue()
        self._part = 0
        self._parts: list[str] = []
        self._line: OneLine | None = None
        self._dialog: Widget | None = None
        self._timer: Timer | None = None

    @property
    def texts(self) -> list[str]:
        """Texts of all notices that are shown or wait, the newest last."""
        return self._queue.texts

    def add(self, notice: Notice) -> None:
        self._queue.add(notice)
        self._begin()

    def clear(self) -> None:
        self._queue.clear()
        self._begin()

    def place(self) -> None:
        """Show the notice on the screen that is open now; called again when that or its layout changes."""
        notice = self._queue.shown
        line, dialog = self._find_places() if notice is not None else (None, None)
        if notice is not None and notice.is_in_verdict and line is not None and line.id == "verdict":
            line = None
        if self._line is not None and self._line is not line:
            self._line.hide_notice()
        if self._dialog is not None and self._dialog is not dialog:
            self._dialog.border_subtitle = ""
        self._line = line
        self._dialog = dialog
        if notice is None:
            return
        widths = [line.size.width - 4] if line is not None else []
        widths += [dialog.size.width - BORDER_CELLS] if dialog is not None else []
        left = count_text(self._queue.earlier, "earlier", "earlier") if self._queue.earlier else ""
        self._parts = split_notice(notice.text, min(widths, default=80) - (cell_len(left) + 2 if left else 0))
        self._part = min(self._part, len(self._parts) - 1)
        text = self._parts[self._part]
        mark = f"{self._part + 1}/{len(self._parts)}" if len(self._parts) > 1 else ""
        right = "  ".join(filter(None, (mark, left)))
        role = ROLES[notice.severity]
        if line is not None:
            edge = Piece(f"{line.glyphs.selected} ", role)
            line.show_notice([edge, Piece(text, "strong")], [Piece(right, "muted")] if right else [])
        if dialog is not None:
            dialog.border_subtitle = Content("  ".join(filter(None, (text, right))))

    def _begin(self) -> None:
        """Show the notice that is due from its beginning; none where there is none."""
        self._part = 0
        self.place()
        self._schedule()

    def _schedule(self) -> None:
        if self._timer is not None:
            self._timer.stop()
        notice = self._queue.shown
        self._timer = None
        if notice is not None:
            seconds = PART_S if len(self._parts) > 1 else notice.timeout_s
            self._timer = self._app.set_timer(seconds, self._step, name="notice")

    def _step(self) -> None:
        """Go on to the next part of a long notice, or to the notice before."""
        if self._part + 1 < len(self._parts):
            self._part += 1
            self.place()
            self._schedule()
            return
        self._queue.step()
        self._begin()

    def _find_places(self) -> tuple[OneLine | None, Widget | None]:
        """Return the line of the screen that is open, and the dialog over it."""
        screens = self._app.screen_stack
        base = next((it for it in reversed(screens) if not isinstance(it, ModalScreen)), None)
        dialog: Widget | None = None
        if screens and isinstance(screens[-1], ModalScreen):
            try:
                dialog = screens[-1].query(".dialog").first(Widget)
            except NoMatches:
                dialog = None  # of the palette the line below is in sight
        return (None if base is None else find_line(base)), dialog


def split_notice(text: str, room: int) -> list[str]:
    """Return the parts of a notice that fit into so many cells, with room for their number.

    Each later part begins with what the notice is about (`Not exported: …`), where that is short, so that it
    can be understood without those before.
    """
    if cell_len(text) <= room:
        return [text]
    room -= NUMBER_CELLS + cell_len(f"{GOES_ON} {GOES_ON}")
    heads = [text[: colon.end()] for colon in re.finditer(": ", text)]
    head = next((it for it in reversed(heads) if room - cell_len(it) >= LEAST_PART_CELLS), "")
    parts = wrap_words(text.removeprefix(head), room - cell_len(head))
    last = len(parts) - 1
    return [
        f"{head}{f'{GOES_ON} ' if at else ''}{part}{'' if at == last else f' {GOES_ON}'}"
        for at, part in enumerate(parts)
    ]


def find_line(screen: Screen[object]) -> OneLine | None:
    """Return the line of a screen that a notice takes: the one with the least to lose."""
    lines = [line for line in screen.query(OneLine) if line.display and line.size.height]
    return min(lines, key=_rank_line, default=None)


def _rank_line(line: OneLine) -> int:
    name = NODE_TITLE if isinstance(line, TitleLine) else line.id or ""
    if name in FIRST_LINES:
        return FIRST_LINES.index(name)
    return len(FIRST_LINES) + (1 + LAST_LINES.index(name) if name in LAST_LINES else 0)
