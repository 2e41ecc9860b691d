"""Base of our applications: the themes, the terminal's abilities, help and the end."""

import gc
import io
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, cast

from rich.console import Console
from rich.segment import Segment
from textual import on
from textual.app import App
from textual.await_complete import AwaitComplete
from textual.binding import Binding, BindingsMap
from textual.color import Color
from textual.command import CommandPalette, DiscoveryHit, Hit, Hits, Provider
from textual.filter import LineFilter, Monochrome, NoColor
from textual.screen import Screen
from textual.types import IgnoreReturnCallbackType
from textual.widgets import Input

from ...engine.clock import Clock, SystemClock
from ...engine.settings import ThemeName
from ...engine.text import make_printable
from ..draw.glyphs import ASCII, UNICODE
from ..draw.palettes import PALETTES
from ..draw.spans import to_ascii
from ..frame.keys import MOVEMENTS, collect_keys
from ..frame.process_memory import clear_library_caches, return_free_memory
from ..frame.theme import default_variables, register_themes
from ..terminal.abilities import TerminalAbilities, choose_theme
from ..terminal.driver import TerminalDriver
from .notices import Notice, NoticeBoard, NoticeSeverity
from .snapshot_screen import SnapshotScreen

if TYPE_CHECKING:
    from textual.driver import Driver

    from .file_view import FileView


class PaletteEntry(NamedTuple):
    name: str
    help: str
    run: IgnoreReturnCallbackType


class PaletteCommands(Provider):
    """Lists the actions of the screen under the palette."""

    async def discover(self) -> Hits:
        for entry in self._entries():
            yield DiscoveryHit(entry.name, entry.run, help=entry.help)

    async def search(self, query: str) -> Hits:
        matcher = self.matcher(query)
        for entry in self._entries():
            score = matcher.match(entry.name)
            if score > 0:
                yield Hit(score, matcher.highlight(entry.name), entry.run, help=entry.help)

    def _entries(self) -> Iterator[PaletteEntry]:
        app = cast("TerminalApp", self.app)
        for group, keys in collect_keys(self.screen).items():
            for key in keys:
                if key.verb not in MOVEMENTS and key.action not in {
                    "app.command_palette",
                    "command_palette",
                }:
                    help_text = f"{key.tooltip}  ({key.keys})"
                    yield PaletteEntry(
                        f"{group}: {key.description.lower()}",
                        help_text,
                        partial(self.screen.run_action, key.action),
                    )
        for name in app.theme_choices:
            help_text = "The theme in use." if name == app.theme_choice else f"Switch to the {name} theme."
            yield PaletteEntry(f"theme: {name}", help_text, partial(app.choose_theme, name))
        if isinstance(self.screen, SnapshotScreen):
            for column, sentence, sort in self.screen.list_sorts():
                yield PaletteEntry(f"sort: {column}", sentence, sort)


_COLOR_SYSTEMS = {"16": "standard", "256": "256", "truecolor": "truecolor", "none": "standard"}
_THEME_NAMES = tuple(PALETTES)

# Seconds from closing a screen to the collection that frees it and all others closed meanwhile.
COLLECTED_WITHIN_S = 20.0


class TerminalApp(App[None], inherit_bindings=False):
    """An application that draws what this terminal can show, in the chosen look.

    Args:
        own_keys: Keys that work on every screen; those of `view` replace them.
        view: What is read from files and shown; other applications override what shows it.
        theme: The look to begin with; None for the one that suits the terminal.
        export_folder: None for the current folder.
        on_exit_asked: Called when the application begins to end.
        driver_class: Driver of the terminal; None for Textual's own.
    """

    CSS_PATH = Path(__file__).with_name("app.tcss")  # a relative path would be of the subclass
    TITLE = "vramscope"
    COMMANDS: ClassVar = {PaletteCommands}
    NOTIFICATION_TIMEOUT = 6.0

    def __init__(
        self,
        abilities: TerminalAbilities,
        *,
        own_keys: Sequence[Binding] = (),
        view: "FileView[Any, Any] | None" = None,
        theme: ThemeName | None = None,
        clock: Clock | None = None,
        export_folder: Path | None = None,
        on_exit_asked: Callable[[], object] = lambda: None,
        driver_class: "type[Driver] | None" = TerminalDriver,
    ) -> None:
        self.abilities = abilities
        self._on_exit_asked = on_exit_asked
        super().__init__(driver_class=driver_class)
        if view is not None:
            own_keys = view.own_keys
        if own_keys:
            self._bindings = BindingsMap(own_keys)
        self.view = view
        self.clock = clock or SystemClock()
        self.export_folder = export_folder
        self.notices = NoticeBoard(self)
        self._overlays: tuple[Screen[None], ...] = ()
        self.animation_level = "none"
        self.console = _make_console(abilities)
        self.glyphs = ASCII if abilities.is_ascii else UNICODE
        self._printable_filter = PrintableFilter()
        self._ascii_filter = AsciiFilter()
        self._color_filter = NoColor()
        # Whether a collection is scheduled.
        self.is_collection_due = False
        register_themes(cast("App[object]", self))
        self.theme = f"vramscope-{choose_theme(theme, abilities)}"

    def get_default_screen(self) -> Screen[None]:
        return super().get_default_screen() if self.view is None else self.view.make_screen(self)

    def on_mount(self) -> None:
        if self.view is not None:
            self.view.begin()

    @on(CommandPalette.Opened)
    def keep_cursor_steady(self) -> None:
        """Let no cursor blink: each change would be sent to the terminal."""
        for field in self.screen.query(Input):
            field.cursor_blink = False

    def action_export(self) -> None:
        if self.view is not None:
            self.view.export()

    def notify(
        self,
        message: str,
        *,
        title: str = "",
        severity: NoticeSeverity = "information",
        timeout: float | None = None,
        markup: bool = False,
    ) -> None:
        """Show a notice on the alerts line, or on another line where there is none.

        Args:
            title: Its subject: a later notice on the same one replaces it. It is not shown.
            timeout: Seconds for which it is shown; None for the default.
            markup: Has no effect: the text is shown as it is.
        """
        seconds = self.NOTIFICATION_TIMEOUT if timeout is None else timeout
        self.notices.add(Notice(message, severity, seconds, title))

    def clear_notifications(self) -> None:
        self.notices.clear()

    def place_notice(self) -> None:
        self.notices.place()

    @property
    def overlay(self) -> Screen[None] | None:
        """The foremost screen over those of the application; None without one."""
        return self._overlays[-1] if self._overlays else None

    def is_open_over(self, screen: Screen[None]) -> bool:
        """Return whether a screen is open over those of the application, even below another such screen."""
        return screen in self._overlays

    def show_over(self, screen: Screen[None]) -> None:
        """Show a screen over those of the application, in place of any others there."""
        self.leave_overlay()
        self.show_further(screen)

    def show_further(self, screen: Screen[None]) -> None:
        self._overlays += (screen,)
        self.push_screen(screen)

    def leave_overlay(self) -> None:
        """Close all screens over those of the application."""
        while self._overlays:
            self.step_back()

    def step_back(self) -> None:
        """Close the foremost of these screens, and any dialog over it."""
        overlay = self.overlay
        self._overlays = self._overlays[:-1]
        while overlay is not None and overlay in self.screen_stack:
            self.pop_screen()

    def action_step_back(self) -> None:
        self.step_back()

    def get_theme_variable_defaults(self) -> dict[str, str]:
        """Return the roles' looks for themes that do not define them."""
        return {"ansi-background": "ansi_default", "ansi-foreground": "ansi_default", **default_variables()}

    def get_line_filters(self) -> Sequence[LineFilter]:
        """Return the filters that rewrite lines for this terminal."""
        filters = [found for found in super().get_line_filters() if not isinstance(found, Monochrome)]
        filters.append(self._printable_filter)
        if self.abilities.color_depth == "none":
            filters.append(self._color_filter)
        if self.abilities.is_ascii:
            filters.append(self._ascii_filter)
        return filters

    def on_terminal_gone(self) -> None:
        """End the application: its terminal is gone."""
        self.exit()

    def offers(self, binding: Binding) -> bool:
        """Return whether help and palette list a key: one that never does anything here is left out."""
        name = binding.action.partition("(")[0]
        return not name.startswith("app.") or hasattr(self, f"action_{name[4:]}")

    def action_help(self) -> None:
        from .dialogs import HelpScreen

        if not isinstance(self.screen, HelpScreen):
            self.push_screen(HelpScreen(self.screen))

    def pop_screen(self) -> AwaitComplete:
        """Close the topmost screen, and free its memory once drawing is idle.

        Widgets, styles and strips refer to one another, and Python's own collector reaches old objects only
        after hours.
        """
        if not self.is_collection_due:
            self.is_collection_due = True
            self.set_timer(COLLECTED_WITHIN_S, self.collect, name="memory of closed screens")
        return super().pop_screen()

    def collect(self) -> None:
        self.is_collection_due = False
        clear_library_caches()
        gc.collect()
        return_free_memory()

    @property
    def theme_choices(self) -> tuple[ThemeName, ...]:
        """Looks that this terminal can show."""
        return ("mono",) if self.abilities.color_depth == "none" else _THEME_NAMES

    @property
    def theme_choice(self) -> ThemeName:
        return next(name for name in _THEME_NAMES if self.theme == f"vramscope-{name}")

    def choose_theme(self, name: ThemeName) -> None:
        self.theme = f"vramscope-{name}"

    def action_next_theme(self) -> None:
        choices = self.theme_choices
        self.choose_theme(choices[(choices.index(self.theme_choice) + 1) % len(choices)])
        self.notify(f"Theme: {self.theme_choice}", title="theme", timeout=2)

    async def action_quit(self) -> None:
        self._on_exit_asked()
        self.exit()


def _make_console(abilities: TerminalAbilities) -> Console:
    """Return the console that turns styles into what the terminal understands."""
    return Console(
        color_system=_COLOR_SYSTEMS[abilities.color_depth],  # type: ignore[arg-type]  # a plain str in rich
        file=io.StringIO(),
        force_terminal=True,
        legacy_windows=False,
        highlight=False,
        emoji=False,
        _environ={},
    )


# Filters between the widgets and the terminal: printable text, and seven bits where asked for.


class PrintableFilter(LineFilter):
    """Makes every line that any widget draws printable: lists, titles, the palette and notices too."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """Return the segments, unchanged where nothing in them would control the terminal."""
        if all(segment.text.isprintable() for segment in segments):
            return segments
        return [segment._replace(text=make_printable(segment.text)) for segment in segments]


class AsciiFilter(LineFilter):
    """Rewrites every line that any widget draws: borders, scroll bars, palette and notices too."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        return [
            segment
            if segment.text.isascii()
            else Segment(to_ascii(segment.text), segment.style, segment.control)
            for segment in segments
        ]
