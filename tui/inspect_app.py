"""`vramscope inspect` in a terminal: the file is read on a thread, and shown when it was."""

import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Unpack

from textual.screen import Screen

from ..engine.clock import SystemClock
from ..engine.readers.input_file import show_name
from ..engine.settings import Settings
from ..engine.units import format_bytes
from .inspect_reading import read_inspected
from .inspected import Inspected, InspectedAdvice
from .launch import check_terminal
from .reading_app import ReadingApp, ReadingOptions
from .screens.inspect import InspectScreen


class InspectApp(ReadingApp[Inspected]):
    """Shows one file.

    Args:
        path: The file.
        read: Reads it; called on a thread of its own.
        options: As of `ReadingApp`.
    """

    def __init__(
        self,
        path: Path,
        read: Callable[[], Inspected],
        **options: Unpack[ReadingOptions],
    ) -> None:
        super().__init__(read, **options)
        self._path, self._began_s = path, self._clock.monotonic_s()

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
