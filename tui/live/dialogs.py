"""Dialogs on processes: order and columns of the list, and which signal to send."""

import asyncio
import signal
from collections.abc import Callable, Iterator, Sequence

from textual.app import App, ComposeResult
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Label, OptionList

from ...engine.model import ProcessReading, Sample
from ...engine.settings import SortColumn
from ...engine.units import format_bytes
from ..frame import keys
from ..screens.dialogs import MarkedList, TextScreen
from .process_environment import (
    EnvironmentRefused,
    describe_environment,
    read_environment,
    refuse_environment,
)
from .process_rows import (
    COLUMN_NAMES,
    COLUMNS,
    LISTED_COMMAND_CELLS,
    SORTABLE,
    ProcessRow,
    SortOrder,
    column_word,
    shorten_command,
    title_column,
)
from .process_signals import SIGNALS, ProcessHandle, SignalPolicy, SignalRefused, refuse_by_policy


class SortScreen(ModalScreen[SortOrder | None]):
    """Asks for a column; choosing the present one inverts it."""

    BINDINGS = [*keys.SORT]

    def __init__(self, order: SortOrder, *, is_nvidia: bool = True) -> None:
        super().__init__()
        self._order = order
        self._is_nvidia = is_nvidia

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog -narrow"):
            yield Label("Sort processes by", classes="dialog--title")
            yield MarkedList((name, self._describe(name)) for name in SORTABLE)
            yield Label("Enter chooses, Esc cancels", classes="dialog--hint")

    def _describe(self, name: SortColumn) -> str:
        word = column_word(name, is_nvidia=self._is_nvidia)
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


class ColumnsScreen(ModalScreen[None]):
    """Chooses columns; the list behind shows each choice at once.

    Args:
        chosen: Columns of a person's choice; none where they are chosen by the width.
        shown: Columns that are shown now, with which a choice begins.
        apply: Gets the chosen columns; none for a choice by the width.
        is_nvidia: Whether a listed process is on a GPU by NVIDIA.
    """

    BINDINGS = [*keys.COLUMNS]

    def __init__(
        self,
        chosen: Sequence[SortColumn],
        shown: Sequence[SortColumn],
        apply: Callable[[tuple[SortColumn, ...]], None],
        *,
        is_nvidia: bool = True,
    ) -> None:
        super().__init__()
        self._is_nvidia = is_nvidia
        self._is_by_width = not chosen
        self._chosen = set(chosen or shown)
        self._apply = apply

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            yield Label("Columns of the process list", classes="dialog--title")
            yield MarkedList(self._list_lines())
            yield Label("Enter switches, a chooses by width, Esc closes; F12 saves", classes="dialog--hint")

    def _list_lines(self) -> Iterator[tuple[str, str]]:
        width = max(len(column.title) for column in COLUMNS)
        for column in COLUMNS:
            box = "☑" if column.name in self._chosen else "☐"
            title = title_column(column.name, is_nvidia=self._is_nvidia)
            yield column.name, f"{box} {title:<{width}}  {column.meaning}"

    def on_mount(self) -> None:
        options = self.query_one(MarkedList)
        options.highlighted = 0
        options.focus()

    def action_move(self, places: int) -> None:
        self.query_one(MarkedList).move(places)

    def action_switch(self) -> None:
        at = self.query_one(MarkedList).highlighted
        if at is not None:
            self._switch(COLUMN_NAMES[at])

    def action_choose_by_width(self) -> None:
        self._apply(())
        self.dismiss(None)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self._switch(COLUMN_NAMES[event.option_index])

    def _switch(self, name: SortColumn) -> None:
        """Add a column, or remove it; the last one stays."""
        if self._chosen == {name}:
            return
        self._chosen ^= {name}
        self._apply(tuple(it for it in COLUMN_NAMES if it in self._chosen))
        self.query_one(MarkedList).rename(dict(self._list_lines()))


# Processes that a question lists.
MOST_LISTED = 8


class SignalScreen(ModalScreen[signal.Signals | None]):
    """Asks for a signal; only `y` sends it, every other way out sends nothing.

    Args:
        rows: The processes that would get it.
        refused: Why others of the marked ones would not.
    """

    BINDINGS = [*keys.SIGNAL]

    def __init__(self, rows: Sequence[ProcessRow], refused: Sequence[str] = ()) -> None:
        super().__init__()
        self._rows = rows
        self._refused = refused

    def compose(self) -> ComposeResult:
        rows = self._rows
        which = f"process {rows[0].process.pid}" if len(rows) == 1 else f"{len(rows)} processes"
        facts = describe_process(rows[0]) if len(rows) == 1 else "\n".join(self._list_processes())
        with Vertical(classes="dialog"):
            yield Label(f"Signal {which}?", classes="dialog--title", markup=False)
            yield Label(facts, classes="dialog--facts", markup=False)
            for reason in self._refused[:MOST_LISTED]:
                yield Label(f"not: {reason}", classes="dialog--hint", markup=False)
            yield MarkedList((number.name, f"{number.name[3:]:<5} {meaning}") for number, meaning in SIGNALS)
            yield Label(
                "y sends the selected signal, up and down select, Esc cancels", classes="dialog--hint"
            )

    def _list_processes(self) -> Iterator[str]:
        for row in self._rows[:MOST_LISTED]:
            command = shorten_command(row.command, LISTED_COMMAND_CELLS - 12)
            yield f"{row.process.pid:>8}  {row.process.user or '—':<8}  {command}"
        left = len(self._rows) - MOST_LISTED
        if left > 0:
            yield f"          and {left} more"

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


def describe_process(row: ProcessRow) -> str:
    """Return a process in a few lines, as a question about it shows it."""
    process = row.process
    memory = "none of the device" if row.is_relative else f"{format_bytes(process.used_bytes)} of the device"
    return (
        f"user     {process.user or '—'}\n"
        f"device   {row.device.label}  {row.device.name or ''}\n"
        f"memory   {memory}\n"
        f"command  {shorten_command(row.command)}" + (f"\nnote     {row.note}" if row.note else "")
    )


def show_environment(app: App[object], sample: Sample, process: ProcessReading, policy: SignalPolicy) -> None:
    """Show the environment of a process, or say why it cannot be shown."""
    refusal = refuse_environment(process, sample.node, sample.clock == "trace", policy)
    try:
        if refusal is not None:
            raise EnvironmentRefused(refusal)
        text = describe_environment(read_environment(process))
    except EnvironmentRefused as error:
        refusal = str(error)
        app.notify(f"{refusal[:1].upper()}{refusal[1:]}.", severity="warning")
        return
    app.push_screen(TextScreen(f"Environment of process {process.pid}", text))


# How long a process that was signalled is watched.
EXIT_PATIENCE_S = 10.0


def begin_signal(
    app: App[object],
    sample: Sample,
    rows: Sequence[ProcessRow],
    policy: SignalPolicy,
    then: Callable[[], object] = lambda: None,
) -> None:
    """Ask which signal to send to the processes of rows, or say why none can be sent.

    The processes are pinned before the question is put, so that the answer reaches these or none.

    Args:
        then: Called once a signal was sent.
    """
    handles: list[ProcessHandle] = []
    pinned: list[ProcessRow] = []
    refused: list[str] = []
    for row in rows:
        refusal = refuse_by_policy(row.process, sample.node, sample.clock == "trace", policy)
        if refusal is None:
            try:
                handles.append(ProcessHandle(row.process))
                pinned.append(row)
            except SignalRefused as error:
                refusal = str(error)
        if refusal is not None:
            refused.append(refusal)
    if not handles:
        refusal = refused[0]
        app.notify(f"{refusal[:1].upper()}{refusal[1:]}.", severity="warning")
        return

    def answer(number: signal.Signals | None) -> None:
        _answer(app, handles, number)
        if number is not None:
            then()

    app.push_screen(SignalScreen(pinned, refused), answer)


def _answer(app: App[object], handles: Sequence[ProcessHandle], number: signal.Signals | None) -> None:
    """Send the confirmed signal, report the result, and watch for the exits."""
    if number is None:
        for handle in handles:
            handle.close()
        return
    sent: list[ProcessHandle] = []
    for handle in handles:
        try:
            handle.send(number)
            sent.append(handle)
        except SignalRefused as error:
            app.notify(f"{error}.", severity="error")
            handle.close()
    if sent:
        app.notify(f"{number.name} sent to {_name([handle.pid for handle in sent])}.")
        _ExitWatch(app, sent, number)


def _name(pids: Sequence[int]) -> str:
    if len(pids) == 1:
        return f"process {pids[0]}"
    listed = ", ".join(map(str, pids[:MOST_LISTED])) + (", …" if len(pids) > MOST_LISTED else "")
    return f"{len(pids)} processes: {listed}"


class _ExitWatch:
    """Reports when processes have exited, or which have not; the kernel wakes us, nothing is polled."""

    def __init__(self, app: App[object], handles: Sequence[ProcessHandle], number: signal.Signals) -> None:
        self._app = app
        self._number = number
        self._pids = [handle.pid for handle in handles]
        self._left = {handle.pid: handle for handle in handles}
        self._loop = asyncio.get_running_loop()
        self._patience = self._loop.call_later(EXIT_PATIENCE_S, self._give_up)
        for handle in handles:
            self._loop.add_reader(handle.fileno(), self._note_exit, handle)

    def _note_exit(self, handle: ProcessHandle) -> None:
        self._release(handle)
        if not self._left:
            self._patience.cancel()
            pids = self._pids
            one = f"Process {pids[0]} exited." if len(pids) == 1 else f"All {len(pids)} processes exited."
            self._app.notify(one)

    def _give_up(self) -> None:
        running = list(self._left)
        for handle in list(self._left.values()):
            self._release(handle)
        after = f"still running {EXIT_PATIENCE_S:.0f} s after {self._number.name}"
        name = _name(running)
        text = f"Process {running[0]} is {after}." if len(running) == 1 else f"{name} are {after}."
        self._app.notify(text, severity="warning")

    def _release(self, handle: ProcessHandle) -> None:
        self._loop.remove_reader(handle.fileno())
        del self._left[handle.pid]
        handle.close()
