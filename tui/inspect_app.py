"""`vramscope inspect` in a terminal: the file is read on a thread, and shown when it was."""

import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from textual.screen import Screen

from ..engine.clock import Clock, SystemClock
from ..engine.readers.input_file import show_name
from ..engine.settings import Settings
from ..engine.units import format_bytes
from .inspect_reading import read_inspected
from .inspected import Inspected, InspectedAdvice
from .launch import check_terminal
from .reading_app import ReadingApp
from .screens.inspect import InspectScreen
from .terminal import TerminalAbilities
from .terminal_driver import TerminalDriver

if TYPE_CHECKING:
    from textual.driver import Driver


class InspectApp(ReadingApp[Inspected]):
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
            read,
            settings=settings,
            abilities=abilities,
            clock=clock,
            export_folder=export_folder,
            on_exit_asked=on_exit_asked,
            driver_class=driver_class,
        )
        self._path, self._began_s = path, clock.monotonic_s()

    def get_default_screen(self) -> Screen[None]:
        """Return the screen of the file."""
        self.view = InspectScreen(self.glyphs)
        return self.view

    @property
    def report(self) -> str | None:
        """What is shown, as text; None while there is nothing."""
        return None if self.view.inspected is None else self.view.report

    def tell_progress(self) -> None:
        """Say on the screen for how long the file has been read."""
        with suppress(OSError):
            size = format_bytes(self._path.stat().st_size)
            seconds = self._clock.monotonic_s() - self._began_s
            self.view.wait(f"reading {show_name(self._path)}, {size}: {seconds:.0f} s; q leaves")

    def show(self, found: Inspected) -> None:
        """Show what was read, and begin to work out what other settings would have held."""
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
            self.hand_over(partial(self.view.take_advice, place, advice))


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
    try:
        return app.run_reading(shutdown, settings)
    finally:
        _end_readers()


def _end_readers() -> None:
    """End the process that decodes, where the user left before it was done."""
    import psutil

    for child in psutil.Process().children():
        with suppress(psutil.Error):
            child.terminate()
