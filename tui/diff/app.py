"""`vramscope diff` in a terminal: the files are read on a thread, and shown when they were."""

from collections.abc import Callable
from typing import Unpack

from textual.screen import Screen

from ...analyzers.comparison import Comparison
from ...engine.clock import SystemClock
from ...engine.settings import Settings
from ..frame.launch import check_terminal
from ..screens.reading_app import ReadingApp, ReadingOptions
from .screen import DifferenceScreen

Progress = Callable[[float | None, int], object]
"""Takes the share that was read, from 0 to 1 where it is known, and how many samples."""
Compare = Callable[[Progress], Comparison]


class DifferenceApp(ReadingApp[Comparison]):
    """Shows where two runs part.

    Args:
        compare: Reads the runs and tells how far it is; called on a thread of its own.
        options: As of `ReadingApp`.
    """

    def __init__(
        self,
        compare: Compare,
        **options: Unpack[ReadingOptions],
    ) -> None:
        super().__init__(lambda: compare(self._note_progress), **options)
        self._told = "reading both runs; q leaves"

    def get_default_screen(self) -> Screen[None]:
        """Return the screen of two runs."""
        self.view = DifferenceScreen(self.glyphs)
        return self.view

    @property
    def report(self) -> str | None:
        """What is shown, as text; None while there is nothing."""
        return None if self.view.comparison is None else self.view.report

    def tell_progress(self) -> None:
        """Say on the screen how much was read."""
        self.view.wait(self._told)

    def show(self, found: Comparison) -> None:
        """Show where the runs part."""
        self.view.show(found)

    def _note_progress(self, share: float | None, samples: int) -> None:
        part = "" if share is None else f", {100 * share:.0f} %"
        self._told = f"reading both runs{part}: {samples:,} samples; q leaves"
        if self._exit:
            raise InterruptedError


def show_difference(compare: Compare, *, settings: Settings) -> tuple[int, Comparison | None]:
    """Show two runs until the user quits; return the exit code, and what was found if they were read by then.

    Args:
        compare: Reads the runs and tells how far it is; called on a thread of its own.
        settings: What the user set.

    Raises:
        UsageError: Nothing can be drawn here.
        InputFileError: A file cannot be read or understood.
    """
    from ..frame.shutdown import Shutdown

    abilities = check_terminal(settings)
    shutdown = Shutdown(lambda: app.call_later(app.exit))
    app = DifferenceApp(
        compare,
        settings=settings,
        abilities=abilities,
        clock=SystemClock(),
        on_exit_asked=shutdown.start_countdown,
    )
    code = app.run_reading(shutdown, settings)
    return code, app.view.comparison
