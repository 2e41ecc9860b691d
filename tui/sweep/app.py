"""`vramscope sweep` in a terminal: the folders are read on a thread, then sweeps are walked through."""

from collections.abc import Callable
from typing import Unpack

from textual import on
from textual.screen import Screen

from ...analyzers.planning.sweep.index import SweepIndex
from ...engine.clock import SystemClock
from ...engine.settings import Settings
from .. import keys
from ..frame.launch import check_terminal
from ..screens.reading_app import ReadingApp, ReadingOptions
from .export import SweepExport
from .index_screen import SweepIndexScreen
from .screen import SweepScreen, SweepView

Progress = Callable[[int, int], object]
"""Takes how many layouts were read, and of how many."""
ReadSweeps = Callable[[Progress], SweepIndex]


class SweepApp(ReadingApp[SweepIndex]):
    """Lists sweeps and shows one, or two side by side; ends with the layout that is to be replayed.

    Args:
        read: Reads the sweeps and tells how far it is; called on a thread of its own.
        begin: What to show first; None for the list, or the grid of the only sweep.
        notice: What is said over it at first.
        options: As of `ReadingApp`.
    """

    BINDINGS = [*keys.FILE_WITHOUT_EXPORT]

    def __init__(
        self,
        read: ReadSweeps,
        *,
        begin: SweepView | None = None,
        notice: str = "",
        **options: Unpack[ReadingOptions],
    ) -> None:
        super().__init__(lambda: read(self._note_progress), **options)
        self._begin = begin
        self._notice = notice
        self._told = "looking for sweeps; q leaves"
        self._export = SweepExport(self._clock, self._export_folder)
        self.asked: SweepScreen.ReplayAsked | None = None
        """The layout that is to be replayed."""

    def get_default_screen(self) -> Screen[None]:
        """Return the screen that lists sweeps."""
        self.list_screen = SweepIndexScreen(self.glyphs, self._export)
        return self.list_screen

    @property
    def report(self) -> str | None:
        """Nothing: what is shown is exported as figures."""
        return None

    def tell_progress(self) -> None:
        """Say on the screen how much was read."""
        self.list_screen.wait(self._told)

    def show(self, found: SweepIndex) -> None:
        """List the sweeps; one that is alone, or that was left, is shown at once."""
        self.list_screen.show(found)
        if self._begin is not None:
            self._open(found, self._begin)
        elif len(found.sweeps) == 1:
            self._open(found, SweepView(found.sweeps[0].name))
        if self._notice:
            self.notify(self._notice, severity="error", markup=False)

    @on(SweepIndexScreen.SweepChosen)
    def open_chosen(self, message: SweepIndexScreen.SweepChosen) -> None:
        """Show the grid of a sweep."""
        self._open(SweepIndex(tuple(message.sweeps)), SweepView(message.name))

    @on(SweepScreen.ReplayAsked)
    def leave_for_replay(self, message: SweepScreen.ReplayAsked) -> None:
        """End with the layout that is to be replayed; whoever started this comes back afterwards."""
        self.asked = message
        self.exit()

    def action_step_back(self) -> None:
        """Go back to the list; from there, end."""
        if self.screen is self.list_screen:
            self.exit()
        else:
            self.pop_screen()

    def _open(self, index: SweepIndex, view: SweepView) -> None:
        self.push_screen(SweepScreen(index.sweeps, view, self.glyphs, self._export))

    def _note_progress(self, done: int, total: int) -> None:
        self._told = f"reading sweeps: {done:,} of {total:,} layouts; q leaves"
        if self._exit:
            raise InterruptedError


def show_sweeps(
    read: ReadSweeps, *, settings: Settings, begin: SweepView | None = None, notice: str = ""
) -> tuple[int, SweepScreen.ReplayAsked | None]:
    """Show sweeps until the user quits, or wants one replayed; return the exit code, and that layout.

    Args:
        read: Reads the sweeps and tells how far it is; called on a thread of its own.
        settings: What the user set.
        begin: What to show first; None for the list, or the grid of the only sweep.
        notice: What is said over it at first.

    Raises:
        UsageError: Nothing can be drawn here.
        InputFileError: A folder cannot be read, or there is no sweep in any.
    """
    from ..frame.shutdown import Shutdown

    abilities = check_terminal(settings)
    shutdown = Shutdown(lambda: app.call_later(app.exit))
    app = SweepApp(
        read,
        settings=settings,
        abilities=abilities,
        clock=SystemClock(),
        begin=begin,
        notice=notice,
        on_exit_asked=shutdown.start_countdown,
    )
    code = app.run_reading(shutdown, settings)
    return code, app.asked
