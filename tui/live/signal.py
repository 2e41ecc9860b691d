"""The question before a signal: which process it is, which signal, and a key that confirms."""

import signal
from textwrap import shorten

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Label, OptionList

from ...engine.units import format_bytes
from ..frame import keys
from ..widgets.marked_list import MarkedList
from .process_rows import ProcessRow
from .process_signals import SIGNALS

MAX_COMMAND = 300
"""Characters of a command line that are shown."""


class SignalScreen(ModalScreen[signal.Signals | None]):
    """Asks for a signal; only `y` sends it, every other way out sends nothing."""

    BINDINGS = [*keys.SIGNAL]

    def __init__(self, row: ProcessRow) -> None:
        super().__init__()
        self._row = row

    def compose(self) -> ComposeResult:
        """Yield who it is, the signals, and how to go on."""
        row = self._row
        process = row.process
        with Vertical(classes="dialog"):
            yield Label(f"Signal process {process.pid}?", classes="dialog--title", markup=False)
            yield Label(
                f"user     {process.user or '—'}\n"
                f"device   {row.device.label}  {row.device.name or ''}\n"
                f"memory   {format_bytes(process.used_bytes)} of the device\n"
                f"command  {shorten(row.command, MAX_COMMAND, placeholder=' …')}"
                + (f"\nnote     {row.note}" if row.note else ""),
                classes="dialog--facts",
                markup=False,
            )
            yield MarkedList((number.name, f"{number.name[3:]:<5} {meaning}") for number, meaning in SIGNALS)
            yield Label("y sends the marked signal, up and down choose, Esc cancels", classes="dialog--hint")

    def on_mount(self) -> None:
        """Mark TERM."""
        options = self.query_one(MarkedList)
        options.highlighted = [number for number, _ in SIGNALS].index(signal.SIGTERM)
        options.focus()

    def action_move(self, places: int) -> None:
        """Mark another signal."""
        self.query_one(MarkedList).move(places)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Enter or a click marks only; sending takes the confirming key."""
        event.stop()

    def action_confirm(self) -> None:
        """Answer with the marked signal."""
        marked = self.query_one(MarkedList).highlighted
        self.dismiss(None if marked is None else SIGNALS[marked][0])
