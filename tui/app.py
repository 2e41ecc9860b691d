"""The application: what is composed, which keys there are, and where messages go."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from contextvars import copy_context
from pathlib import Path
from typing import TYPE_CHECKING, cast

from textual.screen import Screen

from ..engine.bus.feed import Feed
from ..engine.bus.snapshot import Snapshot
from ..engine.clock import Clock
from ..engine.errors import VramscopeError
from ..engine.settings import Settings, SortColumn
from .bindings import APP_BINDINGS
from .mailbox import SnapshotMailbox, is_same_picture
from .process_rows import SortOrder
from .process_signals import SignalPolicy
from .screens.live import LiveScreen
from .terminal import TerminalAbilities
from .terminal_app import TerminalApp
from .terminal_driver import TerminalDriver

if TYPE_CHECKING:
    from textual.driver import Driver

SaveSettings = Callable[[Mapping[str, object]], Path]
"""Writes settings by their names and returns the file."""


class VramscopeApp(TerminalApp, inherit_bindings=False):
    """Shows what a feed tells; holds no figures but the newest snapshot.

    Args:
        feed: Where snapshots come from.
        settings: What the user set.
        abilities: What the terminal can show.
        clock: Where time is read.
        signal_policy: Whether processes may be signalled.
        save_settings: Writes settings, or None where they cannot be kept.
        export_folder: Where exports go; None for the current folder.
        on_exit_asked: Called when the application begins to end.
        driver_class: Driver of the terminal; None for Textual's own.
    """

    BINDINGS = [*APP_BINDINGS]

    def __init__(
        self,
        feed: Feed,
        *,
        settings: Settings,
        abilities: TerminalAbilities,
        clock: Clock,
        signal_policy: SignalPolicy,
        save_settings: SaveSettings | None = None,
        export_folder: Path | None = None,
        on_exit_asked: Callable[[], object] = lambda: None,
        driver_class: "type[Driver] | None" = TerminalDriver,
    ) -> None:
        super().__init__(
            abilities, theme=settings.theme, on_exit_asked=on_exit_asked, driver_class=driver_class
        )
        self._signal_policy = signal_policy
        self._feed, self._settings, self._clock = feed, settings, clock
        self._save_settings, self._export_folder = save_settings, export_folder
        self._mailbox = SnapshotMailbox()
        self._newest = self._received = Snapshot()
        self._is_paused = False
        self._skipped_at_start = 0

    def get_default_screen(self) -> Screen[None]:
        """Return the live screen."""
        self.live = LiveScreen(self.glyphs, self._feed.history, self._clock, self._signal_policy)
        return self.live

    def on_mount(self) -> None:
        """Apply the settings and start the feed."""
        self.live.processes.order = SortOrder(self._settings.sort, self._settings.sort_reversed)
        self.live.devices.history_window_s = self._settings.history_window_s
        self._loop_context = copy_context()
        self._event_loop = asyncio.get_running_loop()
        self._feed.start(self._receive)

    def on_unmount(self) -> None:
        """Stop the feed; it gives up within half a second whatever hangs."""
        self._feed.stop()

    def _receive(self, snapshot: Snapshot) -> None:
        """Take a snapshot on the feed's own thread."""
        before, self._received = self._received, snapshot
        if is_same_picture(before, snapshot):
            self._mailbox.amend(snapshot)
        elif self._mailbox.put(snapshot):
            # A message would pass through the queues of every widget that it makes repaint.
            with suppress(RuntimeError):  # the loop has ended
                self._event_loop.call_soon_threadsafe(self._wake, context=self._loop_context)

    def _wake(self) -> None:
        """Draw what arrived; an error ends the application as one in a message's handler does."""
        if self._exit or self._closing:
            return
        try:
            self._draw_newest()
        except Exception as error:  # noqa: BLE001  # whatever it is, a person must see it
            self._handle_exception(error)

    def _draw_newest(self) -> None:
        """Draw the newest snapshot, unless the figures are frozen or the terminal does not read."""
        if isinstance(self._driver, TerminalDriver) and self._driver.is_blocked:
            return
        snapshot = self._mailbox.take()
        if snapshot is None:
            return
        if self._newest.sample is None:
            # What came before the first picture was late for nobody.
            self._skipped_at_start = self._mailbox.replaced
        self._newest = snapshot
        if not self._is_paused:
            self._draw()

    def on_terminal_drained(self) -> None:
        """Draw everything anew after output was lost."""
        self._draw_newest()
        self.screen.refresh(layout=True)

    def _draw(self) -> None:
        with self.live.drawn_at_once():
            self.live.frames_skipped = self._mailbox.replaced - self._skipped_at_start
            self.live.snapshot = self._newest

    def action_show_live(self) -> None:
        """Go back to the live screen."""
        while self.screen is not self.live:
            self.pop_screen()

    def action_pause(self) -> None:
        """Freeze the figures, or draw the newest ones again."""
        sample = self._newest.sample
        if self._is_paused:
            self._is_paused = False
            self.live.paused_since_s = None
            self._draw()
        elif sample is not None:
            self._is_paused = True
            self.live.paused_since_s = sample.time_s

    def action_export(self) -> None:
        """Write the picture and its figures into files."""
        from .export import export_view

        folder = self._export_folder or Path.cwd()
        try:
            files = export_view(self.export_screenshot(), self.live.snapshot, folder, self._clock.wall_s())
        except OSError as error:
            self.notify(f"Not exported: {folder}: {error.strerror}", severity="error", markup=False)
            return
        names = " and ".join(path.name for path in files)
        self.notify(f"Wrote {names} to {folder}", markup=False)

    def action_save_settings(self) -> None:
        """Keep the look and the sorting."""
        if self._save_settings is None:
            self.notify("Settings cannot be kept here.", severity="warning")
            return
        order = self.live.processes.order
        values = {
            "theme": self.theme_choice,
            "sort": cast(SortColumn, order.column),
            "sort_reversed": order.is_inverted,
        }
        try:
            path = self._save_settings(values)
        except (OSError, VramscopeError) as error:
            self.notify(f"Settings not saved: {error}", severity="error", markup=False)
            return
        self.notify(f"Settings saved to {path}", markup=False)
