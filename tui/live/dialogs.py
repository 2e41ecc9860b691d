"""Dialogs on processes: the order of the list, and which signal to send."""

import asyncio
import signal
from textwrap import shorten

from textual.app import App, ComposeResult
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Label, OptionList

from ...engine.model import Sample
from ...engine.settings import SortColumn
from ...engine.units import format_bytes
from ..frame import keys
from ..screens.dialogs import MarkedList
from .process_signals import SIGNALS, ProcessHandle, SignalPolicy, SignalRefused, refuse_by_policy
from .process_table import SORTABLE, ProcessRow, SortOrder, column_named


class SortScreen(ModalScreen[SortOrder | None]):
    """Asks for a column; choosing the present one inverts it."""

    BINDINGS = [*keys.SORT]

    def __init__(self, order: SortOrder) -> None:
        super().__init__()
        self._order = order

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog -narrow"):
            yield Label("Sort processes by", classes="dialog--title")
            yield MarkedList((name, self._describe(name)) for name in SORTABLE)
            yield Label("Enter chooses, Esc cancels", classes="dialog--hint")

    def _describe(self, name: SortColumn) -> str:
        title = column_named(name).title
        word = title if len(title) <= 3 else title.lower().replace("gpu", "GPU")
        return f"{word}  (reverse)" if name == self._order.column else word

    def on_mount(self) -> None:
        options = self.query_one(MarkedList)
        options.highlighted = SORTABLE.index(self._order.column)
        options.focus()

    def action_move(self, places: int) -> None:
        self.query_one(MarkedList).move(places)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        name = SORTABLE[event.option_index]
        is_same = name == self._order.column
        self.dismiss(SortOrder(name, not self._order.is_inverted if is_same else False))


# Characters of a command line that are shown.
MAX_COMMAND = 300


class SignalScreen(ModalScreen[signal.Signals | None]):
    """Asks for a signal; only `y` sends it, every other way out sends nothing."""

    BINDINGS = [*keys.SIGNAL]

    def __init__(self, row: ProcessRow) -> None:
        super().__init__()
        self._row = row

    def compose(self) -> ComposeResult:
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
            yield Label(
                "y sends the selected signal, up and down select, Esc cancels", classes="dialog--hint"
            )

    def on_mount(self) -> None:
        options = self.query_one(MarkedList)
        options.highlighted = [number for number, _ in SIGNALS].index(signal.SIGTERM)
        options.focus()

    def action_move(self, places: int) -> None:
        self.query_one(MarkedList).move(places)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Only mark; sending needs the confirming key."""
        event.stop()

    def action_confirm(self) -> None:
        marked = self.query_one(MarkedList).highlighted
        self.dismiss(None if marked is None else SIGNALS[marked][0])


# How long a process that was signalled is watched.
EXIT_PATIENCE_S = 10.0


def begin_signal(app: App[object], sample: Sample, row: ProcessRow, policy: SignalPolicy) -> None:
    """Ask which signal to send to the process of a row, or say why none can be sent.

    The process is pinned before the question is put, so that the answer reaches that process or none.
    """
    refusal = refuse_by_policy(row.process, sample.node, sample.clock == "trace", policy)
    if refusal is None:
        try:
            handle = ProcessHandle(row.process)
        except SignalRefused as error:
            refusal = str(error)
        else:
            app.push_screen(SignalScreen(row), lambda number: _answer(app, handle, number))
            return
    app.notify(f"{refusal[:1].upper()}{refusal[1:]}.", severity="warning")


def _answer(app: App[object], handle: ProcessHandle, number: signal.Signals | None) -> None:
    """Send the confirmed signal, report the result, and watch for the exit."""
    if number is None:
        handle.close()
        return
    try:
        handle.send(number)
    except SignalRefused as error:
        app.notify(f"{error}.", severity="error")
        handle.close()
        return
    app.notify(f"{number.name} sent to process {handle.pid}.")
    _watch_exit(app, handle, number)


def _watch_exit(app: App[object], handle: ProcessHandle, number: signal.Signals) -> None:
    """Report when the process exits, or that it has not; the kernel wakes us, nothing is polled."""
    loop = asyncio.get_running_loop()

    def give_up() -> None:
        loop.remove_reader(handle.fileno())
        handle.close()
        app.notify(
            f"Process {handle.pid} is still running {EXIT_PATIENCE_S:.0f} s after {number.name}.",
            severity="warning",
        )

    patience = loop.call_later(EXIT_PATIENCE_S, give_up)

    def note_exit() -> None:
        patience.cancel()
        loop.remove_reader(handle.fileno())
        handle.close()
        app.notify(f"Process {handle.pid} exited.")

    loop.add_reader(handle.fileno(), note_exit)
