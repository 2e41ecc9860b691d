"""Opening the live view: check the terminal, run the application, leave the terminal as it was."""

import gc
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ...engine.clock import SystemClock
from ...engine.settings import Settings
from ...engine.viewer.feed import Feed
from ..terminal.abilities import HEADLESS_ADVICE, TerminalAbilities, read_abilities
from .process_memory import share_one_heap

if TYPE_CHECKING:
    from ...analyzers.planning.sweep.index import SweepIndex
    from ...engine.jobs.background import ViewerRecording
    from ..controls.tools import PlanModel
    from ..modules.profiled import Profiled
    from ..screens.terminal_app import TerminalApp
    from .shutdown import Shutdown


COLLECTED_AFTER = (20_000, 20, 20)
"""Objects, and collections of each age, after which the collector of garbage looks at the next."""


class Overlays(NamedTuple):
    """What makes that which can be shown over a view."""

    plan_model: "PlanModel"
    read_sweeps: "Callable[[str], SweepIndex]"
    """Reads sweeps by words: folders, then flags of `vramscope sweep`. Raises a `VramscopeError`."""
    read_profiles: "Callable[[str], Sequence[Profiled]]"
    """Reads the profiles below the paths in a line. Raises a `VramscopeError`."""


def check_terminal(settings: Settings, advice: str = HEADLESS_ADVICE) -> TerminalAbilities:
    """Return what the terminal around this process can show; cheap, so call it before anything is started.

    Args:
        settings: What the user set.
        advice: What to use where nothing can be drawn.

    Raises:
        UsageError: Nothing can be drawn here; the text says what to use instead.
    """
    return read_abilities(
        os.environ,
        is_input_tty=os.isatty(0),
        is_output_tty=os.isatty(1),
        ascii_choice=settings.ascii,
        color_choice=settings.color,
        advice=advice,
    )


def run_app(
    feed: Feed,
    *,
    settings: Settings,
    save_settings: Callable[[Mapping[str, object]], Path] | None = None,
    local_node: str | None = None,
    duration_s: float | None = None,
    is_replay: bool = False,
    recording: "ViewerRecording | None" = None,
    overlays: "Overlays | None" = None,
) -> int:
    """Show a feed until the user quits, and return the exit code: 0, or 128 and the signal that ended it.

    Args:
        feed: Where snapshots come from; it is started and stopped here.
        settings: What the user set.
        save_settings: Writes settings by name and returns the file; None where they cannot be kept.
        local_node: Name of the node whose processes can be signalled from here; None for any.
        duration_s: Seconds after which the view ends by itself; None for never.
        is_replay: Whether the feed is a `ReplayFeed`, which is told where to go by keys.
        recording: Begins and ends recordings of what is shown; None where none can be made.
        overlays: What makes that which can be shown over the view; None for nothing.

    Raises:
        UsageError: Nothing can be drawn here.
    """
    from ..app import VramscopeApp
    from ..live.process_signals import SignalPolicy
    from .shutdown import Shutdown

    abilities = check_terminal(settings)
    shutdown = Shutdown(lambda: app.call_later(app.exit))
    app = VramscopeApp(
        feed,
        settings=settings,
        abilities=abilities,
        clock=SystemClock(),
        signal_policy=SignalPolicy(settings.read_only, local_node, is_replay),
        save_settings=save_settings,
        recording=recording,
        on_exit_asked=shutdown.start_countdown,
    )
    if overlays is not None:
        app.plans.make, app.sweeps.read, app.breakdowns.read = overlays
    return run_to_end(app, shutdown, settings, duration_s=duration_s)


def _spare_collector() -> None:
    """Let the collector of garbage look less often: what is loaded stays, and samples hold no rings.

    As it is by default it takes a fifth of what a fleet of a thousand nodes costs.
    """
    gc.freeze()
    gc.set_threshold(*COLLECTED_AFTER)


def run_to_end(
    app: "TerminalApp", shutdown: "Shutdown", settings: Settings, *, duration_s: float | None = None
) -> int:
    """Run an application to its end and return the exit code.

    Args:
        app: What is shown.
        shutdown: Ends it on a signal.
        settings: What the user set.
        duration_s: Seconds after which it ends by itself; None for never.

    Raises:
        Exception: What the application did not expect; its terminal is restored, and nothing was printed.
    """
    # Textual would print a page of the program's variables; the caller knows how an error is told.
    app.error_console.quiet = True
    has_mouse = app.abilities.has_mouse if settings.mouse is None else settings.mouse
    timer = threading.Timer(duration_s or 0.0, lambda: app.call_later(app.action_quit))
    timer.daemon = True
    if duration_s is not None:
        timer.start()
    shutdown.install()
    share_one_heap()
    _spare_collector()
    try:
        app.run(mouse=has_mouse)
    finally:
        timer.cancel()
        shutdown.uninstall()
    if app._exception is not None:  # Textual keeps it there, and tells nobody else
        raise app._exception
    return shutdown.exit_code or app.return_code or 0
