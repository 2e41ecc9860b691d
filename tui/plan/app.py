"""`vramscope plan --screen`: the plan is made on a thread, and shown when it is there."""

from collections.abc import Callable
from typing import Unpack

from textual.screen import Screen

from ...engine.clock import SystemClock
from ...engine.settings import Settings
from .. import keys
from ..frame.launch import check_terminal
from ..screens.reading_app import ReadingApp, ReadingOptions
from .planned import Planned
from .screen import PlanScreen


class PlanApp(ReadingApp[Planned], inherit_bindings=False):
    """Shows a plan.

    Args:
        make: Makes the plan; called on a thread of its own.
        model: What is planned, for whoever waits.
        options: As of `ReadingApp`.
    """

    BINDINGS = [*keys.FILE_WITHOUT_EXPORT]

    def __init__(
        self,
        make: Callable[[], Planned],
        *,
        model: str,
        **options: Unpack[ReadingOptions],
    ) -> None:
        super().__init__(make, **options)
        self._model, self._began_s = model, self._clock.monotonic_s()

    def get_default_screen(self) -> Screen[None]:
        """Return the screen of a plan."""
        self.view = PlanScreen(self.glyphs, self._clock, export_folder=self._export_folder)
        return self.view

    @property
    def report(self) -> str | None:
        """What is shown, as text; None while there is nothing."""
        return self.view.report or None

    def tell_progress(self) -> None:
        """Say for how long the plan is being made."""
        passed_s = self._clock.monotonic_s() - self._began_s
        self.view.wait(f"planning {self._model}: {passed_s:.0f} s; q leaves")

    def show(self, found: Planned) -> None:
        """Show the plan."""
        self.view.show(found)


def show_plan(make: Callable[[], Planned], *, model: str, settings: Settings) -> int:
    """Show a plan until the user quits, and return the exit code.

    Args:
        make: Makes the plan; called on a thread of its own.
        model: What is planned, for whoever waits.
        settings: What the user set.

    Raises:
        UsageError: Nothing can be drawn here, or the plan cannot be made.
        InputFileError: The model's file cannot be read or understood.
    """
    from ..frame.shutdown import Shutdown

    abilities = check_terminal(settings)
    shutdown = Shutdown(lambda: app.call_later(app.exit))
    app = PlanApp(
        make,
        model=model,
        settings=settings,
        abilities=abilities,
        clock=SystemClock(),
        on_exit_asked=shutdown.start_countdown,
    )
    return app.run_reading(shutdown, settings)
