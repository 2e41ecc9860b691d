"""What a screen over files is shown by: they are read on a thread, and shown when they were."""

import asyncio
import threading
from abc import abstractmethod
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from pathlib import Path
from typing import TYPE_CHECKING, Generic, NotRequired, TypedDict, TypeVar

from ...engine.clock import Clock
from ...engine.settings import Settings
from .. import keys
from ..frame.launch import run_to_end
from ..terminal.abilities import TerminalAbilities
from ..terminal.driver import TerminalDriver
from .terminal_app import TerminalApp

if TYPE_CHECKING:
    from textual.driver import Driver

    from ..frame.shutdown import Shutdown

PROGRESS_S = 0.2


class ReadingOptions(TypedDict):
    """What every such application is given besides what it reads, as `ReadingApp` explains it."""

    settings: Settings
    abilities: TerminalAbilities
    clock: Clock
    export_folder: NotRequired[Path | None]
    on_exit_asked: NotRequired[Callable[[], object]]
    driver_class: "NotRequired[type[Driver] | None]"


FoundT = TypeVar("FoundT")


class ReadingApp(TerminalApp, Generic[FoundT], inherit_bindings=False):
    """Reads something on a thread, says how far it is meanwhile, and shows it.

    Args:
        read: Reads; called on a thread of its own.
        settings: What the user set.
        abilities: What the terminal can show.
        clock: Where time is read.
        export_folder: Where exports go; None for the current folder.
        on_exit_asked: Called when the application begins to end.
        driver_class: Driver of the terminal; None for Textual's own.
    """

    BINDINGS = [*keys.FILE]

    def __init__(
        self,
        read: Callable[[], FoundT],
        *,
        settings: Settings,
        abilities: TerminalAbilities,
        clock: Clock,
        export_folder: Path | None = None,
        on_exit_asked: Callable[[], object] = lambda: None,
        driver_class: "type[Driver] | None" = TerminalDriver,
    ) -> None:
        super().__init__(
            abilities, theme=settings.theme, on_exit_asked=on_exit_asked, driver_class=driver_class
        )
        self._read = read
        self._clock = clock
        self._export_folder = export_folder
        self.refusal: Exception | None = None
        """Why nothing can be shown."""

    @abstractmethod
    def tell_progress(self) -> None:
        """Say on the screen how far the reading is."""

    @abstractmethod
    def show(self, found: FoundT) -> None:
        """Show what was read."""

    @property
    @abstractmethod
    def report(self) -> str | None:
        """What is shown, as text; None while there is nothing."""

    def on_mount(self) -> None:
        """Begin to read."""
        self._progress = self.set_interval(PROGRESS_S, self.tell_progress, name="progress of reading")
        self.tell_progress()
        self._loop_context = copy_context()
        self._event_loop = asyncio.get_running_loop()
        threading.Thread(target=self._read_and_show, name="file-reader", daemon=True).start()

    def hand_over(self, take: Callable[[], object]) -> None:
        """Have something done in the application, from another thread; nothing where it ends meanwhile."""
        with suppress(RuntimeError):  # the loop has ended
            self._event_loop.call_soon_threadsafe(self._do, take, context=self._loop_context)

    def action_export(self) -> None:
        """Write the picture and the report into files."""
        from ..frame.export import export_and_tell

        report = self.report
        if report is None:
            self.notify("There is nothing to export yet.", timeout=3)
            return
        contents = {".svg": self.export_screenshot().encode(), ".txt": report.encode()}
        export_and_tell(self, contents, self._export_folder, self._clock.wall_s())

    def run_reading(self, shutdown: "Shutdown", settings: Settings) -> int:
        """Run until the user quits, and return the exit code.

        Raises:
            VramscopeError: What was to be read cannot be read or understood.
        """
        code = run_to_end(self, shutdown, settings)
        if self.refusal is not None:
            raise self.refusal
        return code

    def _read_and_show(self) -> None:
        try:
            found = self._read()
        except Exception as error:  # noqa: BLE001 - told by whoever runs the application
            self.refusal = None if isinstance(error, InterruptedError) else error
            self.hand_over(self.exit)
        else:
            self.hand_over(lambda: self._show(found))

    def _show(self, found: FoundT) -> None:
        self._progress.stop()
        self.show(found)

    def _do(self, take: Callable[[], object]) -> None:
        """Do something; an error ends the application as one in a message's handler does."""
        if self._exit or self._closing:
            return
        try:
            take()
        except Exception as error:  # noqa: BLE001 - whatever it is, a person must see it
            self._handle_exception(error)
