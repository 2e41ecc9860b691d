"""Questions before a process is attached to, or let go."""

from collections.abc import Sequence

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Label

from ...engine.model import ProcessReading
from ..frame import keys
from ..screens.dialogs import ChoiceScreen
from .process_rows import LISTED_COMMAND_CELLS, shorten_command

MOST_LISTED = 8
ALL = "all"


class AttachQuestion(ModalScreen[bool]):
    """Asks whether to do something to processes; only `y` does it, every other way out does nothing."""

    BINDINGS = [*keys.ATTACH]

    def __init__(self, title: str, facts: str) -> None:
        super().__init__()
        self._question = title
        self._facts = facts

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            yield Label(self._question, classes="dialog--title", markup=False)
            yield Label(self._facts, classes="dialog--facts", markup=False)
            yield Label("y does it, Esc cancels", classes="dialog--hint")


def ask_to_attach(process: ProcessReading, node: str) -> AttachQuestion:
    """`node` names the node of the process; empty where it is this one."""
    return AttachQuestion(
        f"Attach to process {process.pid}{node and f' of {node}'}?",
        f"{_describe(process)}\n"
        "what     loads the probe, which reports allocator and steps\n"
        "stop     some milliseconds for all threads (0.05 s where gdb is needed)\n"
        f"undo     press a again, or `vramscope detach {process.pid}`",
    )


def ask_to_detach(process: ProcessReading, node: str) -> AttachQuestion:
    return AttachQuestion(
        f"Detach from process {process.pid}{node and f' of {node}'}?",
        f"{_describe(process)}\n"
        "what     removes the probe; then only the device memory is known\n"
        "stop     none\n"
        "undo     press a again",
    )


def choose_process(processes: Sequence[ProcessReading], node: str) -> ChoiceScreen:
    """Ask which of several processes to attach to: the choice is its id, or `all`."""
    choices = {str(it.pid): _name_in_list(it) for it in processes}
    title = f"Attach to which process{node and f' of {node}'}?"
    return ChoiceScreen(title, {ALL: f"{'all':>8} {len(processes)} processes", **choices})


def _name_in_list(process: ProcessReading) -> str:
    return f"{process.pid:>8} {shorten_command(process.command, LISTED_COMMAND_CELLS)}"


def ask_to_attach_to_several(processes: Sequence[ProcessReading], node: str = "") -> AttachQuestion:
    count = len(processes)
    listed = list(map(_name_in_list, processes[:MOST_LISTED]))
    if count > MOST_LISTED:
        listed.append(f"{'':>8} … and {count - MOST_LISTED} more")
    which = f"of {node}" if node else "of yours with PyTorch"
    return AttachQuestion(
        f"Attach to {'a process' if count == 1 else f'{count} processes'} {which}?",
        "\n".join(listed) + "\n\nwhat     loads the probe, which reports allocator and steps\n"
        "stop     some milliseconds for all threads (0.05 s where gdb is needed)\n"
        "undo     press a on a process, or `vramscope detach PID`",
    )


def _describe(process: ProcessReading) -> str:
    return f"user     {process.user or '—'}\ncommand  {shorten_command(process.command)}"
