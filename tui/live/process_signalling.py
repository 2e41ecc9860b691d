"""From the key to the result: check, ask, send, and tell what became of it."""

import asyncio
import signal

from textual.app import App

from ...engine.model import Sample
from .process_rows import ProcessRow
from .process_signals import ProcessHandle, SignalPolicy, SignalRefused, refuse_by_policy
from .signal import SignalScreen

EXIT_PATIENCE_S = 10.0
"""How long a process that was signalled is watched."""


def begin_signal(app: App[object], sample: Sample, row: ProcessRow, policy: SignalPolicy) -> None:
    """Ask which signal to send to the process of a row, or say why none can be sent.

    The process is pinned before the question is put, so that the answer reaches that process or none.

    Args:
        app: The application, which asks and tells.
        sample: The sample that the row is of.
        row: The process.
        policy: What this viewer may do.
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
    app.notify(f"{refusal[:1].upper()}{refusal[1:]}.", severity="warning", markup=False)


def _answer(app: App[object], handle: ProcessHandle, number: signal.Signals | None) -> None:
    """Send what was confirmed, tell the result, and watch for the exit."""
    if number is None:
        handle.close()
        return
    try:
        handle.send(number)
    except SignalRefused as error:
        app.notify(f"{error}.", severity="error", markup=False)
        handle.close()
        return
    app.notify(f"{number.name} sent to process {handle.pid}.", markup=False)
    _watch_exit(app, handle, number)


def _watch_exit(app: App[object], handle: ProcessHandle, number: signal.Signals) -> None:
    """Tell when the process exits, or that it has not; the kernel wakes us, nothing is polled."""
    loop = asyncio.get_running_loop()

    def give_up() -> None:
        loop.remove_reader(handle.fileno())
        handle.close()
        app.notify(
            f"Process {handle.pid} still runs {EXIT_PATIENCE_S:.0f} s after {number.name}.",
            severity="warning",
            markup=False,
        )

    patience = loop.call_later(EXIT_PATIENCE_S, give_up)

    def note_exit() -> None:
        patience.cancel()
        loop.remove_reader(handle.fileno())
        handle.close()
        app.notify(f"Process {handle.pid} exited.", markup=False)

    loop.add_reader(handle.fileno(), note_exit)
