"""`vramscope modules --screen`: profiles are read on a thread, and shown when they were."""

from collections.abc import Callable, Sequence
from typing import Unpack

from textual.screen import Screen

from ...engine.clock import SystemClock
from ...engine.settings import Settings
from .. import keys
from ..frame.launch import check_terminal
from ..screens.reading_app import ReadingApp, ReadingOptions
from .profiled import Profiled
from .screen import BreakdownScreen


class BreakdownApp(ReadingApp[Sequence[Profiled]], inherit_bindings=False):
    """Shows profiles by module.

    Args:
        read: Reads them; called on a thread of its own.
        options: As of `ReadingApp`.
    """

    BINDINGS = [*keys.FILE_WITHOUT_EXPORT]

    def __init__(self, read: Callable[[], Sequence[Profiled]], **options: Unpack[ReadingOptions]) -> None:
        super().__init__(read, **options)
        self._began_s = self._clock.monotonic_s()

    def get_default_screen(self) -> Screen[None]:
        """Return the screen of profiles."""
        self.view = BreakdownScreen(self.glyphs, self._clock, export_folder=self._export_folder)
        return self.view

    @property
    def report(self) -> str | None:
        """What is shown, as text; None while there is nothing."""
        return self.view.report or None

    def tell_progress(self) -> None:
        """Say for how long the profiles are being read."""
        self.view.wait(f"reading: {self._clock.monotonic_s() - self._began_s:.0f} s; q leaves")

    def show(self, found: Sequence[Profiled]) -> None:
        """Show the profiles."""
        self.view.show(found)


def show_breakdown(read: Callable[[], Sequence[Profiled]], settings: Settings) -> int:
    """Show profiles until the user quits, and return the exit code.

    Args:
        read: Reads them; called on a thread of its own.
        settings: What the user set.

    Raises:
        UsageError: Nothing can be drawn here.
        InputFileError: A profile cannot be read or understood.
    """
    from ..frame.shutdown import Shutdown

    abilities = check_terminal(settings)
    shutdown = Shutdown(lambda: app.call_later(app.exit))
    app = BreakdownApp(
        read,
        settings=settings,
        abilities=abilities,
        clock=SystemClock(),
        on_exit_asked=shutdown.start_countdown,
    )
    return app.run_reading(shutdown, settings)
