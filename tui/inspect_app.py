"""`vramscope inspect` in a terminal: the file is read on a thread, and shown when it was."""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from pathlib import Path
from typing import TYPE_CHECKING

from textual.screen import Screen

from ..engine.clock import Clock, SystemClock
from ..engine.readers.input_file import show_name
from ..engine.settings import Settings
from ..engine.units import format_bytes
from .inspect_bindings import INSPECT_APP_BINDINGS
from .inspect_reading import read_inspected
from .inspected import Inspected, InspectedAdvice
from .launch import check_terminal, run_to_end
from .screens.inspect import InspectScreen
from .terminal import TerminalAbilities
from .terminal_app import TerminalApp
from .terminal_driver import TerminalDriver

if TYPE_CHECKING:
    from textual.driver import Driver

PROGRESS_S = 0.2


class InspectApp(TerminalApp, inherit_bindings=False):
    """Shows one file.

    Args:
        path: The file.
        read: Reads it; called on a thread of its own.
        settings: What the user set.
        abilities: What the terminal can show.
        clock: Where time is read.
        export_folder: Where exports go; None for the current folder.
        on_exit_asked: Called when the application begins to end.
        driver_class: Driver of the terminal; None for Textual's own.
    """

    BINDINGS = [*INSPECT_APP_BINDINGS]

    def __init__(
        self,
        path: Path,
        read: Callable[[], Inspected],
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
        self._path, self._read, self._clock = path, read, clock
        self._export_folder = export_folder
        self._began_s = clock.monotonic_s()
        self.refusal: Exception | None = None
        """Why the file cannot be shown."""

    def get_default_screen(self) -> Screen[None]:
        """Return the screen of the file."""
        self.view = InspectScreen(self.glyphs)
        return self.view

    def on_mount(self) -> None:
        """Begin to read."""
        self._progress = self.set_interval(PROGRESS_S, self._tell_progress, name="progress of reading")
        self._tell_progress()
        self._loop_context = copy_context()
        self._event_loop = asyncio.get_running_loop()
        threading.Thread(target=self._read_file, name="file-reader", daemon=True).start()

    def _tell_progress(self) -> None:
        with suppress(OSError):
            size = format_bytes(self._path.stat().st_size)
            seconds = self._clock.monotonic_s() - self._began_s
            self.view.wait(f"reading {show_name(self._path)}, {size}: {seconds:.0f} s; q leaves")

    def _read_file(self) -> None:
        """Read on the thread and hand over; the application may have ended meanwhile."""
        found: Inspected | None = None
        try:
            found = self._read()
        except Exception as error:  # noqa: BLE001 - told by whoever runs the application
            self.refusal = error
        with suppress(RuntimeError):  # the loop has ended
            self._event_loop.call_soon_threadsafe(self._take, found, context=self._loop_context)

    def _take(self, found: Inspected | None) -> None:
        """Show what was read; an error ends the application as one in a message's handler does."""
        if self._exit or self._closing:
            return
        try:
            self._show(found)
        except Exception as error:  # noqa: BLE001 - whatever it is, a person must see it
            self._handle_exception(error)

    def _show(self, found: Inspected | None) -> None:
        self._progress.stop()
        if found is None:
            self.exit()
        else:
            self.view.show(found)
            if found.advise is not None and found.devices:
                threading.Thread(target=self._advise, args=(found,), name="adviser", daemon=True).start()

    def _advise(self, found: Inspected) -> None:
        """Replay the traces on the thread, device by device; the application may end meanwhile."""
        for place in range(len(found.devices)):
            if self._exit or found.advise is None:
                return
            try:
                advice = found.advise(place)
            except Exception as error:  # noqa: BLE001 - the file is shown all the same, and the screen says why
                advice = InspectedAdvice(
                    (f"no advice on allocator settings: {error!r}",), "", is_refused=True
                )
            with suppress(RuntimeError):  # the loop has ended
                self._event_loop.call_soon_threadsafe(
                    self._take_advice, place, advice, context=self._loop_context
                )

    def _take_advice(self, place: int, advice: InspectedAdvice) -> None:
        if self._exit or self._closing:
            return
        try:
            self.view.take_advice(place, advice)
        except Exception as error:  # noqa: BLE001 - whatever it is, a person must see it
            self._handle_exception(error)

    def action_export(self) -> None:
        """Write the picture and the report into files."""
        from .export import write_export

        inspected = self.view.inspected
        if inspected is None:
            self.notify("There is nothing to export yet.", timeout=3)
            return
        folder = self._export_folder or Path.cwd()
        contents = {".svg": self.export_screenshot().encode(), ".txt": self.view.report.encode()}
        try:
            files = write_export(contents, folder, self._clock.wall_s())
        except OSError as error:
            self.notify(f"Not exported: {folder}: {error.strerror}", severity="error", markup=False)
            return
        self.notify(f"Wrote {' and '.join(path.name for path in files)} to {folder}", markup=False)


def inspect_file(path: Path, *, settings: Settings, device: int | None = None) -> int:
    """Show a file until the user quits, and return the exit code.

    Args:
        path: The file.
        settings: What the user set.
        device: The only device to show; None for all.

    Raises:
        UsageError: Nothing can be drawn here, or the file does not tell of the device.
        InputFileError: The file cannot be read or understood.
    """
    from .shutdown import Shutdown

    abilities = check_terminal(settings)
    shutdown = Shutdown(lambda: app.call_later(app.exit))
    app = InspectApp(
        path,
        lambda: read_inspected(path, device),
        settings=settings,
        abilities=abilities,
        clock=SystemClock(),
        on_exit_asked=shutdown.start_countdown,
    )
    code = run_to_end(app, shutdown, settings)
    _end_readers()
    if app.refusal is not None:
        raise app.refusal
    return code


def _end_readers() -> None:
    """End the process that decodes, where the user left before it was done."""
    import psutil

    for child in psutil.Process().children():
        with suppress(psutil.Error):
            child.terminate()
